package quota_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

func TestKeeper_A19_A21_FirstRequestWaitsForTenUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.store.set(40*time.Millisecond, nil)
		ok, waited := r.charge(1)
		if !ok || waited != 40*time.Millisecond {
			t.Fatalf("admitted %v after %v, want true after 40ms", ok, waited)
		}
		if op := r.store.last(); op.Want != 10 || op.Min != 1 {
			t.Fatalf("asked for %d (at least %d), want 10 (at least 1)", op.Want, op.Min)
		}
		if ok, waited := r.charge(1); !ok || waited != 0 {
			t.Fatalf("second request: admitted %v after %v, want at once", ok, waited)
		}
	})
}

func TestKeeper_A21_FirstLeaseIsOneReservationIfLarger(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(25)
		if op := r.store.calls()[0]; op.Want != 25 || op.Min != 25 {
			t.Fatalf("asked for %d (at least %d), want 25 (at least 25)", op.Want, op.Min)
		}
	})
}

func TestKeeper_A22_A23_LeaseGrowsWithDemandUpToATenth(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(10_000))
		largest := int64(0)
		for range 3000 {
			r.mustCharge(1)
			time.Sleep(5 * time.Millisecond) // 200 a second
		}
		for _, op := range r.store.calls() {
			held := op.Want
			for _, l := range op.Hold {
				held += l.Units
			}
			largest = max(largest, held)
		}
		if largest != 1000 {
			t.Errorf("the largest share asked for was %d, want a tenth: 1000", largest)
		}
	})
}

func TestKeeper_A28_A30_RenewsAtSeventyPercentBehindTheRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(1)
		for range 5 {
			r.mustCharge(1)
		}
		synctest.Wait()
		if n := len(r.store.calls()); n != 1 {
			t.Fatalf("%d operations at 60 %% used, want 1", n)
		}
		r.mustCharge(1)
		synctest.Wait()
		ops := r.store.calls()
		if len(ops) != 2 {
			t.Fatalf("%d operations at 70 %% used, want 2", len(ops))
		}
		if op := ops[1]; op.Used != 7 || op.Want == 0 || len(op.Hold) != 1 || op.Hold[0].Units != 3 {
			t.Fatalf("renewal %+v, want use 7, what is left (3) held, and a new lease", op)
		}
		if _, waited := r.charge(3); waited != 0 {
			t.Fatalf("a busy tenant waited %v for a renewal", waited)
		}
	})
}

func TestKeeper_A29_A31_RenewsAtFortyFiveSecondsAndNeverSpendsAfterSixty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(1)
		time.Sleep(44 * time.Second)
		synctest.Wait()
		if n := len(r.store.calls()); n != 1 {
			t.Fatalf("%d operations before 45 s, want 1", n)
		}
		r.store.set(0, errors.New("lost"))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(r.store.calls()); n < 2 {
			t.Fatalf("no renewal at 45 s")
		}
		if v := r.try(1); v != quota.Fits {
			t.Fatalf("verdict %v at 46 s while the store fails, want the lease to go on", v)
		}
		time.Sleep(14 * time.Second) // 60 s after the lease was asked for
		if v := r.try(1); v == quota.Fits {
			t.Fatal("a lease of 60 s was spent from")
		}
	})
}

func TestKeeper_A32_IdlePurseIsClosedAndItsUnitsReturn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(4)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		a := r.memory.Account(key())
		if a.Used() != 4 || a.Leased() != 0 {
			t.Fatalf("used %d, leased %d after idling, want 4 and 0", a.Used(), a.Leased())
		}
		n := len(r.store.calls())
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if more := len(r.store.calls()) - n; more != 0 {
			t.Fatalf("%d operations of an idle purse, want none", more)
		}
	})
}

func TestKeeper_A35_NothingLeftIsRememberedForTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		other := open(t, m, "b", terms(10))
		r := open(t, m, "a", terms(10))
		other.mustCharge(10)
		if ok, _ := r.charge(1); ok {
			t.Fatal("admitted past the quota")
		}
		asked := len(r.store.calls())
		time.Sleep(9 * time.Second)
		if ok, waited := r.charge(1); ok || waited != 0 || len(r.store.calls()) != asked {
			t.Fatal("asked again within 10 s")
		}
		other.lock.Lock()
		other.purse.Refund(other.at(), 5, 0)
		other.purse.Close() // the units return
		other.lock.Unlock()
		time.Sleep(time.Second)
		if ok, _ := r.charge(1); !ok {
			t.Fatal("not asked again after 10 s")
		}
	})
}

