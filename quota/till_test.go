package quota_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// recorder notes the operations that reach a store, and can slow it down or break
// it.
type recorder struct {
	quota.Store
	mu    sync.Mutex
	ops   []quota.Operation
	at    []time.Time
	delay time.Duration
	fail  error
}

func (r *recorder) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	r.mu.Lock()
	r.ops, r.at = append(r.ops, op), append(r.at, time.Now())
	delay, fail, store := r.delay, r.fail, r.Store
	r.mu.Unlock()
	if delay > 0 {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return quota.Result{}, ctx.Err()
		}
	}
	if fail != nil {
		return quota.Result{}, fail
	}
	return store.Apply(ctx, op)
}

func (r *recorder) use(s quota.Store) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Store = s
}

func (r *recorder) set(delay time.Duration, fail error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay, r.fail = delay, fail
}

func (r *recorder) calls() []quota.Operation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]quota.Operation(nil), r.ops...)
}

func (r *recorder) last() quota.Operation {
	ops := r.calls()
	return ops[len(ops)-1]
}

// A till is one replica in a test: a keeper that runs, and one purse.
type till struct {
	t      *testing.T
	store  *recorder
	memory *storetest.Memory
	keeper *quota.Keeper
	lock   sync.Mutex
	purse  *quota.Purse
	now    func() time.Time
}

func terms(amount int64) *quota.Terms {
	return &quota.Terms{App: "api", Amount: amount, Ceiling: amount, Rule: quota.DefaultLeaseRule(), Version: 1}
}

func key() quota.Key { return quota.Key{Root: "org:a", Tenant: "org:a", Limit: "monthly", Window: "w"} }

// open returns a running till over memory. It ends with the bubble's test.
func open(t *testing.T, memory *storetest.Memory, holder string, tm *quota.Terms) *till {
	t.Helper()
	return openWith(t, memory, holder, tm, time.Now)
}

func openWith(t *testing.T, memory *storetest.Memory, holder string, tm *quota.Terms, now func() time.Time) *till {
	t.Helper()
	r := &till{t: t, memory: memory, store: &recorder{Store: memory}, now: now}
	r.keeper = quota.NewKeeper(quota.KeeperConfig{Store: r.store, Now: now}, holder)
	return r.run(tm)
}

// run runs r's keeper until the test ends and opens r's purse.
func (r *till) run(tm *quota.Terms) *till {
	t := r.t
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = r.keeper.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	r.lock.Lock()
	r.purse = r.keeper.Open(key(), quota.Window{ID: "w"}, tm, &r.lock)
	r.lock.Unlock()
	return r
}

func (r *till) at() quota.Instant { return r.keeper.Instant(r.now()) }

// try charges n units without waiting.
func (r *till) try(n int64) quota.Verdict {
	r.lock.Lock()
	defer r.lock.Unlock()
	v := r.purse.Room(r.at(), n)
	if v == quota.Fits {
		r.purse.Charge(r.at(), n)
	}
	return v
}

// charge charges n units and waits as a request does. It returns how long it
// waited.
func (r *till) charge(n int64) (admitted bool, waited time.Duration) {
	start := time.Now()
	deadline := time.After(r.keeper.Wait())
	for {
		switch r.try(n) {
		case quota.Fits:
			return true, time.Since(start)
		case quota.Spent:
			return false, time.Since(start)
		case quota.Short:
		}
		r.lock.Lock()
		if r.purse.FailingFor(r.at()) > 0 {
			r.purse.Ask(n)
			r.lock.Unlock()
			return false, time.Since(start)
		}
		ready := r.purse.Await(n)
		r.lock.Unlock()
		select {
		case <-ready:
		case <-deadline:
			r.lock.Lock()
			r.purse.GaveUp(r.at(), time.Since(start))
			r.lock.Unlock()
			return false, time.Since(start)
		}
	}
}

func (r *till) mustCharge(n int64) {
	r.t.Helper()
	if ok, _ := r.charge(n); !ok {
		r.t.Fatalf("charge of %d refused; account %+v", n, r.memory.Account(key()))
	}
}
