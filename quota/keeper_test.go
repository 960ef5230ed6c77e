package quota_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

func TestKeeper_A35_NothingLeftIsRememberedForTenSeconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		other := open(t, m, "b", terms(10))
		r := open(t, m, "a", terms(10))
		other.mustCharge(10)
		if ok, _ := r.charge(1); ok {
			t.Fatal("admitted past the quota")
		}
		asked := len(r.store.calls())
		time.Sleep(9 * time.Second)
		if ok, waited := r.charge(1); ok || waited != 0 || len(r.store.calls()) != asked {
			t.Fatal("asked again within 10 s")
		}
		other.lock.Lock()
		other.purse.Refund(other.at(), 5, 0)
		other.purse.Close() // the units return
		other.lock.Unlock()
		time.Sleep(time.Second)
		if ok, _ := r.charge(1); !ok {
			t.Fatal("not asked again after 10 s")
		}
	})
}

func TestKeeper_A35_NewTermsClearTheMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(5))
		r.mustCharge(5)
		if ok, _ := r.charge(1); ok {
			t.Fatal("admitted past the quota")
		}
		raised := terms(250)
		raised.Version = 2
		r.lock.Lock()
		r.purse.SetTerms(r.at(), raised)
		r.lock.Unlock()
		r.mustCharge(1) // C017
		r.lock.Lock()
		left := r.purse.Left(r.at())
		r.lock.Unlock()
		if left != 244 {
			t.Fatalf("left %d after the raise, want 244", left)
		}
	})
}

func TestKeeper_A56_A61_C120_SilentStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.store.set(time.Hour, nil)
		if ok, waited := r.charge(1); ok || waited != 300*time.Millisecond {
			t.Fatalf("admitted %v after %v, want refused after 300ms", ok, waited)
		}
		before := len(r.store.calls())
		for range 20_000 { // 1,000 a second for 20 s
			if ok, waited := r.charge(1); ok || waited != 0 {
				t.Fatalf("a request waited %v while the store counts as failing", waited)
			}
			time.Sleep(time.Millisecond)
		}
		if calls := len(r.store.calls()) - before; calls > 21 {
			t.Fatalf("%d calls of a dead store in 20 s, want about one a second", calls)
		}
		r.store.set(0, nil)
		time.Sleep(5 * time.Second)
		r.mustCharge(1)
	})
}

func TestKeeper_C114_OneOperationForAllThatWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		open(t, m, "b", terms(100)).mustCharge(100)
		r := open(t, m, "a", terms(100))
		r.store.set(250*time.Millisecond, nil)
		var all sync.WaitGroup
		for range 1000 {
			all.Go(func() {
				if ok, waited := r.charge(1); ok || waited > 300*time.Millisecond {
					t.Errorf("admitted %v after %v", ok, waited)
				}
			})
		}
		all.Wait()
		if n := len(r.store.calls()); n != 1 {
			t.Fatalf("%d operations for 1,000 requests, want 1", n)
		}
	})
}

// A lease ends by the clock that moved further: the monotonic one stands still while a
// machine sleeps, and the wall clock can be set back.
func TestKeeper_C040_ALeaseEndsByEitherClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(1)
		now := r.at()
		r.lock.Lock()
		defer r.lock.Unlock()
		for name, c := range map[string]struct {
			mono, wall time.Duration
			want       quota.Verdict
		}{
			"a moment later":      {time.Second, time.Second, quota.Fits},
			"slept for an hour":   {time.Second, 70 * time.Minute, quota.Short},
			"set back by an hour": {time.Minute, -time.Hour, quota.Short},
		} {
			at := quota.Instant{Mono: now.Mono + int64(c.mono), Wall: now.Wall + int64(c.wall)}
			if v := r.purse.Room(at, 1); v != c.want {
				t.Errorf("%s: verdict %d, want %d", name, v, c.want)
			}
		}
	})
}

