package quota

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// RecoveryConfig is what a Recovery is made of.
type RecoveryConfig struct {
	Store Store
	// Now reads the wall clock.
	Now func() time.Time
	// Parallel is how many orphans are recovered at once, so that the store can
	// batch them: 64 unless set.
	Parallel int
	// SameAccount is as in [KeeperConfig].
	SameAccount func(a, b Key) bool
	// Settled is called once, by Run, when all orphans are settled, with their
	// holders: the journal need not remember them any more, and nobody need wait
	// until their keys run out. May be nil.
	Settled func(holders []string)
}

// How a recovery meets a store that does not answer: each try has a second, and so
// has the pause between two, in the end.
const (
	recoverWait       = time.Second
	firstRecoverPause = 50 * time.Millisecond
	lastRecoverPause  = time.Second
)

// A Recovery brings to an end what killed processes left, see [Recover]. Its methods
// are safe for concurrent use.
type Recovery struct {
	cfg     RecoveryConfig
	holders []string

	mu       sync.Mutex
	queue    []*Orphan // not settled, and not being tried; those that failed last
	untried  int       // of queue, in this pass
	failures int       // in this pass since something was settled
	stats    RecoveryStats
}

// RecoveryStats are counts since the recovery began.
type RecoveryStats struct {
	Recovered

	Left    int // orphans that are not settled yet
	Settled int
	Failed  int64 // tries
	Err     error // of the last try; nil: it settled an orphan
}

// NewRecovery returns the recovery of orphans. It starts nothing. Should two be of one
// account and holder, the one that was used last counts.
func NewRecovery(cfg RecoveryConfig, orphans []Orphan) *Recovery {
	if cfg.Parallel <= 0 {
		cfg.Parallel = 64
	}
	type purse struct {
		Key
		holder string
	}
	of := map[purse][]int{} // in the queue; of accounts in several trees
	holders := map[string]bool{}
	r := &Recovery{cfg: cfg}
	for _, o := range orphans {
		holders[o.Holder] = true
		one := purse{o.Key.account(), o.Holder}
		i := slices.IndexFunc(of[one], func(i int) bool { return cfg.same(r.queue[i].Key, o.Key) })
		if i < 0 {
			of[one] = append(of[one], len(r.queue))
			r.queue = append(r.queue, &o)
			continue
		}
		if at := of[one][i]; r.queue[at].Wall < o.Wall {
			r.queue[at] = &o
		}
	}
	r.holders = slices.Sorted(maps.Keys(holders))
	r.stats.Left = len(r.queue)
	return r
}

// same reports whether two keys without their roots alike name one account.
func (c *RecoveryConfig) same(a, b Key) bool {
	return a.Root == b.Root || c.SameAccount == nil || c.SameAccount(a, b)
}

// Run recovers all orphans and tries again for as long as it takes, or until ctx is
// done. While the store does not answer it tries one orphan a second. It is called
// once.
func (r *Recovery) Run(ctx context.Context) error {
	parallel := r.cfg.Parallel
	for wait := firstRecoverPause; ; wait = min(2*wait, lastRecoverPause) {
		settled := r.pass(ctx, parallel)
		left := r.Stats().Left
		if left == 0 {
			r.forget()
			break
		}
		if parallel = 1; settled {
			parallel, wait = r.cfg.Parallel, firstRecoverPause
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return fmt.Errorf("recover what killed processes had used: %d accounts are left to the next start: %w", left, ctx.Err())
		}
	}
	if r.cfg.Settled != nil {
		r.cfg.Settled(r.holders)
	}
	return nil
}

// forget gives back the memory of the queue, which is empty.
func (r *Recovery) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = nil
}

// pass tries each orphan once, so many in parallel, but ends when as many tries have
// failed and none has not. It reports whether an orphan was settled.
func (r *Recovery) pass(ctx context.Context, parallel int) bool {
	before := r.Stats().Settled
	r.mu.Lock()
	r.untried, r.failures = len(r.queue), 0
	r.mu.Unlock()
	var workers sync.WaitGroup
	for range min(parallel, r.untried) {
		workers.Go(func() {
			for o := r.next(ctx, parallel); o != nil; o = r.next(ctx, parallel) {
				r.try(ctx, o)
			}
		})
	}
	workers.Wait()
	return r.Stats().Settled > before
}

// next takes an orphan from the queue; nil ends the pass.
func (r *Recovery) next(ctx context.Context, parallel int) *Orphan {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.untried == 0 || r.failures >= parallel || ctx.Err() != nil {
		return nil
	}
	r.untried--
	o := r.queue[0]
	r.queue[0] = nil // what is settled is let go of
	r.queue = r.queue[1:]
	return o
}

func (r *Recovery) try(ctx context.Context, o *Orphan) {
	ctx, cancel := context.WithTimeout(ctx, recoverWait)
	defer cancel()
	got, err := Recover(ctx, r.cfg.Store, o, r.cfg.Now().UnixNano())
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stats.Err = err
	if err != nil {
		r.stats.Failed++
		r.failures++
		r.queue = append(r.queue, o)
		return
	}
	r.failures = 0
	r.stats.Settled++
	r.stats.Left--
	r.stats.Reported += got.Reported
	r.stats.Lost += got.Lost
	r.stats.Dropped += got.Dropped
}

// Stats returns the counts.
func (r *Recovery) Stats() RecoveryStats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stats
}
