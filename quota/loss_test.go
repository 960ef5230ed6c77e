package quota_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// set makes r's purse follow terms.
func (r *till) set(tm *quota.Terms) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.purse.SetTerms(r.at(), tm)
}

func (r *till) refund(n, uncovered int64) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.purse.Refund(r.at(), n, uncovered)
}

// charged charges n units whatever there is, as a route that is never refused does.
func (r *till) charged(n int64) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.purse.Charge(r.at(), n)
}

func guarded(amount, revision int64) *quota.Terms {
	tm := terms(amount)
	tm.Guards = []quota.Guard{{Kind: "Plan", Name: "free", Revision: revision}}
	return tm
}

func settled(t *testing.T, m *storetest.Memory, used int64) {
	t.Helper()
	if a := m.Account(key()); a.Used() != used || a.Leased() != 0 {
		t.Errorf("the account says used %d, leased %d; want %d and 0", a.Used(), a.Leased(), used)
	}
}

// New terms that arrive while an operation under the old ones is on its way are not
// made stale by its answer.
func TestKeeper_A53_TermsThatOvertakeTheirOperationAreNotStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		m.SetGuard(quota.Guard{Kind: "Plan", Name: "free", Revision: 8})
		r := open(t, m, "a", guarded(1000, 7))
		r.store.set(50*time.Millisecond, nil)
		time.AfterFunc(20*time.Millisecond, func() { r.set(guarded(1000, 8)) })
		if ok, waited := r.charge(1); !ok {
			t.Fatalf("refused after %v though the terms are new", waited)
		}
	})
}

// An operation that was applied, whose answer was lost, and whose holder was folded
// away before it could be repeated, is not counted again under the next incarnation.
func TestKeeper_A45_AFoldedHolderIsNotCountedTwice(t *testing.T) {
	t.Parallel()
	for _, told := range []bool{false, true} { // by the store, or by the watch before that
		t.Run(fmt.Sprint("told by the watch ", told), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &storetest.Memory{}
				r := open(t, m, "a1", terms(1000))
				r.mustCharge(6)
				r.store.use(storetest.LostReply(m, 1))
				r.mustCharge(1) // 70 %: a renewal, which is applied and whose reply is lost
				time.Sleep(100 * time.Millisecond)
				link := storetest.Partition(m)
				link.Cut()
				r.store.use(link)
				time.Sleep(31 * time.Minute)
				m.SetLiable("a1", false)
				other := open(t, m, "b", terms(1000))
				other.mustCharge(1) // folds a1 with its 7
				if told {
					r.keeper.SetHolder("a2")
				}
				link.Heal()
				time.Sleep(10 * time.Second)
				r.keeper.SetHolder("a2")
				time.Sleep(10 * time.Second)
				r.mustCharge(2)
				time.Sleep(3 * time.Minute)
				synctest.Wait()
				settled(t, m, 10)
			})
		})
	}
}

// What a holder reports after it was folded away counts once, under its next
// incarnation.
func TestKeeper_A48_AReportOfAGoneHolderGoesOnUnderTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(3)
		tm.Ceiling, tm.Counts = quota.MaxUnits, true
		r := open(t, m, "a1", tm)
		r.mustCharge(5)
		time.Sleep(time.Minute)
		m.SetLiable("a1", false)
		open(t, m, "b", terms(1000)).mustCharge(1)
		r.mustCharge(4)
		time.Sleep(2 * time.Minute) // the report is ErrGone
		if a := m.Account(key()); a.Used()+a.Leased() > 16 {
			t.Errorf("a folded holder is counted again: %+v", a)
		}
		r.keeper.SetHolder("a2")
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		settled(t, m, 10)
	})
}

