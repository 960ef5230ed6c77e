package store

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"
	"time"
)

// maxBatch bounds the accounts of one transaction. More would hardly be faster, and
// a nested transaction may have no more conditions than what is left of the 128
// operations that etcd allows.
const maxBatch = 64

// A line is where attempts wait while others are under way. The first that comes
// to an idle line is sent at once; those that come meanwhile travel together. Where etcd
// is far away, several batches are under way at once, one begun some time after another.
type line struct {
	mu       sync.Mutex
	waiting  []*attempt // in the order in which they came, losers of the last round first
	workers  int        // goroutines at work, each on one batch
	youngest *trip      // what comes now waits for it; nil: another one may begin
	short    int        // accounts fewer than maxBatch in a batch, while etcd is overloaded
}

// A trip is one batch under way.
type trip struct {
	batch  []*attempt
	aboard int    // callers that still wait; guarded by the line's lock
	stop   func() // ends its requests
}

// A pace says how many batches of one line are under way at once, and how long after one
// the next begins.
type pace struct {
	trips   int
	spacing time.Duration
}

const (
	// nearEtcd is the round trip below which one batch at a time is best: what a
	// batch has read is old when another one has written meanwhile.
	nearEtcd = 20 * time.Millisecond
	maxTrips = 12
)

// pace returns how the batches of a line follow each other: a batch takes two round trips,
// and where those are long an attempt that has just missed one must not wait for its end.
// The round trip is the least that was measured of late, so that an etcd that is slow for
// having too much to do is not taken for a distant one.
func (s *Accounts) pace() pace {
	far := s.roundTrip()
	if far < nearEtcd {
		return pace{trips: 1}
	}
	trips := min(2+int(far/nearEtcd), maxTrips)
	return pace{trips: trips, spacing: 2 * far / time.Duration(trips)}
}

// join hands a to the goroutine at work, starts one if there is none, and waits.
// It reports whether ctx ended first: then a is not the caller's any more.
func (s *Accounts) join(ctx context.Context, a *attempt) (left bool) {
	if ctx.Err() != nil {
		return true
	}
	a.line = s.lineOf(a.key)
	if a.line.add(a, s.pace().trips) {
		go s.work(a.line) //nolint:contextcheck // what it sends is not this caller's alone
	}
	select {
	case <-a.answered:
		return false
	case <-ctx.Done():
	}
	select {
	case <-a.answered:
		return false
	default:
		a.line.leave(a)
		return true
	}
}

// lineOf returns where an attempt at an account waits. A replica that is alone has two
// transactions under way, so that etcd need not wait for it; with others that would make
// it lose to itself what it read for the second while they write (etcd.md, section 8).
func (s *Accounts) lineOf(key string) *line {
	if s.Alone == nil || !s.Alone() {
		return &s.lines[0]
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(key)) // never fails
	return &s.lines[h.Sum32()%uint32(len(s.lines))]
}

// work does rounds until nobody waits in l. A round goes on while one caller of it waits,
// and its requests have their own time. Some time after a batch has begun another
// goroutine may begin the next one.
func (s *Accounts) work(l *line) {
	for {
		ctx, stop := context.WithCancel(context.Background())
		t := l.take(stop)
		if t == nil {
			stop()
			return
		}
		p := s.pace()
		next := time.AfterFunc(p.spacing, func() {
			if p.trips > 1 && l.depart(t, p.trips) {
				s.work(l)
			}
		})
		s.round(ctx, t.batch)
		stop()
		next.Stop()
		l.putBack(t, where(t.batch, (*attempt).open))
		for _, a := range t.batch {
			if !a.open() {
				a.answered <- struct{}{} // from here on a is its caller's
			}
		}
	}
}

// add puts a at the end and reports whether the caller is to start a goroutine: none is
// at work, or fewer than trips and none of them has just begun.
func (l *line) add(a *attempt, trips int) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, a)
	start = l.workers == 0 || l.youngest == nil && l.workers < trips
	if start {
		l.workers++
	}
	return start
}

// depart notes that t has begun some time ago, and reports whether the caller is to go to
// work on the next batch.
func (l *line) depart(t *trip, trips int) (start bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.youngest != t {
		return false
	}
	l.youngest = nil
	start = len(l.waiting) > 0 && l.workers < trips
	if start {
		l.workers++
	}
	return start
}

// leave notes that a's caller does not wait any more. What nobody waits for is stopped.
func (l *line) leave(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.left.Store(true)
	if a.trip == nil {
		return
	}
	if a.trip.aboard--; a.trip.aboard == 0 {
		a.trip.stop()
	}
}

// take returns those that travel next, no account twice; nil if nobody waits: then the
// caller's work ends. stop is called when all their callers have left.
func (l *line) take(stop func()) *trip {
	l.mu.Lock()
	defer l.mu.Unlock()
	width := maxBatch - l.short
	var batch []*attempt
	t := &trip{stop: stop}
	keys := make(map[string]bool, min(width, len(l.waiting)))
	rest := l.waiting[:0]
	for i, a := range l.waiting {
		switch {
		case len(batch) == width:
			rest = append(rest, l.waiting[i])
		case a.left.Load():
		case keys[a.key]:
			rest = append(rest, a)
		default:
			keys[a.key], a.trip = true, t
			batch = append(batch, a)
		}
	}
	clear(l.waiting[len(rest):])
	l.waiting = rest
	if len(batch) == 0 {
		l.workers--
		return nil
	}
	t.batch, t.aboard, l.youngest = batch, len(batch), t
	return t
}

// putBack ends a trip. Those that lost go to the front, so that what they have read
// is not old when they travel.
func (l *line) putBack(t *trip, losers []*attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range t.batch {
		a.trip = nil
	}
	if l.youngest == t {
		l.youngest = nil
	}
	l.waiting = slices.Insert(l.waiting, 0, losers...)
}

// narrow halves the batches: etcd has too much to do.
func (l *line) narrow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.short = maxBatch - max(1, (maxBatch-l.short)/2)
}

// widen lets batches grow again, by one account for each that etcd has taken.
func (l *line) widen() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.short = max(0, l.short-1)
}

// where returns the attempts for which is holds.
func where(as []*attempt, is func(*attempt) bool) []*attempt {
	var some []*attempt
	for _, a := range as {
		if is(a) {
			some = append(some, a)
		}
	}
	return some
}
