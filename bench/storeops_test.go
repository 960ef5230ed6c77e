package bench_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// How often the store is asked for a million decisions, of which 10,000 come each second
// for all tenants alike: by the number of tenants and of seconds, not of requests. The
// clock is the test's, so the figures are the same on every machine; "go test -v -run
// StoreOperations ./bench" prints them.
func TestStoreOperations_Q44_PerMillionDecisions(t *testing.T) {
	t.Parallel()
	const decisions, perSecond = 1_000_000, 10_000
	for _, c := range []struct {
		tenants int
		most    int64
	}{
		{1, 25}, {1_000, 20_000}, {40_000, 200_000},
	} {
		t.Run(fmt.Sprint(c.tenants, " tenants"), func(t *testing.T) {
			t.Parallel()
			if c.tenants > 1000 && !heavy {
				t.Skip("takes too long under the race detector")
			}
			synctest.Test(t, func(t *testing.T) {
				k := quota.NewKeeper(quota.KeeperConfig{Store: &storetest.Memory{}, Now: time.Now}, "replica")
				ctx, cancel := context.WithCancel(t.Context())
				var running sync.WaitGroup
				running.Go(func() { _ = k.Run(ctx) })
				f := openFleet(k, c.tenants)
				began := time.Now()
				for i := range decisions {
					if i%100 == 0 {
						time.Sleep(100 * time.Second / perSecond)
						synctest.Wait()
					}
					f.charge(i % c.tenants)
				}
				s := k.Stats()
				n := s.Granted + s.Refused + s.Reported
				t.Logf("%6d tenants, %d decisions in %v: %d store operations (%d leases, %d reports)",
					c.tenants, decisions, time.Since(began), n, s.Granted, s.Reported)
				if n > c.most {
					t.Errorf("%d operations, want at most %d", n, c.most)
				}
				cancel()
				running.Wait()
			})
		})
	}
}

// A purses is one purse for each tenant.
type purses struct {
	keeper *quota.Keeper
	mu     sync.Mutex
	all    []*quota.Purse
}

func openFleet(k *quota.Keeper, tenants int) *purses {
	f := &purses{keeper: k}
	tm := &quota.Terms{App: "api", Amount: 1_000_000_000, Ceiling: 1_000_000_000, Rule: quota.DefaultLeaseRule()}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range tenants {
		name := fmt.Sprint("org:", i)
		f.all = append(f.all, k.Open(quota.Key{Root: name, Tenant: name, Limit: "monthly", Window: "w"}, quota.Window{ID: "w"}, tm, &f.mu))
	}
	return f
}

// charge does what a request does.
func (f *purses) charge(i int) {
	for {
		f.mu.Lock()
		at, p := f.keeper.Instant(time.Now()), f.all[i]
		if p.Room(at, 1) == quota.Fits {
			p.Charge(at, 1)
			f.mu.Unlock()
			return
		}
		ready := p.Await(1)
		f.mu.Unlock()
		<-ready
	}
}
