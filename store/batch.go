package store

import (
	"context"
	"hash/fnv"
	"slices"
	"sync"
)

// maxBatch bounds the accounts of one transaction. More would hardly be faster, and
// a nested transaction may have no more conditions than what is left of the 128
// operations that etcd allows.
const maxBatch = 64

// A line is where attempts wait while others are under way. The first that comes
// to an idle line is sent at once; those that come meanwhile travel together.
type line struct {
	mu      sync.Mutex
	waiting []*attempt // in the order in which they came, losers of the last round first
	busy    bool       // a goroutine is at work
	aboard  int        // callers of the batch at hand that still wait
	stop    func()     // ends the requests of the batch at hand
	short   int        // accounts fewer than maxBatch in a batch, while etcd is overloaded
}

// join hands a to the goroutine at work, starts one if there is none, and waits.
// It tells whether ctx ended first: then a is not the caller's any more.
func (s *Accounts) join(ctx context.Context, a *attempt) (left bool) {
	if ctx.Err() != nil {
		return true
	}
	a.line = s.lineOf(a.key)
	if a.line.add(a) {
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
// and its requests have their own time.
func (s *Accounts) work(l *line) {
	for {
		ctx, stop := context.WithCancel(context.Background())
		batch := l.take(stop)
		if len(batch) > 0 {
			s.round(ctx, batch)
		}
		stop()
		if len(batch) == 0 {
			return
		}
		l.putBack(batch, where(batch, (*attempt).open))
		for _, a := range batch {
			if !a.open() {
				a.answered <- struct{}{} // from here on a is its caller's
			}
		}
	}
}

// add puts a at the end and tells whether nobody is at work.
func (l *line) add(a *attempt) (idle bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, a)
	idle = !l.busy
	l.busy = true
	return idle
}

// leave notes that a's caller does not wait any more. What nobody waits for is stopped.
func (l *line) leave(a *attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a.left.Store(true)
	if !a.aboard {
		return
	}
	if l.aboard--; l.aboard == 0 {
		l.stop()
	}
}

// take returns those that travel next, no account twice. None: the line is idle. stop
// is called when all their callers have left.
func (l *line) take(stop func()) []*attempt {
	l.mu.Lock()
	defer l.mu.Unlock()
	width := maxBatch - l.short
	var batch []*attempt
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
			keys[a.key], a.aboard = true, true
			batch = append(batch, a)
		}
	}
	clear(l.waiting[len(rest):])
	l.waiting = rest
	l.busy, l.aboard, l.stop = len(batch) > 0, len(batch), stop
	return batch
}

// putBack ends a batch. Those that lost go to the front, so that what they have read
// is not old when they travel.
func (l *line) putBack(batch, losers []*attempt) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, a := range batch {
		a.aboard = false
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
