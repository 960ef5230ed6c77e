package quota_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// talk opens a till on boards, which carry word between all tills of one memory.
func talk(t *testing.T, m *storetest.Memory, boards *storetest.Boards, holder string, tm *quota.Terms) *till {
	t.Helper()
	r := &till{t: t, memory: m, store: &recorder{Store: m}, now: time.Now}
	r.keeper = quota.NewKeeper(quota.KeeperConfig{
		Store: r.store, Now: time.Now, Board: boards.Join(func() *quota.Keeper { return r.keeper }),
	}, holder)
	return r.run(tm)
}

// The rest of a quota lies idle at three replicas: a fourth one gets all of it, within
// the 300 ms that a request may wait.
func TestRecall_Q38_Q40_RefusedOnlyWhenNothingIsLeftAnywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		for i := range 3 {
			talk(t, m, boards, fmt.Sprint("idle", i), terms(100)).mustCharge(1) // each holds 9 more
		}
		time.Sleep(10 * time.Second) // nobody asks them any more
		r := talk(t, m, boards, "busy", terms(100))
		for i := range 97 {
			ok, waited := r.charge(1)
			if !ok || waited > 300*time.Millisecond {
				t.Fatalf("request %d: admitted %v after %v; account %+v", i, ok, waited, m.Account(key()))
			}
			time.Sleep(10 * time.Millisecond)
		}
		start := time.Now()
		if ok, _ := r.charge(1); ok {
			t.Fatal("admitted past the quota")
		}
		if d := time.Since(start); d > 250*time.Millisecond {
			t.Errorf("the refusal took %v", d)
		}
		if s := r.keeper.Stats(); s.Recalls == 0 {
			t.Error("nothing was recalled")
		}
		if s := r.keeper.Stats(); s.Away || s.Failed > 0 {
			t.Error("a recall counts as a failing store")
		}
	})
}

// Two busy replicas ask each other for the last units: none is lost, and the store is
// not written once per request.
func TestRecall_Q44_BusyReplicasShareTheLastUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		a, b := talk(t, m, boards, "a", terms(2000)), talk(t, m, boards, "b", terms(2000))
		var load sync.WaitGroup
		var mu sync.Mutex
		admitted := 0
		for _, r := range []*till{a, b} {
			r.keeper.SetReplicas(2)
			load.Go(func() {
				for range 1500 {
					if ok, _ := r.charge(1); ok {
						mu.Lock()
						admitted++
						mu.Unlock()
					}
					time.Sleep(10 * time.Millisecond)
				}
			})
		}
		load.Wait()
		if admitted != 2000 {
			t.Errorf("%d of 2,000 units admitted, though 3,000 were asked for", admitted)
		}
		if n := m.Writes(key()); n > 150 {
			t.Errorf("%d writes for 3,000 requests", n)
		}
	})
}

// When the caller gives less time than a recall takes, it is refused: the store has
// answered, so that on_unavailable has no say.
func TestRecall_C117_ShortPatienceIsARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, time.Minute) // word comes too late
		talk(t, m, boards, "idle", terms(10)).mustCharge(1)
		r := talk(t, m, boards, "a", terms(10))
		r.lock.Lock()
		ready := r.purse.Await(10)
		r.lock.Unlock()
		synctest.Wait()
		select {
		case <-ready:
			t.Fatal("answered before the recall was over")
		default:
		}
		r.lock.Lock()
		defer r.lock.Unlock()
		if !r.purse.GaveUp(r.at(), 50*time.Millisecond) {
			t.Error("not told that there is no more")
		}
		if r.purse.Room(r.at(), 10) != quota.Spent || r.purse.FailingFor(r.at()) > 0 {
			t.Error("a recall that was not waited for looks like a failing store")
		}
	})
}

// "Nothing left" is forgotten at once when the account tells that units came back.
func TestRecall_A35_ReturnedUnitsEndTheMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		other, r := talk(t, m, boards, "b", terms(10)), talk(t, m, boards, "a", terms(10))
		other.mustCharge(10)
		if ok, _ := r.charge(1); ok {
			t.Fatal("admitted past the quota")
		}
		time.Sleep(time.Second)
		other.lock.Lock()
		other.purse.Refund(other.at(), 5, 0)
		other.purse.Close()
		other.lock.Unlock()
		time.Sleep(10 * time.Millisecond)
		if ok, _ := r.charge(5); !ok {
			t.Fatal("refused though 5 units came back")
		}
	})
}

