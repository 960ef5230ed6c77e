package quota_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A request after an outage waits for a recall as every other does.
func TestRecall_Q38_AfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		idle := talk(t, m, boards, "idle", terms(10))
		r := talk(t, m, boards, "a", terms(10))
		r.store.set(0, fmt.Errorf("away"))
		r.charge(1)
		idle.lock.Lock()
		idle.purse.Await(10)
		idle.lock.Unlock()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		r.store.set(0, nil)
		time.Sleep(7 * time.Second)
		if ok, _ := r.charge(1); !ok {
			t.Error("refused though 9 units lie idle elsewhere")
		}
	})
}

// Nor what a crowd waited for that was refused.
func TestKeeper_Q45_OnlyWhatIsWaitedForAfterARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(100)
		tm.ExactBelow = 100
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		other, r := talk(t, m, boards, "b", tm), talk(t, m, boards, "a", tm)
		other.mustCharge(100)
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() { r.charge(3) })
		}
		all.Wait()
		time.Sleep(time.Second)
		other.lock.Lock()
		other.purse.Refund(other.at(), 95, 0)
		other.purse.Close()
		other.lock.Unlock()
		time.Sleep(10 * time.Second)
		r.mustCharge(1)
		if n := m.Account(key()).Leased(); n > 1 {
			t.Errorf("%d units are lent for a request of 1", n)
		}
	})
}

// A limit with little patience does not make the store count as failing for all others.
func TestKeeper_C21_LittlePatienceIsNoOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1000)
		tm.Wait = 20 * time.Millisecond
		r := open(t, &storetest.Memory{}, "a", tm)
		r.store.set(60*time.Millisecond, nil)
		r.lock.Lock()
		r.purse.Await(1)
		r.lock.Unlock()
		time.Sleep(20 * time.Millisecond)
		r.lock.Lock()
		defer r.lock.Unlock()
		r.purse.GaveUp(r.at(), 20*time.Millisecond)
		if r.purse.FailingFor(r.at()) == 0 {
			t.Error("the limit itself waits again at once")
		}
		if r.keeper.Away(r.at()) {
			t.Error("the store counts as failing after 20ms of one limit")
		}
	})
}

// New terms wake the requests that wait for a recall.
func TestRecall_A35_NewTermsEndIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, time.Minute)
		talk(t, m, boards, "idle", terms(10)).mustCharge(1)
		r := talk(t, m, boards, "a", terms(10))
		r.lock.Lock()
		ready := r.purse.Await(10)
		r.lock.Unlock()
		time.Sleep(10 * time.Millisecond)
		r.lock.Lock()
		r.purse.SetTerms(r.at(), terms(100))
		r.lock.Unlock()
		synctest.Wait()
		select {
		case <-ready:
		default:
			t.Error("still waits, though the amount was raised")
		}
	})
}

// While the terms are old a lease of age is not looked at again and again.
func TestKeeper_A29_OldTermsDoNotSpin(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(1000)
		tm.Guards = []quota.Guard{{Kind: "Plan", Name: "free", Revision: 1}}
		m.SetGuard(tm.Guards[0])
		var looks int
		var mu sync.Mutex
		r := openWith(t, m, "a", tm, func() time.Time { mu.Lock(); looks++; mu.Unlock(); return time.Now() })
		r.mustCharge(1)
		m.SetGuard(quota.Guard{Kind: "Plan", Name: "free", Revision: 2})
		time.Sleep(5 * time.Second)
		r.mustCharge(7) // to be renewed: its terms are old
		time.Sleep(35 * time.Second)
		mu.Lock()
		looks = 0
		mu.Unlock()
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if looks > 100 {
			t.Errorf("the clock was read %d times in a minute in which nothing happens", looks)
		}
	})
}

// An account is followed no longer than its refusal is of interest, whatever else was
// planned for its purse.
func TestRecall_A35_FollowingEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		b := &followed{}
		r := &till{t: t, memory: m, store: &recorder{Store: m}, now: time.Now}
		r.keeper = quota.NewKeeper(quota.KeeperConfig{Store: r.store, Now: time.Now, Board: b}, "a")
		r.run(terms(100))
		r.mustCharge(1) // of 10; the next look is in 45 s
		open(t, m, "b", terms(100)).mustCharge(90)
		time.Sleep(38 * time.Second)
		r.mustCharge(9) // there is no more
		time.Sleep(5 * time.Minute)
		if n := b.now.Load(); n != 0 {
			t.Errorf("%d accounts are followed 5 min after the last request", n)
		}
	})
}

// followed is a board that nobody hears.
type followed struct{ now atomic.Int64 }

func (f *followed) Recall(context.Context, quota.Key) error { return nil }
func (f *followed) Follow(quota.Key)                        { f.now.Add(1) }
func (f *followed) Unfollow(quota.Key)                      { f.now.Add(-1) }

// While the store takes this incarnation for gone nobody waits for it, though it answers
// that each second.
func TestKeeper_A61_LostIncarnationIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a", terms(1000))
		m.SetLiable("a", false)
		if ok, _ := r.charge(1); ok {
			t.Fatal("admitted without a lease")
		}
		for range 4 {
			time.Sleep(time.Second)
			if !r.keeper.Away(r.at()) {
				t.Fatal("requests of other tenants wait for an incarnation that is gone")
			}
		}
		r.keeper.SetHolder("a2")
		time.Sleep(5 * time.Second)
		r.mustCharge(1)
	})
}

// A purse that requests wait for goes before reports and renewals, also if they came
// while an operation of it was under way.
func TestKeeper_A19_WaitersOfABusyPurseGoFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := &till{t: t, memory: m, store: &recorder{Store: m}, now: time.Now}
		r.keeper = quota.NewKeeper(quota.KeeperConfig{Store: r.store, Now: time.Now, Parallel: 1}, "a")
		r.run(terms(1000))
		r.mustCharge(1)
		time.Sleep(3 * time.Minute)
		r.lock.Lock()
		if !r.keeper.Forget(r.purse) {
			t.Fatal("not settled")
		}
		r.purse = r.keeper.Open(key(), quota.Window{ID: "w"}, terms(1000), &r.lock)
		r.lock.Unlock()
		r.store.set(20*time.Millisecond, nil)
		var others sync.Mutex
		others.Lock()
		for i := range 100 {
			k := key()
			k.Limit = fmt.Sprint("l", i)
			r.keeper.Open(k, quota.Window{ID: "w"}, terms(1000), &others).Ask(1)
		}
		others.Unlock()
		time.Sleep(time.Millisecond)
		// One operation is under way; then the purse's question what the account knows.
		if ok, waited := r.charge(200); !ok || waited > 60*time.Millisecond {
			t.Errorf("admitted %v after %v, want three operations of 20ms", ok, waited)
		}
	})
}
