package quota_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

func TestApply_Q45_ExactLeases(t *testing.T) {
	t.Parallel()
	op := quota.Operation{Key: key(), Holder: "a", Seq: 1, Want: 50, Min: 2, Waiting: 7, ExactBelow: 100, Ceiling: 90, Replicas: 4}
	a, r := quota.Apply(quota.Account{}, op)
	if r.Granted != 7 || !a.Holders[0].Leases[0].Exact {
		t.Errorf("granted %+v of %+v, want the 7 that are waited for, exactly", r, a)
	}
	op.Holder, op.Waiting = "b", 0
	if _, r := quota.Apply(a, op); r.Granted != 0 || r.Left != 83 {
		t.Errorf("granted %+v though nobody waits", r)
	}
	op.Waiting, op.Min, op.Want = 200, 2, 200
	if _, r := quota.Apply(a, op); r.Granted != 83 {
		t.Errorf("granted %+v, want all that is left", r)
	}
	op.ExactBelow, op.Want = 50, 50
	if b, r := quota.Apply(a, op); r.Granted != 10 || b.Holders[1].Leases[0].Exact {
		t.Errorf("granted %+v of %+v, want a common lease of 83 / 4 / 2", r, b)
	}
	op.Gone = []string{"a"}
	if b, _ := quota.Apply(a, op); b.Base != 7 {
		t.Errorf("base %d, want the 7 of the holder that is gone as used", b.Base)
	}
}

// exact_below: 100 %: a replica that is killed takes nobody past the quota.
func TestKeeper_Q45_NoOvershootWhenAReplicaIsKilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(100)
		tm.ExactBelow = 100
		m := &storetest.Memory{}
		a, b := open(t, m, "a", tm), open(t, m, "b", tm)
		admitted := 0
		for range 30 {
			a.mustCharge(1)
			admitted++
		}
		a.store.set(time.Hour, nil) // killed: nothing reaches the store any more
		m.SetLiable("a", false)
		for range 200 {
			if ok, _ := b.charge(1); ok {
				admitted++
			}
		}
		if admitted != 100 {
			t.Errorf("%d of 100 admitted, want all and no more", admitted)
		}
	})
}

// All that wait at one moment share one operation, in the exact slice too.
func TestKeeper_Q45_OneOperationForAllThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1000)
		tm.ExactBelow = 1000
		r := open(t, &storetest.Memory{}, "a", tm)
		r.store.set(5*time.Millisecond, nil)
		var all sync.WaitGroup
		for range 300 {
			all.Go(func() { r.mustCharge(3) })
		}
		all.Wait()
		if n := len(r.store.calls()); n > 6 {
			t.Errorf("%d operations for 300 requests at once", n)
		}
	})
}

// In the exact slice a request costs one operation, and not another one in vain behind
// it.
func TestKeeper_Q45_OneOperationForEachRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tm := terms(1000)
		tm.ExactBelow = 1000
		r := open(t, &storetest.Memory{}, "a", tm)
		for range 50 {
			r.mustCharge(1)
			time.Sleep(100 * time.Millisecond)
		}
		if n := len(r.store.calls()); n != 50 {
			t.Errorf("%d operations for 50 requests", n)
		}
	})
}
