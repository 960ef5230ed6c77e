package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// A stored is a document in the store. The zero stored is none.
type stored struct {
	kind     plan.Kind
	name     string
	text     []byte
	doc      *plan.Document // nil if the text is not valid
	problems []plan.Problem
	revision int64 // that it was last written at; 0: it does not exist
}

func newStored(d store.Stored) stored {
	s := stored{kind: d.Kind, name: d.Name, text: d.Text, revision: d.ModRevision}
	s.doc, s.problems = plan.DecodeOne(d.Kind, d.Name, store.DocumentKey(d.Kind, shortName(d.Kind, d.Name)), d.Text)
	return s
}

// getStored reads one document; revision 0 if there is none.
func getStored(ctx context.Context, client *clientv3.Client, kind plan.Kind, name string) (stored, error) {
	d, err := store.GetDocument(ctx, client, kind, name)
	if err != nil || d.ModRevision == 0 {
		return stored{}, err
	}
	return newStored(d), nil
}

// listStored reads all documents of a kind, sorted by name.
func listStored(ctx context.Context, client *clientv3.Client, kind plan.Kind) ([]stored, error) {
	found, err := store.ListDocuments(ctx, client, kind)
	if err != nil {
		return nil, err
	}
	all := make([]stored, 0, len(found))
	for _, d := range found {
		all = append(all, newStored(d))
	}
	return all, nil
}

// minHash is the least that a credential is named by: eight digits of a hash are
// what nobody types by accident.
const minHash = 8

// findStored reads one document, which must be there. A credential may be named
// by the start of its hash.
func findStored(ctx context.Context, client *clientv3.Client, kind plan.Kind, name string) (stored, error) {
	if kind == plan.KindCredential && len(name) < 2*32 {
		return findCredential(ctx, client, name)
	}
	s, err := getStored(ctx, client, kind, name)
	if err == nil && s.revision == 0 {
		err = missing(kind, name)
	}
	return s, err
}

func findCredential(ctx context.Context, client *clientv3.Client, start string) (stored, error) {
	if len(start) < minHash {
		return stored{}, usageError(fmt.Sprintf("%q is too short for the hash of a key", start), fmt.Sprintf("write %d digits or more; metectl key list shows them", minHash))
	}
	r, err := client.Get(ctx, store.DocumentKey(plan.KindCredential, start), clientv3.WithPrefix(), clientv3.WithLimit(2))
	if err != nil {
		return stored{}, err
	}
	switch len(r.Kvs) {
	case 0:
		return stored{}, missing(plan.KindCredential, start)
	case 1:
		_, name, _ := store.ParseDocumentKey(string(r.Kvs[0].Key))
		return newStored(store.Stored{Kind: plan.KindCredential, Name: name, Text: r.Kvs[0].Value, ModRevision: r.Kvs[0].ModRevision}), nil
	}
	return stored{}, usageError(fmt.Sprintf("several keys have a hash that starts with %q", start), "write more of its digits")
}

func missing(kind plan.Kind, name string) error {
	return &failure{
		code: exitNotFound, what: "cannot find " + shortReference(kind, name), why: "it is not in the store",
		next: "metectl get " + kindPlural(kind) + " lists what is",
	}
}

// loadCatalog reads what documents are checked against: what is enforced, and on
// top of it valid edits that no replica has published yet. So plans and tenants
// can be applied one after the other before the first replica has started.
func loadCatalog(ctx context.Context, client *clientv3.Client) (*plan.Catalog, error) {
	catalog, _, err := store.LoadCatalog(ctx, client)
	if err != nil {
		return nil, err
	}
	for _, kind := range store.Kinds() {
		if !store.Published(kind) {
			continue
		}
		all, err := listStored(ctx, client, kind)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			if s.doc != nil {
				catalog.Put(s.doc, s.revision)
			}
		}
	}
	return catalog, nil
}

// rehearsalSize is how many documents a rehearsal compares in one transaction.
const rehearsalSize = 60

// rehearse checks that changes could be written, and writes nothing.
func rehearse(ctx context.Context, client *clientv3.Client, changes []store.Change) error {
	if _, err := store.Writable(ctx, client); err != nil {
		return err
	}
	for part := range slices.Chunk(changes, rehearsalSize) {
		compares := make([]clientv3.Cmp, 0, len(part))
		for _, ch := range part {
			compares = append(compares, clientv3.Compare(clientv3.ModRevision(store.DocumentKey(ch.Kind, ch.Name)), "=", ch.ModRevision))
		}
		r, err := client.Txn(ctx).If(compares...).Commit()
		if err != nil {
			return err
		}
		if !r.Succeeded {
			return store.ErrChanged
		}
	}
	return nil
}

// conflict tells what a write that did not happen means.
func conflict(err error) error {
	var partial *store.PartialError
	if f := tooOld(err); f != nil {
		return f
	}
	switch {
	case errors.As(err, &partial):
		return &failure{
			code: exitPartly, what: "not all was written", why: partial.Error(),
			next: "metectl diff shows what is missing; apply again",
		}
	case errors.Is(err, store.ErrChanged):
		return &failure{
			code: exitConflict, what: "nothing was written", why: err.Error(),
			next: "look at metectl diff, then try again",
		}
	}
	return err
}

// readStatus reads who is there and what is rejected.
func readStatus(ctx context.Context, client *clientv3.Client) (statusReport, error) {
	r := statusReport{Store: storeView{Endpoints: client.Endpoints()}, Replicas: []replicaView{}, Rejected: []rejectedView{}}
	found, err := client.Get(ctx, store.ReplicasPrefix, clientv3.WithPrefix())
	if err != nil {
		return r, err
	}
	r.Store.Revision = found.Header.Revision
	if r.Store.minimum, err = store.ReadMinimum(ctx, client); err != nil {
		return r, err
	}
	r.Store.Minimum = r.Store.minimum.Level
	for _, kv := range found.Kvs {
		v := replicaView{Incarnation: strings.TrimPrefix(string(kv.Key), store.ReplicasPrefix)}
		var p store.Presence
		if json.Unmarshal(kv.Value, &p) == nil { // a replica that says nothing we know is live all the same
			v.Address, v.Version, v.FeatureLevel, v.Zones, v.Clock = p.Address, p.Version, p.Feature, p.Zones, p.Clock.UTC()
		}
		v.Needs = needsNewer(v, r.Store.minimum)
		r.Replicas = append(r.Replicas, v)
	}
	if r.Later, err = store.SettledLater(ctx, client); err != nil {
		return r, err
	}
	var more bool
	if r.Ignored, more, err = store.StrayKeys(ctx, client); err != nil {
		return r, err
	}
	if more {
		r.Ignored = append(r.Ignored, "and more")
	}
	rejections, err := store.Statuses(ctx, client)
	for _, rej := range rejections {
		r.Rejected = append(r.Rejected, viewRejection(rej))
	}
	return r, err
}

// rejectionLines are the problems of a rejected edit, each with its place in the
// store.
func rejectionLines(r store.Rejection) []string {
	lines := make([]string, 0, len(r.Problems))
	for _, p := range r.Problems {
		lines = append(lines, placed(r, p).String())
	}
	return lines
}

// placed names the key as the file that a problem is in.
func placed(r store.Rejection, p plan.Problem) plan.Problem {
	p.File = store.DocumentKey(r.Kind, shortName(r.Kind, r.Name))
	return p
}
