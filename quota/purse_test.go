package quota_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

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
