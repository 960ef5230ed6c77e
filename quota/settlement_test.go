package quota_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// settle settles a charge at r's purse.
func (r *till) settle(s quota.Settlement) {
	r.t.Helper()
	r.lock.Lock()
	defer r.lock.Unlock()
	r.purse.Settle(r.keeper.Instant(time.Now()), s)
}

// What is given back within a while that ends higher than it was meanwhile has not
// waited any longer for that: a short outage drops nothing.
func TestKeeper_A26_A59_RefundsMakeNothingOld(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(1000)
		tm.Rule.First, tm.Rule.ReportEvery = 100, 12500*time.Millisecond
		r := open(t, m, "a", tm)
		r.mustCharge(10)
		time.Sleep(12 * time.Second)
		r.settle(quota.Settlement{Charged: 1}) // so that the first while is never wholly reported
		time.Sleep(9 * time.Minute)
		r.settle(quota.Settlement{Charged: 9})
		r.charged(1)
		time.Sleep(time.Second) // 1 is reported
		r.store.set(0, errors.New("away"))
		r.charged(1) // in the while of the refund
		time.Sleep(70 * time.Second)
		r.store.set(0, nil)
		time.Sleep(2 * time.Minute)
		if used, dropped := m.Account(key()).Used(), r.keeper.Stats().DroppedUnits; used != 2 || dropped != 0 {
			t.Errorf("%d used and %d dropped, want 2 and 0", used, dropped)
		}
	})
}

// What a request did not use can be spent again without asking; what no lease covered
// goes back first, and cannot.
func TestPurse_A26_A27_C095_GivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1000)
		tm.Rule.First = 10
		r := open(t, &storetest.Memory{}, "a", tm)
		r.mustCharge(10)
		calls := len(r.store.calls())
		r.settle(quota.Settlement{Charged: 10, Used: 4})
		r.lock.Lock()
		now := r.keeper.Instant(time.Now())
		six, seven := r.purse.Room(now, 6), r.purse.Room(now, 7)
		r.lock.Unlock()
		if six != quota.Fits || seven != quota.Short || len(r.store.calls()) > calls+1 {
			t.Errorf("room for 6: %v, for 7: %v, want fits and short", six, seven)
		}
		r.settle(quota.Settlement{Charged: 10, Uncovered: 10, Used: 0})
		r.lock.Lock()
		seven = r.purse.Room(now, 7)
		r.lock.Unlock()
		if seven != quota.Short {
			t.Errorf("room for 7 after units that no lease covered went back: %v, want short", seven)
		}
	})
}

// More than was charged is taken from the lease, and the rest is a debt that the account
// hears of before it lends again.
func TestPurse_A40_A41_Debt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(100)
		r := open(t, m, "a", tm)
		r.mustCharge(10)
		r.settle(quota.Settlement{Charged: 10, Used: 95})
		r.mustCharge(5)
		if a := m.Account(key()); a.Used() < 95 || a.Used()+a.Leased() > 100 {
			t.Errorf("the account lends without the debt: %+v", a)
		}
		r.settle(quota.Settlement{Charged: 5, Used: 25})
		time.Sleep(2 * time.Minute)
		if used, over := m.Account(key()).Used(), r.keeper.Stats().Overshoot[quota.UnderReserved]; used != 120 || over != 20 {
			t.Errorf("%d used, %d over, want 120 and 20", used, over)
		}
	})
}

// A purse that is closed still settles.
func TestPurse_A26_A48_ClosedSettles(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a", terms(100))
		r.mustCharge(10)
		r.lock.Lock()
		r.purse.Close()
		r.lock.Unlock()
		time.Sleep(time.Second)
		r.settle(quota.Settlement{Charged: 5, Used: 125, Long: true})
		r.settle(quota.Settlement{Charged: 5, Used: 1})
		time.Sleep(2 * time.Minute)
		if a, over := m.Account(key()), r.keeper.Stats().Overshoot[quota.LongRequest]; a.Used() != 126 || a.Leased() != 0 || over != 26 {
			t.Errorf("%+v, %d over as long, want 126 used and 26 over", a, over)
		}
	})
}

// What a settlement used beyond the lease is known to the next settlement of the same
// charge: it goes into no lease.
func TestPurse_A27_A41_C095_DebtGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(200))
		r.mustCharge(100)
		r.lock.Lock() // so that no operation comes between
		debt := r.purse.Settle(r.at(), quota.Settlement{Charged: 100, Used: 150})
		rest := r.purse.Settle(r.at(), quota.Settlement{Charged: 150, Uncovered: debt, Used: 120})
		none := r.purse.Settle(r.at(), quota.Settlement{Charged: 120, Uncovered: rest, Used: 5})
		all, more := r.purse.Room(r.at(), 95), r.purse.Room(r.at(), 96)
		r.lock.Unlock()
		if debt != 50 || rest != 20 || none != 0 {
			t.Errorf("%d, then %d, then %d uncovered, want 50, 20 and 0", debt, rest, none)
		}
		if all != quota.Fits || more != quota.Short {
			t.Errorf("room for 95: %v, for 96: %v, want fits and short", all, more)
		}
		if same := r.purse.Settle(r.at(), quota.Settlement{Charged: 5, Uncovered: 3, Used: 5}); same != 3 {
			t.Errorf("%d of the same are uncovered, want 3", same)
		}
	})
}

