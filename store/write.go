package store

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
)

// ErrChanged tells that somebody else has changed a document since it was read.
var ErrChanged = errors.New("changed by somebody else meanwhile")

// A Stored document is one as it was written.
type Stored struct {
	Kind        plan.Kind
	Name        string
	Text        []byte
	ModRevision int64 // 0: it does not exist
}

// A Change is what to write to a document. It is guarded: the document must be at
// ModRevision, 0 meaning that it must not exist.
type Change struct {
	Kind        plan.Kind
	Name        string
	Text        []byte // nil: delete
	ModRevision int64
}

// A PartialError tells that some of a list of changes were made and the rest were
// not.
type PartialError struct {
	Applied, Total int // the first Applied changes were made
	Err            error
}

// Error implements error.
func (e *PartialError) Error() string {
	return fmt.Sprintf("%d of %d documents were written, the rest was not: %v", e.Applied, e.Total, e.Err)
}

// Unwrap returns why the rest was not written.
func (e *PartialError) Unwrap() error { return e.Err }

// maxChanges is how many documents one transaction takes: etcd allows 128
// operations in each part of it. maxChangedBytes is how long they may be together, as
// etcd takes 1.5 MiB in one request.
const (
	maxChanges      = 60
	maxChangedBytes = 1 << 20
)

// ApplyDocuments makes all changes in one transaction, and returns its revision.
// More than 60, or more than 1 MiB, take several: when a later one fails, the error is a
// [*PartialError]. A store that needs a newer version is not written to: the error is
// a [*TooOldError]. An error that is neither that nor [ErrChanged] leaves open whether
// the transaction that failed was applied.
func ApplyDocuments(ctx context.Context, kv Doer, changes []Change) (int64, error) {
	var revision int64
	applied := 0
	for part := range partsOf(changes) {
		r, err := applyChanges(ctx, kv, part)
		for errors.Is(err, errMinimum) { // it rose just now
			r, err = applyChanges(ctx, kv, part)
		}
		switch {
		case err != nil && applied > 0:
			return revision, &PartialError{applied, len(changes), err}
		case err != nil:
			return 0, err
		}
		revision = r
		applied += len(part)
	}
	return revision, nil
}

// partsOf divides changes into what one transaction takes, in their order.
func partsOf(changes []Change) iter.Seq[[]Change] {
	return func(yield func([]Change) bool) {
		from, size := 0, 0
		for i := range changes {
			n := len(changes[i].Text)
			if i > from && (i-from == maxChanges || size+n > maxChangedBytes) {
				if !yield(changes[from:i]) {
					return
				}
				from, size = i, 0
			}
			size += n
		}
		if from < len(changes) {
			yield(changes[from:])
		}
	}
}

func applyChanges(ctx context.Context, kv Doer, changes []Change) (int64, error) {
	minimum, err := Writable(ctx, kv)
	if err != nil {
		return 0, err
	}
	compares := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(MinimumKey), "=", minimum.revision)}
	var then, otherwise []clientv3.Op
	for _, ch := range changes {
		key := DocumentKey(ch.Kind, ch.Name)
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", ch.ModRevision))
		otherwise = append(otherwise, clientv3.OpGet(key, clientv3.WithKeysOnly()))
		if ch.Text == nil {
			then = append(then, clientv3.OpDelete(key))
			continue
		}
		then = append(then, clientv3.OpPut(key, string(ch.Text)))
	}
	r, err := txn(ctx, kv, compares, then, otherwise)
	if err != nil {
		return 0, fmt.Errorf("write %d documents: %w", len(changes), err)
	}
	if r.Succeeded {
		return r.Header.Revision, nil
	}
	var moved []string
	for i, ch := range changes {
		var now int64
		if kvs := r.Responses[i].GetResponseRange().GetKvs(); len(kvs) > 0 {
			now = kvs[0].ModRevision
		}
		if now != ch.ModRevision {
			moved = append(moved, fmt.Sprintf("%s %s is at revision %d, not %d", ch.Kind, ch.Name, now, ch.ModRevision))
		}
	}
	if len(moved) == 0 {
		return 0, errMinimum
	}
	return 0, fmt.Errorf("%s: %w", strings.Join(moved, "; "), ErrChanged)
}

// GetDocument returns a document as it was written; ModRevision 0 if there is
// none.
func GetDocument(ctx context.Context, kv Doer, kind plan.Kind, name string) (Stored, error) {
	r, err := get(ctx, kv, DocumentKey(kind, name))
	if err != nil {
		return Stored{}, fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	s := Stored{Kind: kind, Name: name}
	if len(r.Kvs) > 0 {
		s.Text, s.ModRevision = r.Kvs[0].Value, r.Kvs[0].ModRevision
	}
	return s, nil
}

// ListDocuments returns all documents of a kind as they were written, by name.
func ListDocuments(ctx context.Context, kv Doer, kind plan.Kind) ([]Stored, error) {
	var all []Stored
	_, err := scan(ctx, kv, prefixSpan(DocumentPrefix(kind)), 0, func(kv *mvccpb.KeyValue) {
		if k, name, ok := ParseDocumentKey(string(kv.Key)); ok {
			all = append(all, Stored{k, name, kv.Value, kv.ModRevision})
		}
	})
	return all, err
}

// Statuses returns the documents whose newest edit is rejected, sorted.
func Statuses(ctx context.Context, kv Doer) ([]Rejection, error) {
	var all []Rejection
	_, err := scan(ctx, kv, prefixSpan(StatusPrefix), 0, func(kv *mvccpb.KeyValue) {
		kind, name, ok := parseUnder(StatusPrefix, string(kv.Key))
		record, err := decodeRecord[statusRecord](kv.Value)
		if ok && err == nil {
			all = append(all, record.rejection(docID{kind, name}))
		}
	})
	slices.SortFunc(all, func(a, b Rejection) int {
		return compareIDs(docID{a.Kind, a.Name}, docID{b.Kind, b.Name})
	})
	return all, err
}

// LoadCatalog returns what is enforced, as replicas see it that have read all
// until the returned revision. Edits that no replica has published yet are not in
// it.
func LoadCatalog(ctx context.Context, kv Doer) (*plan.Catalog, int64, error) {
	s := newShelf(zerolog.Nop())
	b := batch{full: true}
	var h header
	for _, sp := range documentSpans() {
		var err error
		h, err = scanPages(ctx, kv, sp, h.revision, b.add)
		if err != nil {
			return nil, 0, fmt.Errorf("load documents: %w", err)
		}
	}
	s.apply(b)
	for _, pending := range s.decide().publish {
		s.takeBack(pending)
	}
	minimum, err := ReadMinimum(ctx, kv)
	if err != nil {
		return nil, 0, err
	}
	s.catalog.SetCascades(minimum.cascades())
	return s.catalog, h.revision, nil
}