func TestKeeper_A35_NewTermsClearTheMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(5))
		r.mustCharge(5)
		if ok, _ := r.charge(1); ok {
			t.Fatal("admitted past the quota")
		}
		raised := terms(250)
		raised.Version = 2
		r.lock.Lock()
		r.purse.SetTerms(r.at(), raised)
		r.lock.Unlock()
		r.mustCharge(1) // C017
		r.lock.Lock()
		left := r.purse.Left(r.at())
		r.lock.Unlock()
		if left != 244 {
			t.Fatalf("left %d after the raise, want 244", left)
		}
	})
}

func TestKeeper_A56_A61_C120_SilentStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.store.set(time.Hour, nil)
		if ok, waited := r.charge(1); ok || waited != 300*time.Millisecond {
			t.Fatalf("admitted %v after %v, want refused after 300ms", ok, waited)
		}
		before := len(r.store.calls())
		for range 20_000 { // 1,000 a second for 20 s
			if ok, waited := r.charge(1); ok || waited != 0 {
				t.Fatalf("a request waited %v while the store counts as failing", waited)
			}
			time.Sleep(time.Millisecond)
		}
		if calls := len(r.store.calls()) - before; calls > 21 {
			t.Fatalf("%d calls of a dead store in 20 s, want about one a second", calls)
		}
		r.store.set(0, nil)
		time.Sleep(5 * time.Second)
		r.mustCharge(1)
	})
}

func TestKeeper_C114_OneOperationForAllThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		open(t, m, "b", terms(100)).mustCharge(100)
		r := open(t, m, "a", terms(100))
		r.store.set(250*time.Millisecond, nil)
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if ok, waited := r.charge(1); ok || waited > 300*time.Millisecond {
					t.Errorf("admitted %v after %v", ok, waited)
				}
			})
		}
		all.Wait()
		if n := len(r.store.calls()); n != 1 {
			t.Fatalf("%d operations for 1,000 requests, want 1", n)
		}
	})
}

func TestKeeper_C040_SuspendedReplicaSpendsNoOldLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var asleep atomic.Int64 // the wall clock has moved, the monotonic one has not
		wallOnly := func() time.Time { return time.Now().Round(0).Add(time.Duration(asleep.Load())) }
		r := openWith(t, &storetest.Memory{}, "a", terms(1000), wallOnly)
		r.mustCharge(1)
		r.store.set(0, errors.New("away"))
		asleep.Store(int64(70 * time.Minute))
		if v := r.try(1); v == quota.Fits {
			t.Fatal("a lease older than 60 s by the wall clock was spent from")
		}
	})
}

func TestKeeper_LostReplies_CountOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(100_000))
		r.store.use(storetest.LostReply(r.memory, 3))
		used := int64(0)
		for range 2000 {
			if ok, _ := r.charge(1); ok {
				used++
			}
			time.Sleep(20 * time.Millisecond)
		}
		r.store.use(r.memory)
		r.lock.Lock()
		r.purse.Close()
		r.lock.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if a := r.memory.Account(key()); a.Used() != used || a.Leased() != 0 {
			t.Fatalf("account has used %d, leased %d; %d were admitted", a.Used(), a.Leased(), used)
		}
	})
}

func TestKeeper_StaleTermsAreReportedButGetNoLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		guard := quota.Guard{Kind: "Plan", Name: "free", Revision: 7}
		m.SetGuard(guard)
		tm := terms(1000)
		tm.Guards = []quota.Guard{guard}
		r := open(t, m, "a", tm)
		r.mustCharge(6)
		m.SetGuard(quota.Guard{Kind: "Plan", Name: "free", Revision: 8})
		if ok, waited := r.charge(8); ok || waited != 300*time.Millisecond {
			t.Fatalf("a lease under old terms: admitted %v after %v", ok, waited)
		}
		if a := m.Account(key()); a.Used() != 6 {
			t.Fatalf("reported %d under old terms, want 6", a.Used())
		}
		if n := len(r.store.calls()); n > 20 {
			t.Fatalf("%d operations while the terms were old, want a few", n)
		}
		fresh := terms(1000)
		fresh.Guards = []quota.Guard{{Kind: "Plan", Name: "free", Revision: 8}}
		r.lock.Lock()
		r.purse.SetTerms(r.at(), fresh)
		r.lock.Unlock()
		r.mustCharge(8)
	})
}

func TestKeeper_LostIncarnationGoesOnUnderANewOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a1", terms(1000))
		r.mustCharge(5)
		m.SetLiable("a1", false)
		open(t, m, "b", terms(1000)).mustCharge(1) // folds a1: 5 were never reported
		r.keeper.SetHolder("a2")
		r.mustCharge(1)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		a := m.Account(key())
		if a.Used() != 7 {
			t.Fatalf("used %d, want 7: nothing lost, nothing twice", a.Used())
		}
	})
}

