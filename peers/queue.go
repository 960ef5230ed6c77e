package peers

import (
	"slices"
	"sync"
	"time"

	metev1 "github.com/meteproject/mete/api/mete/v1"
)

const (
	// maxBatch is how many settlements one call carries: a call a millisecond is half
	// a million a second, and no more than these are ever in doubt.
	maxBatch = 512
	// maxBatchBytes keeps a call far below the 4 MiB that a server takes. One entry
	// is always less: tokens end at 64 KiB.
	maxBatchBytes = 1 << 20
	// entryBytes is what an entry takes beside its token and its numbers.
	entryBytes = 200
)

// An entry is a settlement on its way to another process.
type entry struct {
	settlement *metev1.Settlement
	decider    uint64 // the process that decided
	size       int
	at         time.Time // when it came
	tried      bool      // it was sent, and nobody knows what became of it
}

// newEntry copies what is to be passed on: token and w end with the call.
func newEntry(now time.Time, token string, w *work) entry {
	s := &metev1.Settlement{
		Reservation: []byte(token), Used: slices.Clone(w.measured.Used),
		Free: w.measured.Free, Long: w.measured.Long, Replayed: w.measured.Replayed,
	}
	return entry{settlement: s, decider: w.reservation.Replica, size: entryBytes + len(token) + 8*len(s.GetUsed()), at: now}
}

// A queue has what waits for one peer, the oldest first, what is being sent included. It is safe
// for concurrent use.
type queue struct {
	max, maxBytes int           // set by newPeer, never changed
	wake          chan struct{} // something came

	mu      sync.Mutex
	entries []entry // guarded by mu, as all below; those that were tried are at the front
	bytes   int
	closed  bool
}

// offered is what a queue says to an entry.
type offered int

const (
	queueTook offered = iota
	queueFull
	queueClosed // for good
)

func (q *queue) offer(e entry) offered {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.closed:
		return queueClosed
	case len(q.entries) >= q.max || q.bytes+e.size > q.maxBytes:
		return queueFull
	}
	q.entries = append(q.entries, e)
	q.bytes += e.size
	select {
	case q.wake <- struct{}{}:
	default: // a wake-up is already waiting
	}
	return queueTook
}

// next appends the batch that is to be sent to into. Entries that were tried travel alone,
// so that no others come in doubt with them.
func (q *queue) next(into []*metev1.Settlement) []*metev1.Settlement {
	q.mu.Lock()
	defer q.mu.Unlock()
	size := 0
	for i := range q.entries {
		e := &q.entries[i]
		size += e.size
		if i == maxBatch || e.tried != q.entries[0].tried || (i > 0 && size > maxBatchBytes) {
			break
		}
		into = append(into, e.settlement)
	}
	return into
}

// done removes the first n entries, which have been settled.
func (q *queue) done(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.remove(n)
}

// doubt notes of the first n entries that nobody knows what became of them.
func (q *queue) doubt(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range n {
		q.entries[i].tried = true
	}
}

// takeTried removes and returns the entries that were tried.
func (q *queue) takeTried() []entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.tried()
	tried := slices.Clone(q.entries[:n])
	q.remove(n)
	return tried
}

// takeUntried removes and returns the entries that were never sent.
func (q *queue) takeUntried() []entry {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := q.tried()
	untried := slices.Clone(q.entries[n:])
	for i := range untried {
		q.bytes -= untried[i].size
	}
	clear(q.entries[n:])
	q.entries = q.entries[:n]
	return untried
}

// close makes q take no more.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
}

// tried returns how many entries were tried. The caller holds the lock.
func (q *queue) tried() int {
	if n := slices.IndexFunc(q.entries, func(e entry) bool { return !e.tried }); n >= 0 {
		return n
	}
	return len(q.entries)
}

// remove removes the first n entries. The caller holds the lock.
func (q *queue) remove(n int) {
	for i := range n {
		q.bytes -= q.entries[i].size
	}
	clear(q.entries[:n])
	q.entries = q.entries[n:]
	if len(q.entries) == 0 && cap(q.entries) > keepEntries {
		q.entries = nil
	}
}

// keepEntries bounds what an empty queue keeps: a burst's memory goes.
const keepEntries = 4 * maxBatch

// look returns how many entries there are, their bytes and when the oldest came.
func (q *queue) look() (n, size int, oldest time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.entries) > 0 {
		oldest = q.entries[0].at
	}
	return len(q.entries), q.bytes, oldest
}