// A refusal is not remembered of units that were given back, be there a lease or not.
func TestPurse_A26_A35_GivenBackBesideALease(t *testing.T) {
	t.Parallel()
	for name, uncovered := range map[string]int64{"uncovered": 20, "into a lease that is too old": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &storetest.Memory{}
				tm := terms(200)
				tm.Rule.First, tm.Rule.MaxShare = 20, 10000
				other, r := open(t, m, "b", terms(200)), open(t, m, "a", tm)
				other.mustCharge(150)
				other.lock.Lock()
				other.purse.Close()
				other.lock.Unlock()
				synctest.Wait()
				r.mustCharge(10)
				r.lock.Lock()
				r.purse.Charge(r.at(), 30) // 10 of them from the lease
				r.purse.Refund(r.at(), 1, 0)
				r.lock.Unlock()
				if ok, _ := r.charge(20); ok {
					t.Fatal("20 of 11 are charged")
				}
				if uncovered == 0 {
					tm.Rule.UsableFor = time.Nanosecond
					time.Sleep(time.Nanosecond)
				}
				r.settle(quota.Settlement{Charged: 30, Uncovered: uncovered, Used: 10})
				r.lock.Lock()
				room := r.purse.Room(r.at(), 20)
				r.lock.Unlock()
				if room != quota.Short {
					t.Errorf("room for 20 after 20 were given back: %v, want short; %+v", room, m.Account(key()))
				}
			})
		})
	}
}

// Counting ends at the largest amount, and goes on where it was once that is given back:
// no unit is minted.
func TestPurse_A26_C090_PastTheLargestAmount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(quota.MaxUnits)
		tm.Counts = true
		r := open(t, m, "a", tm)
		var got []int64
		used := func() {
			r.lock.Lock()
			got = append(got, r.purse.Used()-quota.MaxUnits)
			r.lock.Unlock()
		}
		r.mustCharge(7)
		r.mustCharge(quota.MaxUnits)
		r.mustCharge(quota.MaxUnits)
		used()
		r.settle(quota.Settlement{Charged: quota.MaxUnits, Uncovered: quota.MaxUnits})
		used()
		r.settle(quota.Settlement{Charged: quota.MaxUnits, Uncovered: quota.MaxUnits, Used: 3})
		if got[0] != 0 || got[1] != 0 {
			t.Errorf("used is past the largest amount by %v, want 0", got)
		}
		time.Sleep(2 * time.Minute)
		if used := m.Account(key()).Used(); used != 10 {
			t.Errorf("%d are used, want 10", used)
		}
	})
}

// What a limit used that only counted is no overshoot, should it refuse from now on.
func TestPurse_A5_A43_A48_CountedIsNoOvershoot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		tm := terms(quota.MaxUnits)
		tm.Counts = true
		r := open(t, m, "a", tm)
		r.mustCharge(10)
		synctest.Wait()
		r.settle(quota.Settlement{Charged: 5, Uncovered: 5, Used: 50})
		r.settle(quota.Settlement{Charged: 5, Uncovered: 5, Used: 60, Long: true})
		r.lock.Lock()
		r.purse.SetTerms(r.at(), terms(100))
		r.lock.Unlock()
		time.Sleep(2 * time.Minute)
		over := r.keeper.Stats().Overshoot
		if used := m.Account(key()).Used(); used != 110 || over[quota.UnderReserved] != 0 || over[quota.LongRequest] != 0 {
			t.Errorf("%d used, past the quota %v, want 110 and nothing of settlements", used, over)
		}
	})
}

// A purse that is closed reports what is settled late at once, more or less of it.
func TestPurse_A26_A47_ClosedReportsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a", terms(100))
		r.mustCharge(10)
		r.lock.Lock()
		r.purse.Close()
		r.lock.Unlock()
		charged := int64(10)
		for _, used := range []int64{15, 3} {
			time.Sleep(time.Millisecond)
			r.settle(quota.Settlement{Charged: charged, Used: used})
			charged = used
			time.Sleep(time.Millisecond)
			if got := m.Account(key()).Used(); got != used {
				t.Errorf("%d are reported at once, want %d", got, used)
			}
		}
	})
}
