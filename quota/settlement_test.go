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