// A request that is larger than the whole quota can never fit: it is refused at once,
// and the store is not asked.
func TestKeeper_A19_LargerThanTheQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		for range 3 {
			if ok, waited := r.charge(1001); ok || waited != 0 {
				t.Fatalf("1,001 units of 1,000: admitted %v after %v", ok, waited)
			}
		}
		synctest.Wait()
		if n := len(r.store.calls()); n != 0 {
			t.Fatalf("the store was asked %d times", n)
		}
		r.mustCharge(1000)
	})
}

func TestKeeper_LostReplies_CountOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(100_000))
		r.store.use(storetest.LostReply(r.memory, 3))
		used := int64(0)
		for range 2000 {
			if ok, _ := r.charge(1); ok {
				used++
			}
			time.Sleep(20 * time.Millisecond)
		}
		r.store.use(r.memory)
		r.lock.Lock()
		r.purse.Close()
		r.lock.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if a := r.memory.Account(key()); a.Used() != used || a.Leased() != 0 {
			t.Fatalf("account has used %d, leased %d; %d were admitted", a.Used(), a.Leased(), used)
		}
	})
}

func TestKeeper_StaleTermsAreReportedButGetNoLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		guard := quota.Guard{Kind: "Plan", Name: "free", Revision: 7}
		m.SetGuard(guard)
		tm := terms(1000)
		tm.Guards = []quota.Guard{guard}
		r := open(t, m, "a", tm)
		r.mustCharge(6)
		m.SetGuard(quota.Guard{Kind: "Plan", Name: "free", Revision: 8})
		if ok, waited := r.charge(8); ok || waited != 300*time.Millisecond {
			t.Fatalf("a lease under old terms: admitted %v after %v", ok, waited)
		}
		if a := m.Account(key()); a.Used() != 6 {
			t.Fatalf("reported %d under old terms, want 6", a.Used())
		}
		if n := len(r.store.calls()); n > 20 {
			t.Fatalf("%d operations while the terms were old, want a few", n)
		}
		fresh := terms(1000)
		fresh.Guards = []quota.Guard{{Kind: "Plan", Name: "free", Revision: 8}}
		r.lock.Lock()
		r.purse.SetTerms(r.at(), fresh)
		r.lock.Unlock()
		r.mustCharge(8)
	})
}

func TestKeeper_LostIncarnationGoesOnUnderANewOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		r := open(t, m, "a1", terms(1000))
		r.mustCharge(5)
		m.SetLiable("a1", false)
		open(t, m, "b", terms(1000)).mustCharge(1) // folds a1: 5 were never reported
		r.keeper.SetHolder("a2")
		r.mustCharge(1)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		a := m.Account(key())
		if a.Used() != 7 {
			t.Fatalf("used %d, want 7: nothing lost, nothing twice", a.Used())
		}
	})
}

func TestKeeper_SettleGivesEverythingBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		k := quota.NewKeeper(quota.KeeperConfig{Store: m, Now: time.Now}, "a")
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); _ = k.Run(ctx) }()
		var lock sync.Mutex
		lock.Lock()
		p := k.Open(key(), quota.Window{ID: "w"}, terms(1000), &lock)
		ready := p.Await(3)
		lock.Unlock()
		<-ready
		lock.Lock()
		p.Charge(k.Instant(time.Now()), 3)
		lock.Unlock()
		cancel()
		<-done
		if err := k.Settle(context.Background()); err != nil {
			t.Fatal(err)
		}
		if a := m.Account(key()); a.Used() != 3 || a.Leased() != 0 {
			t.Fatalf("used %d, leased %d after settling, want 3 and 0", a.Used(), a.Leased())
		}
	})
}

func TestKeeper_ForgottenPurseGoesOnWhereItEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := open(t, &storetest.Memory{}, "a", terms(1000))
		r.mustCharge(5)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		r.lock.Lock()
		if !r.keeper.Forget(r.purse) {
			t.Fatal("a settled purse could not be forgotten")
		}
		r.purse = r.keeper.Open(key(), quota.Window{ID: "w"}, terms(1000), &r.lock)
		r.lock.Unlock()
		r.mustCharge(2)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if a := r.memory.Account(key()); a.Used() != 7 {
			t.Fatalf("used %d, want 7", a.Used())
		}
	})
}
