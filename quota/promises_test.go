package quota_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A lease says: admit so many more units for so long. It is refilled when it has less
// than a request costs, or is over.
func TestKeeper_Q34_Q35_RefilledWhenShortOrOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(1)
		asked := len(r.store.calls())
		r.mustCharge(2)
		if n := len(r.store.calls()); n != asked {
			t.Errorf("%d operations while the lease had 9 units", n-asked)
		}
		r.mustCharge(8) // 7 are left
		if op := r.store.last(); op.Want == 0 || op.Min < 1 {
			t.Errorf("the last operation was %+v, want one that asks", op)
		}
		time.Sleep(2 * time.Minute) // closed, and over
		asked = len(r.store.calls())
		r.mustCharge(1)
		if n := len(r.store.calls()); n != asked+1 {
			t.Errorf("%d operations for the first request after that, want 1", n-asked)
		}
	})
}

// What is granted may be less than what was asked for, and near the end it is what is
// left / replicas / 2: of 2,000 units with 40 replicas, 25.
func TestApply_Q37_Q41_GrantsShrinkNearTheEnd(t *testing.T) {
	t.Parallel()
	used, _ := quota.Apply(quota.Account{}, quota.Operation{Holder: "b", Seq: 1, Used: 9_998_000, Ceiling: 10_000_000})
	for _, c := range []struct{ want, least, granted int64 }{
		{100, 1, 25}, {10, 1, 10}, {100, 60, 60}, {2000, 2000, 2000}, {2001, 2001, 0},
	} {
		op := quota.Operation{Holder: "a", Seq: 1, Want: c.want, Min: c.least, Ceiling: 10_000_000, Replicas: 40}
		if _, r := quota.Apply(used, op); r.Granted != c.granted {
			t.Errorf("%d asked for, at least %d: granted %d, want %d", c.want, c.least, r.Granted, c.granted)
		}
	}
}

// Units are summed for each account and sent together, as often as the limit says: the
// store hears of 500 requests once a second.
func TestKeeper_C22_C23_ReportsSumUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1_000_000)
		tm.Rule.First, tm.Rule.ReportEvery = 10_000, time.Second
		m := &storetest.Memory{}
		r := open(t, m, "a", tm)
		r.mustCharge(1)
		time.Sleep(2 * time.Second)
		asked := len(r.store.calls())
		for range 5 {
			for range 500 {
				r.mustCharge(1)
				time.Sleep(2 * time.Millisecond)
			}
			if used := m.Account(key()).Used(); used < 1 {
				t.Errorf("%d units are reported", used)
			}
		}
		if n := len(r.store.calls()) - asked; n < 4 || n > 6 {
			t.Errorf("%d reports in 5 s, want one a second", n)
		}
		time.Sleep(time.Second)
		if used := m.Account(key()).Used(); used != 2501 {
			t.Errorf("%d units are reported a second after the last, want 2,501", used)
		}
	})
}

// A report of which nobody knows whether it arrived is counted as failed and sent again
// under the same number: it counts once.
func TestKeeper_C27_FailedReportsAreRetriedAndCountOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a", terms(1000))
		r.mustCharge(5)
		r.store.use(storetest.LostReply(m, 1)) // every report arrives, no answer does
		time.Sleep(90 * time.Second)
		if used := m.Account(key()).Used(); used != 5 {
			t.Errorf("%d counted, want 5", used)
		}
		if n := r.keeper.Stats().Failed; n == 0 {
			t.Error("no failure is counted")
		}
		r.store.use(m)
		time.Sleep(time.Minute)
		if a := m.Account(key()); a.Used() != 5 || a.Leased() != 0 {
			t.Errorf("used %d, leased %d once answers come again, want 5 and 0", a.Used(), a.Leased())
		}
	})
}

// What a request used that reserved nothing counts in full; past the quota it is
// overshoot of that cause.
func TestOvershoot_A43_C139_MoreThanReserved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a", terms(100))
		overdraw := func(n int64) {
			r.lock.Lock()
			defer r.lock.Unlock()
			r.purse.Overdraw(r.purse.Charge(r.at(), n))
		}
		overdraw(98)
		time.Sleep(time.Minute)
		if n := r.keeper.Stats().Overshoot[quota.UnderReserved]; n != 0 {
			t.Errorf("%d past the quota, want none yet", n)
		}
		overdraw(5)
		time.Sleep(time.Minute)
		used, over := m.Account(key()).Used(), r.keeper.Stats().Overshoot[quota.UnderReserved]
		if used != 103 || over != 3 {
			t.Errorf("used %d and %d past the quota, want 103 and 3", used, over)
		}
		if ok, _ := r.charge(1); ok {
			t.Error("a request was admitted before that was covered")
		}
	})
}

// Whatever dies with a replica is at most what its bound said (A45, A47).
func TestLimits_Q40_TheBoundHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		a, b := open(t, m, "a", terms(1000)), open(t, m, "b", terms(1000))
		var bound int64
		admitted := 0
		for range 300 {
			a.mustCharge(1)
			admitted++
			bound = 0
			for _, l := range a.keeper.Limits() {
				if l.App != "api" || l.Limit != "monthly" {
					t.Fatalf("got %+v", l)
				}
				bound += l.Bound
			}
			time.Sleep(30 * time.Millisecond)
		}
		a.store.set(0, errors.New("killed"))
		m.SetLiable("a", false)
		for range 2000 {
			if ok, _ := b.charge(1); ok {
				admitted++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if over := int64(admitted - 1000); over < 0 || over > bound {
			t.Errorf("%d past the quota, the bound said %d", over, bound)
		}
		if bound > 200 {
			t.Errorf("a bound of %d is no bound at 33 requests a second", bound)
		}
	})
}

// Purses that were filled together are not renewed together: each up to a tenth before
// its 45 s, and never later (A29, P69).
func TestKeeper_P69_A29_RenewalsAreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1_000_000))
		renewed := map[time.Duration]int{}
		began := time.Now()
		for i := range 200 {
			k := key()
			k.Tenant = fmt.Sprint("org:", i)
			r.lock.Lock()
			p := r.keeper.Open(k, quota.Window{ID: "w"}, terms(1_000_000), &r.lock)
			p.Await(1)
			r.lock.Unlock()
			synctest.Wait()
			r.lock.Lock()
			p.Charge(r.at(), 1)
			r.lock.Unlock()
		}
		before := len(r.store.calls())
		for time.Since(began) < 46*time.Second {
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			if n := len(r.store.calls()); n > before {
				renewed[time.Since(began)] += n - before
				before = n
			}
		}
		total, most := 0, 0
		for at, n := range renewed {
			total, most = total+n, max(most, n)
			if at < 40*time.Second || at > 45100*time.Millisecond {
				t.Errorf("%d renewed after %v", n, at)
			}
		}
		if total != 200 || most > 40 {
			t.Errorf("%d renewed, at most %d within 100 ms; want 200, spread over 4.5 s", total, most)
		}
	})
}
