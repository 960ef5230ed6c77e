package store

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
)

// writeTimeout bounds one transaction of the loop that applies documents.
const writeTimeout = 2 * time.Second

// maxSearches bounds how often one batch looks for an older version of a tenant,
// credential or webhook: a broken client may have spoiled all of them.
const maxSearches = 200

// publish makes c what is enforced, by compare and swap on both its keys. Several
// replicas do this at the same time: the loser takes over what the winner
// wrote. Until etcd has it, c is not in force. Above feature level 1 the transaction
// also finds that every live replica was judged, and raises the store's minimum.
func (d *Documents) publish(ctx context.Context, c *candidate) error {
	if !Published(c.kind) {
		return d.raise(ctx, c)
	}
	s := d.shelf
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	known := s.effective[c.docID]
	key, level := EffectiveKey(c.kind, c.name), c.level()
	value := encodeRecord(c.record())
	compares := append(s.fleet.guards(level),
		clientv3.Compare(clientv3.ModRevision(DocumentKey(c.kind, c.name)), "=", c.revision),
		clientv3.Compare(clientv3.ModRevision(key), "=", known.revision))
	if c.kind == plan.KindRateLimits {
		// What another replica puts in force at the same time may say the same rule.
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(limitsInForce()), "<", s.siblings+1).WithPrefix())
	}
	if newZone(c, known) {
		compares = append(compares, clientv3.Compare(clientv3.CreateRevision(UsedKey(c.name)), "=", 0))
	}
	r, err := txn(ctx, d.cluster, compares,
		append(s.fleet.raise(level), clientv3.OpPut(key, value), clientv3.OpDelete(StatusKey(c.kind, c.name))),
		append(s.fleet.reads(level), clientv3.OpGet(UsedKey(c.name), clientv3.WithCountOnly()), clientv3.OpGet(key)))
	switch {
	case err != nil:
		return fmt.Errorf("publish %s: %w", key, err)
	case !r.Succeeded:
		d.lost(c, known, r)
		return nil
	}
	s.fleet.raised(level, r.Header.Revision)
	if c.kind == plan.KindRateLimits {
		s.siblings = r.Header.Revision
	}
	s.setEffective(c.docID, r.Header.Revision, []byte(value))
	s.accept(c.docID)
	delete(s.owed, c.docID)
	delete(s.statuses, c.docID)
	return nil
}

// lost takes over what the transaction that did not publish c has read.
func (d *Documents) lost(c *candidate, known effective, r *clientv3.TxnResponse) {
	s, level := d.shelf, c.level()
	s.takeBack(c)
	s.fleet.renew(level, r)
	last := len(r.Responses) - 1
	now, used := r.Responses[last].GetResponseRange().GetKvs(), r.Responses[last-1].GetResponseRange().GetCount() > 0
	switch {
	case len(now) > 0 && now[0].ModRevision != known.revision:
		s.setEffective(c.docID, now[0].ModRevision, now[0].Value)
		s.dirty[c.docID] = nil // decided again with the next batch
	case used && newZone(c, known):
		s.reject(Rejection{
			Kind: c.kind, Name: c.name, Revision: c.revision,
			Problems: []plan.Problem{zoneProblem(c, known)},
		}, nil)
	case level > 1:
		s.dirty[c.docID] = nil // another fleet, or another document, may decide otherwise
	}
	s.halfway = s.halfway || c.kind == plan.KindRateLimits && s.effective[c.docID].source != c.revision
}