// Without anybody who holds units there is nothing to recall, and a refusal is not
// held back.
func TestRecall_A35_NothingToRecall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		r := talk(t, m, boards, "a", terms(10))
		r.mustCharge(10)
		if ok, waited := r.charge(1); ok || waited > 10*time.Millisecond {
			t.Errorf("admitted %v after %v, want refused at once", ok, waited)
		}
		if n := r.keeper.Stats().Recalls; n != 0 {
			t.Errorf("%d recalls, want none", n)
		}
	})
}

// Two replicas that ask each other for their last units at the same moment do not both
// refuse: together they have enough for one.
func TestRecall_Q38_TwoThatAskEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		tm := terms(20)
		tm.Rule.MaxShare = 10_000
		a, b := talk(t, m, boards, "a", tm), talk(t, m, boards, "b", tm)
		a.mustCharge(7)
		b.mustCharge(10)
		b.lock.Lock()
		b.purse.Refund(b.at(), 4, 0)
		b.lock.Unlock() // 3 and 4 of their leases of 10 are left, and none in the account
		var both sync.WaitGroup
		var admitted atomic.Int64
		for _, r := range []*till{a, b} {
			both.Go(func() {
				if ok, _ := r.charge(5); ok {
					admitted.Add(1)
				}
			})
		}
		both.Wait()
		if n := admitted.Load(); n != 1 {
			t.Errorf("%d of two requests for 5 units admitted, want one: 7 are left; account %+v", n, m.Account(key()))
		}
	})
}

// Who gives up what it has while it waits for more needs all that it is asked for, and
// not the rest: what it returned itself is not a word to ask the store again.
func TestRecall_Q38_WhoGaveUpItsOwnNeedsAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		tm := terms(40)
		tm.Rule.MaxShare = 10_000
		a := talk(t, m, boards, "a", tm)
		a.mustCharge(5) // 5 of its lease are left
		rest := quota.Operation{Key: key(), App: "api", Holder: "mute", Seq: 1, Want: 30, Min: 30, Ceiling: 40, Replicas: 2, Version: 1}
		if res, err := m.Apply(t.Context(), rest); err != nil || res.Granted != 30 {
			t.Fatalf("%+v, %v", res, err) // who holds the rest hears of no recall
		}
		before := len(a.store.calls())
		var one sync.WaitGroup
		one.Go(func() {
			if ok, _ := a.charge(8); ok {
				t.Error("admitted past the quota")
			}
		})
		time.Sleep(10 * time.Millisecond)
		a.keeper.Recalled(key()) // another one needs some as well
		one.Wait()
		var asked []int64
		for _, op := range a.store.calls()[before:] {
			asked = append(asked, op.Min)
		}
		if want := []int64{3, 0}; !slices.Equal(asked, want) {
			t.Errorf("the store was asked for %d units, want %d: once for the rest, and once nothing while all is given up", asked, want)
		}
	})
}

// Units that are given back at one replica are usable at another within 2 s while requests
// are refused there: soon after the end of the quota or long after it, also where the one
// that gives back has not heard of the end, and where what was left was too little.
func TestRecall_A26_GivenBackUnitsAreUsableElsewhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		calm       time.Duration // between the end of the quota and the units that come back
		left, need int64
		every      time.Duration // between two requests
	}{
		"at once":       {need: 1, every: 300 * time.Millisecond},
		"soon":          {calm: 3 * time.Second, need: 1, every: 300 * time.Millisecond},
		"late":          {calm: 5 * time.Minute, need: 1, every: 300 * time.Millisecond},
		"more than one": {calm: time.Minute, left: 2, need: 6, every: 300 * time.Millisecond},
		"before a word": {calm: 17 * time.Second, need: 1, every: 300 * time.Millisecond},
		"rarely asked":  {calm: time.Minute, need: 1, every: 1700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := &storetest.Memory{}
				boards := storetest.NewBoards(m, 3*time.Millisecond)
				a, b := talk(t, m, boards, "a", terms(100)), talk(t, m, boards, "b", terms(100))
				for _, r := range []*till{a, b} {
					r.keeper.SetReplicas(2)
				}
				a.mustCharge(10)
				time.Sleep(time.Minute) // a has reported, and knows of nobody else
				b.mustCharge(90 - c.left)
				for end := time.Now().Add(c.calm); ; time.Sleep(c.every) {
					if ok, _ := b.charge(c.need); ok {
						t.Fatal("admitted past the quota")
					}
					if !time.Now().Before(end) {
						break
					}
				}
				a.lock.Lock()
				a.purse.Refund(a.at(), 5, 0)
				a.lock.Unlock()
				back := time.Now()
				for {
					if ok, _ := b.charge(c.need); ok {
						return
					}
					if time.Since(back) > 2*time.Second {
						t.Fatalf("refused %v after 5 units came back; account %+v", time.Since(back), m.Account(key()))
					}
					time.Sleep(min(c.every, 100*time.Millisecond))
				}
			})
		})
	}
}