func TestKeeper_ALostIncarnationDoesNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		var told atomic.Int64
		r := &till{t: t, memory: m, store: &recorder{Store: m}, now: time.Now}
		k := quota.NewKeeper(quota.KeeperConfig{Store: r.store, Now: time.Now, Gone: func(string) { told.Add(1) }}, "a1")
		r.keeper = k
		r.run(terms(1000))
		r.mustCharge(5)
		m.SetLiable("a1", false)
		r.lock.Lock()
		r.purse.Close()
		r.lock.Unlock()
		time.Sleep(20 * time.Second)
		if n := len(r.store.calls()); n > 25 || told.Load() == 0 || told.Load() > 25 {
			t.Fatalf("%d operations and %d calls of Gone in 20 s, want about one a second", n, told.Load())
		}
		r.lock.Lock()
		r.purse = k.Open(key(), quota.Window{ID: "w"}, terms(1000), &r.lock)
		r.lock.Unlock()
		vain := 0
		for range 2000 { // 4 s: nobody waits again once one has waited in vain
			if ok, waited := r.charge(1); ok {
				t.Fatal("a lease without being liable")
			} else if waited > 0 {
				vain++
			}
			time.Sleep(2 * time.Millisecond)
		}
		if vain > 1 {
			t.Errorf("%d requests waited, want one", vain)
		}
		m.SetLiable("a1", true) // the key is there after all: the same holder goes on
		k.SetHolder("a1")
		time.Sleep(6 * time.Second)
		r.mustCharge(1)
	})
}

// One account that the store refuses is nobody else's outage.
func TestKeeper_A56_OneRefusedAccountIsNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(5)
		r.store.set(0, fmt.Errorf("no space: %w", quota.ErrNotApplied))
		if ok, waited := r.charge(8); ok || waited != 0 {
			t.Fatalf("admitted %v after %v, want the answer at once", ok, waited)
		}
		if r.keeper.Away(r.at()) {
			t.Error("a refused operation of one account makes the store count as failing for all")
		}
		before := len(r.store.calls())
		for range 10_000 {
			if ok, waited := r.charge(8); ok || waited != 0 {
				t.Fatalf("admitted %v after %v", ok, waited)
			}
			time.Sleep(time.Millisecond)
		}
		if n := len(r.store.calls()) - before; n > 12 {
			t.Errorf("%d operations in 10 s, want about one a second", n)
		}
		r.store.set(0, nil)
		time.Sleep(time.Minute) // what was used is reported though nobody asks
		synctest.Wait()
		if used := r.memory.Account(key()).Used(); used != 5 {
			t.Errorf("reported %d, want 5", used)
		}
	})
}

// What was used is reported in time though the operation that carried it was
// refused and nobody charges again (A47).
func TestKeeper_A47_UseIsReportedThoughTermsAreStale(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		m.SetGuard(quota.Guard{Kind: "Plan", Name: "free", Revision: 7})
		r := open(t, m, "a", guarded(1000, 7))
		r.mustCharge(4)
		m.SetGuard(quota.Guard{Kind: "Plan", Name: "free", Revision: 8})
		time.Sleep(time.Minute)
		synctest.Wait()
		if used := m.Account(key()).Used(); used != 4 {
			t.Errorf("reported %d within a minute, want 4", used)
		}
	})
}

// A metered route that is never refused goes on being charged when nothing is left.
// The store hears of it in reports, not with each request.
func TestKeeper_ChargesPastTheQuotaDoNotHammerTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(10))
		r.mustCharge(10)
		for range 10_000 {
			r.charged(1)
			time.Sleep(time.Millisecond)
		}
		if n := len(r.store.calls()); n > 12 {
			t.Errorf("%d operations in 10 s, want a few", n)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		settled(t, r.memory, 10_010)
	})
}

func TestPurse_RefundAfterCloseIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(5)
		r.lock.Lock()
		r.purse.Close()
		r.lock.Unlock()
		time.Sleep(200 * time.Millisecond)
		r.refund(2, 0) // an answer that nobody heard
		time.Sleep(10 * time.Second)
		synctest.Wait()
		settled(t, r.memory, 3)
		if n := r.keeper.Stats().Purses; n != 0 {
			t.Errorf("%d purses open, want a closed one to go in the end", n)
		}
	})
}

