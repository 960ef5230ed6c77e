package quota_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)


// A report that the store would not do is made a second later, though use was counted
// while it was under way.
func TestKeeper_A47_RefusedReportIsMadeLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(1000)
		tm.Rule.First, tm.Rule.ReportEvery = 100, 10*time.Second
		r := open(t, m, "a", tm)
		r.mustCharge(1)
		r.store.set(100*time.Millisecond, fmt.Errorf("no space: %w", quota.ErrNotApplied))
		time.Sleep(10*time.Second + 50*time.Millisecond) // the report is under way
		r.mustCharge(1)
		time.Sleep(100 * time.Millisecond)
		r.store.set(0, nil)
		time.Sleep(5 * time.Second)
		if used := m.Account(key()).Used(); used != 2 {
			t.Errorf("%d of 2 units reported", used)
		}
		time.Sleep(10 * time.Minute)
		if a := m.Account(key()); a.Used() != 2 || a.Leased() > 0 {
			t.Errorf("10 min later: %+v", a)
		}
	})
}

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
		idle.mustCharge(1) // holds the other 9
		time.Sleep(2 * time.Second)
		r.store.set(0, nil)
		time.Sleep(7 * time.Second)
		if ok, _ := r.charge(1); !ok {
			t.Error("refused though 9 units lie idle elsewhere")
		}
	})
}

// In the exact slice a later request does not get what an earlier crowd waited for.
func TestKeeper_Q45_OnlyWhatIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1000)
		tm.ExactBelow = 1000
		m := &storetest.Memory{}
		r := open(t, m, "a", tm)
		r.store.set(5*time.Millisecond, nil)
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() { r.mustCharge(3) })
		}
		all.Wait()
		time.Sleep(time.Second)
		r.mustCharge(1)
		if n := m.Account(key()).Leased(); n > 1 {
			t.Errorf("%d units are lent for a request of 1", n)
		}
	})
}

// Nor what a crowd waited for that was refused, or that the store did not answer.
func TestKeeper_Q45_OnlyWhatIsWaitedForAfterAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1000)
		tm.ExactBelow = 1000
		m := &storetest.Memory{}
		r := open(t, m, "a", tm)
		r.mustCharge(1)
		r.store.set(0, fmt.Errorf("no space: %w", quota.ErrNotApplied))
		var all sync.WaitGroup
		for range 30 {
			all.Go(func() { r.charge(3) })
		}
		all.Wait()
		r.store.set(0, nil)
		time.Sleep(20 * time.Second)
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

// While a restored store is learned a report does not begin the cap anew.
func TestOutage_P43_P44_ReportsDoNotRenewTheCap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1_000_000)
		tm.Cap.Units, tm.Rule.ReportEvery = 20, time.Second
		r := &counterman{till: open(t, &storetest.Memory{}, "a", tm), allow: true}
		r.keeper.Learn(time.Minute)
		for range 59 {
			r.serve()
			time.Sleep(time.Second)
		}
		if r.served != 20 {
			t.Errorf("%d let on, want the cap of 20", r.served)
		}
	})
}

// What a holder that is gone held exactly counts as used: it is not reported once more.
func TestKeeper_Q45_C102_ExactLeasesOfALostHolderAreNotBilledTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1000)
		tm.ExactBelow = 1000
		m := &storetest.Memory{}
		r := open(t, m, "a", tm)
		other := open(t, m, "b", tm)
		r.lock.Lock()
		r.purse.Await(50)
		r.lock.Unlock()
		synctest.Wait()
		r.mustCharge(49)
		m.SetLiable("a", false)
		other.mustCharge(1)
		r.keeper.SetHolder("a2")
		time.Sleep(2 * time.Minute)
		if used := m.Account(key()).Used(); used > 51 {
			t.Errorf("%d used, want at most the 50 that were lent exactly and 1", used)
		}
	})
}

// A lease that came with a report of unknown outcome goes back, though all that it
// reported was dropped or is known.
func TestOutage_A59_LeaseOfALostReplyGoesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a", terms(1000))
		r.lock.Lock()
		r.purse.Overdraw(r.purse.Charge(r.at(), 5)) // nothing was reserved
		r.purse.Await(1)
		r.lock.Unlock()
		r.store.use(storetest.LostReply(m, 1))
		time.Sleep(5 * time.Millisecond)
		r.store.set(time.Hour, nil)
		time.Sleep(11 * time.Minute)
		r.store.use(m)
		r.store.set(0, nil)
		time.Sleep(time.Minute)
		if a := m.Account(key()); a.Leased() != 0 || a.Used() != 5 {
			t.Errorf("%+v: want nothing on lease", a)
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
