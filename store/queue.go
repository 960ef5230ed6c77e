package store

import (
	"errors"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A queue holds what was received and not yet handled, the newest state of each
// key.
type queue struct {
	start header
	wake  chan struct{}

	mu       sync.Mutex
	pending  map[string]change // guarded by mu, as all below
	oldest   time.Time         // when the first of pending came
	revision int64
	heard    []time.Time // by span
	seen     []int64     // newest revision, by span
	through  []int64     // revision up to which all has come, by span
	asked    int64       // revision that word was asked for
	askedAt  time.Time   // when that was
	err      error
}

func newQueue(start header, spans int) *queue {
	q := &queue{
		start: start, wake: make(chan struct{}, 1), pending: map[string]change{},
		heard: make([]time.Time, spans), seen: make([]int64, spans), through: make([]int64, spans),
	}
	for i := range spans {
		q.heard[i], q.seen[i], q.through[i] = time.Now(), start.revision, start.revision //nolint:forbidigo // measures silence
	}
	return q
}

// errOtherStore: answers come from another store, or an older state of it.
var errOtherStore = errors.New("another store answers")

// take adds a whole response.
func (q *queue) take(span int, r *clientv3.WatchResponse) error {
	if err := r.Err(); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.heard[span] = time.Now() //nolint:forbidigo // measures silence
	if id := r.Header.GetClusterId(); id != 0 && id != q.start.cluster {
		return errOtherStore
	}
	if r.IsProgressNotify() && r.Header.GetRevision() < q.seen[span] {
		return errOtherStore
	}
	q.seen[span] = max(q.seen[span], r.Header.GetRevision())
	if len(q.pending) == 0 {
		q.oldest = q.heard[span]
	}
	if r.IsProgressNotify() {
		q.through[span] = max(q.through[span], r.Header.GetRevision())
	}
	for _, e := range r.Events {
		c := change{key: string(e.Kv.Key), revision: e.Kv.ModRevision}
		if e.Type != mvccpb.Event_DELETE {
			c.kv = e.Kv
		}
		q.pending[c.key] = c
		q.revision = max(q.revision, e.Kv.ModRevision)
		q.through[span] = max(q.through[span], e.Kv.ModRevision)
	}
	if len(q.pending) > 0 {
		q.poke()
	}
	return nil
}

// incomplete returns how long what is pending should still wait, at most hold, for
// ranges that may have changed in the same transaction or before: a tenant and its
// plan are in two. ask tells to ask those ranges.
func (q *queue) incomplete(hold time.Duration) (ask bool, rest time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil || len(q.pending) == 0 || slices.Min(q.through) >= q.revision {
		return false, 0
	}
	now := time.Now() //nolint:forbidigo // measures silence
	if ask = q.asked < q.revision || now.Sub(q.askedAt) >= askEvery; ask {
		q.asked, q.askedAt = q.revision, now
	}
	return ask, hold - now.Sub(q.oldest)
}

func (q *queue) fail(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err == nil {
		q.err = err
	}
	q.poke()
}

func (q *queue) poke() {
	select {
	case q.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// drain returns what is pending, and why no more will come.
func (q *queue) drain() (batch, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b := batch{revision: q.revision, received: q.oldest, changes: make([]change, 0, len(q.pending))}
	for _, c := range q.pending {
		b.changes = append(b.changes, c)
	}
	clear(q.pending)
	return b, q.err
}

// newest implements [speaker]: the highest revision that the store has told of. It may be far beyond
// those of its changes, and a store that is behind it is an older state.
func (q *queue) newest() header {
	q.mu.Lock()
	defer q.mu.Unlock()
	return header{cluster: q.start.cluster, revision: slices.Max(q.seen)}
}

// told returns the revision up to which all watches have told everything, and all of it
// was drained.
func (q *queue) told() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	revision := slices.Min(q.through)
	for _, c := range q.pending {
		revision = min(revision, c.revision-1)
	}
	return revision
}

// toldAll implements [speaker].
func (q *queue) toldAll(revision int64) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if slices.Min(q.through) < revision {
		return false
	}
	for i := range q.heard {
		q.heard[i] = time.Now() //nolint:forbidigo // measures silence
	}
	return true
}

// silentFor reports whether one of the watches has said nothing for d.
func (q *queue) silentFor(d time.Duration) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, t := range q.heard {
		if time.Since(t) > d { //nolint:forbidigo // measures silence
			return true
		}
	}
	return false
}