func TestKeeper_SettleGivesEverythingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		k := quota.NewKeeper(quota.KeeperConfig{Store: m, Now: time.Now}, "a")
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		var lock sync.Mutex
		lock.Lock()
		p := k.Open(key(), quota.Window{ID: "w"}, terms(1000), &lock)
		ready := p.Await(3)
		lock.Unlock()
		<-ready
		lock.Lock()
		p.Charge(k.Instant(time.Now()), 3)
		lock.Unlock()
		cancel()
		<-done
		if err := k.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
		if a := m.Account(key()); a.Used() != 3 || a.Leased() != 0 {
			t.Fatalf("used %d, leased %d after settling, want 3 and 0", a.Used(), a.Leased())
		}
	})
}

func TestKeeper_ForgottenPurseGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(5)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		r.lock.Lock()
		if !r.keeper.Forget(r.purse) {
			t.Fatal("a settled purse could not be forgotten")
		}
		r.purse = r.keeper.Open(key(), quota.Window{ID: "w"}, terms(1000), &r.lock)
		r.lock.Unlock()
		r.mustCharge(2)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if a := r.memory.Account(key()); a.Used() != 7 {
			t.Fatalf("used %d, want 7", a.Used())
		}
	})
}

func TestPurse_A5_CountsNeverRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(3)
		tm.Ceiling, tm.Counts = quota.MaxUnits, true
		r := open(t, &storetest.Memory{}, "a", tm)
		r.store.set(0, errors.New("away"))
		for range 10 {
			if ok, waited := r.charge(1); !ok || waited != 0 {
				t.Fatalf("admitted %v after %v, want at once", ok, waited)
			}
		}
		r.store.set(0, nil)
		time.Sleep(time.Minute)
		synctest.Wait()
		if a := r.memory.Account(key()); a.Used() != 10 || a.Leased() != 0 {
			t.Fatalf("used %d, leased %d, want 10 and 0", a.Used(), a.Leased())
		}
	})
}

func TestPurse_C045_ExactlyTheLimit(t *testing.T) {
	t.Parallel()
	for _, amount := range []int64{1, 2, 10, 137} {
		synctest.Test(t, func(t *testing.T) {
			r := open(t, &storetest.Memory{}, "a", terms(amount))
			for i := range amount {
				if ok, _ := r.charge(1); !ok {
					t.Fatalf("unit %d of %d refused", i+1, amount)
				}
			}
			if ok, _ := r.charge(1); ok {
				t.Fatalf("one more than %d admitted", amount)
			}
		})
		synctest.Test(t, func(t *testing.T) {
			r := open(t, &storetest.Memory{}, "a", terms(amount))
			if ok, _ := r.charge(amount); !ok {
				t.Fatalf("%d in one go refused", amount)
			}
		})
	}
}

func TestPurse_C090_RefundNeverMintsUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(20))
		r.mustCharge(10)
		r.lock.Lock()
		r.purse.Refund(r.at(), 10, 0)
		r.lock.Unlock()
		r.lock.Lock()
		uncovered := r.purse.Charge(r.at(), 30) // charged whatever there is
		r.purse.Refund(r.at(), 30, uncovered)
		r.lock.Unlock()
		for range 20 {
			r.mustCharge(1)
		}
		if ok, _ := r.charge(1); ok {
			t.Fatal("a refund minted units")
		}
	})
}

// A renewal that gives an emptied lease up must not be undone by a refund that
// comes while it is under way: the store counts the lease as closed.
func TestPurse_RefundDuringARenewalMintsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "b", terms(15))
		r.mustCharge(5)
		r.lock.Lock()
		r.purse.Refund(r.at(), 3, 0)
		r.lock.Unlock()
		r.store.set(100*time.Millisecond, nil)
		time.Sleep(45*time.Second + 50*time.Millisecond) // the renewal is under way
		if op := r.store.last(); op.Want == 0 {
			t.Fatalf("no renewal at 45 s but %+v", op)
		}
		r.lock.Lock()
		r.purse.Refund(r.at(), 2, 0)
		r.lock.Unlock()
		r.store.set(0, nil)
		time.Sleep(10 * time.Second)
		total := int64(0)
		for _, spender := range []*till{open(t, m, "c", terms(15)), r} {
			for range 40 {
				if ok, _ := spender.charge(1); ok {
					total++
				}
			}
		}
		if total > 15 {
			t.Fatalf("%d of 15 spent", total)
		}
	})
}