// A request that waits goes before what is renewed behind the requests' back.
func TestKeeper_A19_WhoWaitsGoesFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.store.set(10*time.Millisecond, nil)
		tm := terms(3)
		tm.Counts, tm.Ceiling = true, quota.MaxUnits
		for i := range 4000 { // 0.6 s of reports
			r.lock.Lock()
			k := key()
			k.Limit = fmt.Sprint(i)
			r.keeper.Open(k, quota.Window{ID: "w"}, tm, &r.lock).Charge(r.at(), 1)
			r.lock.Unlock()
		}
		time.Sleep(100 * time.Millisecond)
		if ok, waited := r.charge(1); !ok || waited > 30*time.Millisecond {
			t.Errorf("admitted %v after %v behind 4,000 reports", ok, waited)
		}
	})
}

func TestPurse_HugeUseDoesNotOverflow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(3)
		tm.Ceiling, tm.Counts = quota.MaxUnits, true
		r := open(t, &storetest.Memory{}, "a", tm)
		for range 10_000 { // past 2^63
			r.charged(quota.MaxUnits)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if used := r.memory.Account(key()).Used(); used < quota.MaxUnits {
			t.Errorf("used %d, want it to stay at the largest amount or above", used)
		}
		r.set(terms(1000)) // the demand of these seconds must not overflow either
		if ok, _ := r.charge(1); ok {
			t.Error("admitted past the quota")
		}
	})
}

// An operation under way when terms change twice and come back is settled.
func TestPurse_TermsThatChangeAndComeBackLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(6)
		r.store.set(50*time.Millisecond, nil)
		r.mustCharge(1) // the renewal is on its way
		time.Sleep(10 * time.Millisecond)
		r.set(terms(500))
		r.set(terms(1000))
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		settled(t, r.memory, 7)
	})
}

func TestKeeper_SettleEndsWhenTheIncarnationIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		k := quota.NewKeeper(quota.KeeperConfig{Store: m, Now: time.Now}, "a1")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		r := &till{t: t, memory: m, store: &recorder{Store: m}, now: time.Now, keeper: k}
		r.lock.Lock()
		r.purse = k.Open(key(), quota.Window{ID: "w"}, terms(1000), &r.lock)
		r.lock.Unlock()
		r.mustCharge(3)
		cancel()
		<-done
		m.SetLiable("a1", false)
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := k.Settle(ctx); !errors.Is(err, quota.ErrGone) && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("settled without being liable: %v", err)
		}
		k.SetHolder("a2")
		if err := k.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		settled(t, m, 3)
	})
}

// A clock that reads earlier than when the keeper was made is no reason to crash.
func TestPurse_C039_AClockThatGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(1)
		early := r.keeper.Instant(time.Now().Add(-time.Hour))
		r.lock.Lock()
		r.purse.Charge(early, 1)
		r.purse.Refund(early, 1, 0)
		r.lock.Unlock()
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		settled(t, r.memory, 1)
	})
}

// A lease that was asked for under one incarnation is not spent under the next.
func TestKeeper_C101_ALeaseOfTheLastIncarnationIsNotSpent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a1", terms(1000))
		r.store.set(50*time.Millisecond, nil)
		time.AfterFunc(20*time.Millisecond, func() { r.keeper.SetHolder("a2") })
		if ok, waited := r.charge(1); !ok || waited != 100*time.Millisecond {
			t.Fatalf("admitted %v after %v, want a lease of the new incarnation after 100ms", ok, waited)
		}
	})
}

// A refusal is not written. The purse counts it all the same, and the next purse of
// the account goes on from what is written.
func TestKeeper_RefusalsThatAreNotWrittenLeaveTheSequenceRight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		other := open(t, m, "b", terms(20))
		other.mustCharge(18)
		r := open(t, m, "a", terms(20))
		r.mustCharge(1)
		for range 3 {
			time.Sleep(11 * time.Second)
			if ok, _ := r.charge(7); ok {
				t.Fatal("admitted past the quota")
			}
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		r.lock.Lock()
		if !r.keeper.Forget(r.purse) {
			t.Fatal("not settled")
		}
		r.purse = r.keeper.Open(key(), quota.Window{ID: "w"}, terms(20), &r.lock)
		r.lock.Unlock()
		r.mustCharge(1)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		settled(t, m, 20)
	})
}
