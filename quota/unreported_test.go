package quota_test

import (
	"fmt"
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

// Where nobody can tell whether the last report came before the fold it counts as made,
// also when it has waited for too long meanwhile.
func TestOutage_A45_A59_FoldedDuringALongOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(1_000_000)
		tm.Rule.First = 1000
		r, other := open(t, m, "a", tm), open(t, m, "b", tm)
		r.mustCharge(10)
		time.Sleep(40 * time.Second)
		r.mustCharge(30)
		r.store.use(storetest.LostReply(m, 1))
		time.Sleep(5 * time.Second) // the report of 40 arrives, its reply does not
		r.store.set(time.Hour, nil)
		time.Sleep(9*time.Minute + 25*time.Second)
		m.SetLiable("a", false)
		other.mustCharge(1)
		r.keeper.SetHolder("a2")
		r.store.use(m)
		r.store.set(0, nil)
		time.Sleep(2 * time.Minute)
		if used := m.Account(key()).Used(); used != 41 {
			t.Errorf("%d used, want 40 and 1 once", used)
		}
	})
}

// While a restored store is learned a report does not begin the cap again.
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
		r.lock.Lock()
		r.purse.Close()
		r.lock.Unlock()
		r.store.use(m)
		r.store.set(0, nil)
		time.Sleep(time.Minute)
		if a := m.Account(key()); a.Leased() != 0 || a.Used() != 5 {
			t.Errorf("%+v: want nothing on lease", a)
		}
	})
}

// Use that was given back does not make younger use look as old as itself.
func TestOutage_A59_A55_GivenBackIsNotOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(1_000_000)
		tm.Counts = true
		r := open(t, m, "a", tm)
		r.store.set(time.Hour, nil)
		charge := func(n int64) {
			r.lock.Lock()
			r.purse.Charge(r.at(), n)
			r.lock.Unlock()
		}
		charge(1)
		time.Sleep(9 * time.Second)
		charge(5)
		time.Sleep(1500 * time.Millisecond)
		r.lock.Lock()
		r.purse.Refund(r.at(), 5, 5)
		r.lock.Unlock()
		time.Sleep(5 * time.Minute)
		charge(7)
		time.Sleep(4*time.Minute + 52*time.Second)
		r.store.set(0, nil)
		time.Sleep(time.Minute)
		if d, used := r.keeper.Stats().DroppedUnits, m.Account(key()).Used(); d != 1 || used != 7 {
			t.Errorf("%d dropped and %d counted, want 1 and 7", d, used)
		}
	})
}

// After the loss of an incarnation the bound says what was used before, until that is
// reported: the leases that covered it may be lent again.
func TestOvershoot_A45_Q40_BoundAfterALostIncarnation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1000)
		tm.Rule.First = 100
		r := open(t, &storetest.Memory{}, "a", tm)
		r.mustCharge(40)
		r.keeper.Learn(time.Minute) // so that nothing is asked for
		r.store.set(200*time.Millisecond, nil)
		r.keeper.SetHolder("a2")
		time.Sleep(100 * time.Millisecond)
		r.lock.Lock()
		defer r.lock.Unlock()
		if b := r.purse.Bound(); b < 40 {
			t.Errorf("the bound says %d, 40 units are not reported", b)
		}
	})
}