// raise makes the store's minimum what c needs, which is of a kind that is not
// published: before that no replica has it in force.
func (d *Documents) raise(ctx context.Context, c *candidate) error {
	s, level := d.shelf, c.level()
	if s.fleet.fits(c.doc) { // another document of this batch has raised it
		s.accept(c.docID)
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	compares := append(s.fleet.guards(level),
		clientv3.Compare(clientv3.ModRevision(DocumentKey(c.kind, c.name)), "=", c.revision))
	r, err := txn(ctx, d.cluster, compares, s.fleet.raise(level), s.fleet.reads(level))
	switch {
	case err != nil:
		return fmt.Errorf("raise %s: %w", MinimumKey, err)
	case !r.Succeeded:
		s.takeBack(c)
		s.fleet.renew(level, r)
		s.dirty[c.docID] = nil // another fleet may decide otherwise
		return nil
	}
	s.fleet.raised(level, r.Header.Revision)
	s.accept(c.docID)
	return nil
}

// newZone reports whether c changes the time zone of an app, which is fixed by its
// first recorded use: windows would end where nothing was counted.
func newZone(c *candidate, known effective) bool {
	if c.kind != plan.KindApp || known.revision == 0 {
		return false
	}
	old := zoneOf(c, known)
	return old == "" || old != c.doc.App.TimeZone.String()
}

// zoneOf returns the time zone of the app as it is enforced; "" if what is enforced
// needs a newer version, and what was before is not known here.
func zoneOf(c *candidate, known effective) string {
	switch {
	case known.doc != nil:
		return known.doc.App.TimeZone.String()
	case c.before != nil:
		return c.before.App.TimeZone.String()
	}
	return ""
}

func zoneProblem(c *candidate, known effective) plan.Problem {
	line, col := position(c.text, "time_zone")
	message := fmt.Sprintf("the app has recorded usage, so that its time zone stays %s; write that, or a new app", zoneOf(c, known))
	if zoneOf(c, known) == "" {
		message = "the app has recorded usage, and what is enforced of it needs a newer version, so that its time zone is not known here; run one"
	}
	return plan.Problem{Line: line, Col: col, Kind: c.kind, Name: c.name, Path: "spec.time_zone", Message: message}
}

// unpublish ends what is enforced of a document that was deleted.
func (d *Documents) unpublish(ctx context.Context, id docID) error {
	s := d.shelf
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	key := EffectiveKey(id.kind, id.name)
	source := DocumentKey(id.kind, id.name)
	r, err := txn(ctx, d.cluster,
		[]clientv3.Cmp{
			clientv3.Compare(clientv3.ModRevision(source), "=", 0),
			clientv3.Compare(clientv3.ModRevision(key), "=", s.effective[id].revision),
		},
		[]clientv3.Op{clientv3.OpDelete(key), clientv3.OpDelete(StatusKey(id.kind, id.name))},
		[]clientv3.Op{clientv3.OpGet(source, clientv3.WithCountOnly()), clientv3.OpGet(key, clientv3.WithCountOnly())})
	if err != nil {
		return fmt.Errorf("end %s: %w", key, err)
	}
	// One that loses to another that ended it too takes that over at once: what else is
	// decided now may say the same rules as the document that is gone.
	gone := r.Succeeded || r.Responses[0].GetResponseRange().GetCount()+r.Responses[1].GetResponseRange().GetCount() == 0
	if !gone {
		s.halfway = s.halfway || id.kind == plan.KindRateLimits
		return nil
	}
	s.dropEffective(id, r.Header.Revision)
	delete(s.deleted, id)
	s.accept(id)
	delete(s.owed, id)
	delete(s.statuses, id)
	return nil
}

// maxRecords bounds how many statuses are written after one batch, so that a
// flood of broken documents delays no good one. The rest follows.
const maxRecords = 500

// record writes to status/ what is rejected, keeps the last good text of tenants,
// credentials and webhooks under effective/ meanwhile, and removes both when the
// document is good again. Who loses a swap does nothing: the watch will tell.
func (d *Documents) record(ctx context.Context) {
	n := 0
	for id := range d.shelf.owed {
		if n++; n > maxRecords {
			return
		}
		if err := d.recordOne(ctx, id); err != nil {
			d.Log.Warn().Err(err).Str("key", StatusKey(id.kind, id.name)).Msg("status could not be written; trying again")
			return
		}
		delete(d.shelf.owed, id)
	}
}

func (d *Documents) recordOne(ctx context.Context, id docID) error {
	s := d.shelf
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	status, effectiveKey := StatusKey(id.kind, id.name), EffectiveKey(id.kind, id.name)
	known, kept := s.effective[id]
	compares := []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(DocumentKey(id.kind, id.name)), "=", s.sources[id].revision),
		clientv3.Compare(clientv3.ModRevision(status), "=", s.statuses[id].revision),
		clientv3.Compare(clientv3.ModRevision(effectiveKey), "=", known.revision),
	}
	var ops []clientv3.Op
	r := s.rejected[id]
	if r == nil {
		if _, stored := s.statuses[id]; stored {
			ops = append(ops, clientv3.OpDelete(status))
		}
		if kept && !Published(id.kind) {
			ops = append(ops, clientv3.OpDelete(effectiveKey))
		}
	} else {
		if r.changed {
			ops = append(ops, clientv3.OpPut(status, encodeRecord(r.record())))
		}
		if r.changed && !kept && !Published(id.kind) {
			if doc, text, revision := lastGood(ctx, d.cluster, id, r.Revision, s.fleet.fits); doc != nil {
				good := candidate{doc: doc, revision: revision, text: text}
				ops = append(ops, clientv3.OpPut(effectiveKey, encodeRecord(good.record())))
			}
		}
	}
	if len(ops) == 0 {
		return nil
	}
	answer, err := txn(ctx, d.cluster, compares, ops, nil)
	if err == nil && answer.Succeeded && r != nil {
		r.changed = false
	}
	return err
}

// lastGood looks in etcd's history for the newest valid version of a document
// before a revision, of those that are fit to be in force. History goes back a minute
// or two.
func lastGood(ctx context.Context, kv Doer, id docID, before int64, fits func(*plan.Document) bool) (doc *plan.Document, text []byte, revision int64) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// A person who tries to mend a document makes a few bad edits in a row.
	const tries = 16
	for range tries {
		if before <= 1 {
			return nil, nil, 0
		}
		r, err := get(ctx, kv, DocumentKey(id.kind, id.name), clientv3.WithRev(before-1))
		if err != nil || len(r.Kvs) == 0 {
			return nil, nil, 0
		}
		text, before = r.Kvs[0].Value, r.Kvs[0].ModRevision
		if doc, _ := plan.DecodeOne(id.kind, id.name, "", text); doc != nil && fits(doc) {
			return doc, text, before
		}
	}
	return nil, nil, 0
}
