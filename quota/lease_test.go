package quota_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

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