// All that is refused together asks the others no more often than a bound says, and one
// account's refusals no more often than they are remembered.
func TestRecall_A35_RefusalsAreToldWithinBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		a, b := talk(t, m, boards, "a", terms(20)), talk(t, m, boards, "b", terms(20))
		for _, r := range []*till{a, b} {
			r.keeper.SetReplicas(2)
			r.mustCharge(10)
		}
		for range 600 {
			b.charge(1)
			time.Sleep(100 * time.Millisecond)
		}
		if n := b.keeper.Stats().Recalls; n < 5 || n > 8 {
			t.Errorf("%d words to the others in a minute of refusals, want one each 10 s", n)
		}
		if n := m.Writes(key()); n > 10 {
			t.Errorf("%d writes of an account of which nothing comes back", n)
		}
		a.keeper.SetReplicas(1)
		b.keeper.SetReplicas(1)
		before := b.keeper.Stats().Recalls
		for range 300 {
			b.charge(1)
			time.Sleep(100 * time.Millisecond)
		}
		if n := b.keeper.Stats().Recalls; n != before {
			t.Errorf("%d words to nobody", n-before)
		}
	})
}

// Of units that come back the replica takes some again that gave them back: the rest, in its
// lease, is not refused to others.
func TestRecall_A26_WhatIsLentAgainIsNotRefusedElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		a, b := talk(t, m, boards, "a", terms(100)), talk(t, m, boards, "b", terms(100))
		for _, r := range []*till{a, b} {
			r.keeper.SetReplicas(2)
		}
		a.mustCharge(20)
		b.mustCharge(80)
		if ok, _ := b.charge(1); ok {
			t.Fatal("admitted past the quota")
		}
		time.Sleep(100 * time.Millisecond) // a has heard that units are wanted
		a.lock.Lock()
		a.purse.Refund(a.at(), 6, 0)
		a.lock.Unlock()
		a.mustCharge(1)
		back := time.Now()
		for range 5 {
			for {
				if ok, _ := b.charge(1); ok {
					break
				}
				if time.Since(back) > 2*time.Second {
					t.Fatalf("refused %v after 6 units came back; account %+v", time.Since(back), m.Account(key()))
				}
				time.Sleep(50 * time.Millisecond)
			}
		}
	})
}

// However many accounts are used up at once, the store is not written to for all of them.
func TestRecall_A35_ManyRefusalsAreToldWithinABound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		boards := storetest.NewBoards(m, 3*time.Millisecond)
		a, b := talk(t, m, boards, "a", terms(10)), talk(t, m, boards, "b", terms(10))
		a.keeper.SetReplicas(2)
		b.keeper.SetReplicas(2)
		for i := range 300 {
			k := key()
			k.Tenant = fmt.Sprint("org:", i)
			k.Root = k.Tenant
			for _, r := range []*till{a, b} {
				r.lock.Lock()
				r.purse = r.keeper.Open(k, quota.Window{ID: "w"}, terms(10), &r.lock)
				r.lock.Unlock()
			}
			a.mustCharge(10)
			time.Sleep(time.Millisecond)
			a.lock.Lock()
			a.purse.Close() // all is reported, and nothing is out
			a.lock.Unlock()
			synctest.Wait()
			if ok, _ := b.charge(1); ok {
				t.Fatal("admitted past the quota")
			}
		}
		synctest.Wait()
		if n := b.keeper.Stats().Recalls; n < 100 || n > 200 {
			t.Errorf("%d words to the others within a second or two, want 100 a second", n)
		}
	})
}
