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

// A shardedStore keeps the accounts of trees in shards: those under org:b and org:c share
// one.
type shardedStore struct{ *storetest.Memory }

func shardOf(root string) string {
	if root == "org:a" {
		return "1"
	}
	return "2"
}

func (s shardedStore) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	op.Key.Root = shardOf(op.Key.Root)
	return s.Memory.Apply(ctx, op)
}

// A movingTill is a replica of a tenant that moves between trees.
type movingTill struct {
	*quota.Keeper
	memory *storetest.Memory
	lock   sync.Mutex
}

func newMovingTill(t *testing.T) *movingTill {
	t.Helper()
	m := &storetest.Memory{Trees: true}
	k := &movingTill{memory: m, Keeper: quota.NewKeeper(quota.KeeperConfig{
		Store: shardedStore{m}, Now: time.Now,
		SameAccount: func(a, b quota.Key) bool { return shardOf(a.Root) == shardOf(b.Root) },
	}, "a")}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return k
}

func (k *movingTill) now() quota.Instant { return k.Instant(time.Now()) }

func under(root string) quota.Key {
	return quota.Key{Root: root, Tenant: "user:u", Limit: "monthly", Window: "w"}
}

// settleLate settles a charge in the tree under root, while the tenant is in that under home.
func (k *movingTill) settleLate(root, home string, s quota.Settlement) {
	k.lock.Lock()
	defer k.lock.Unlock()
	p := k.OpenLate(under(root), home, terms(1000), &k.lock)
	p.Settle(k.now(), s)
	p.Close()
}

// request charges n units in the tree under root, whatever there is.
func (k *movingTill) request(root string, n int64) *quota.Purse {
	k.lock.Lock()
	defer k.lock.Unlock()
	tm := terms(1000)
	tm.Counts = true
	p := k.Open(under(root), quota.Window{ID: "w"}, tm, &k.lock)
	p.Charge(k.now(), n)
	return p
}

// wantUsed compares what is used in the two shards once all is reported.
func (k *movingTill) wantUsed(t *testing.T, first, second int64) {
	t.Helper()
	time.Sleep(5 * time.Minute)
	synctest.Wait()
	for shard, want := range map[string]int64{"1": first, "2": second} {
		key := under(shard)
		if got := k.memory.Account(key).Used(); got != want {
			t.Errorf("shard %s: %d used, want %d", shard, got, want)
		}
	}
}

// A settlement in the tree that a tenant has left is not where the next request of the
// tenant is charged.
func TestOpenLate_A26_BeforeTheFirstRequestElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newMovingTill(t)
		k.settleLate("org:b", "org:a", quota.Settlement{Used: 7})
		k.request("org:a", 10)
		k.wantUsed(t, 10, 7)
		k.request("org:b", 3) // back again
		k.settleLate("org:a", "org:b", quota.Settlement{Charged: 10, Used: 4})
		k.wantUsed(t, 4, 10)
	})
}

// Settlements in two trees that share an account are one account's.
func TestOpenLate_A26_TwoTreesOfOneShard(t *testing.T) {
	t.Parallel()
	for name, requested := range map[string]bool{"no request": false, "a request before": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newMovingTill(t)
				var first int64
				if requested {
					k.request("org:a", 1)
					first = 1
				}
				k.settleLate("org:b", "org:a", quota.Settlement{Used: 7})
				k.settleLate("org:c", "org:a", quota.Settlement{Used: 20})
				k.settleLate("org:b", "org:a", quota.Settlement{Charged: 7, Used: 5})
				k.wantUsed(t, first, 25)
			})
		})
	}
}

// A tenant that goes on in a tree whose account has a late purse of another tree is
// charged to that account, once.
func TestOpen_A26_AfterALateOneOfItsShard(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newMovingTill(t)
		k.settleLate("org:b", "org:a", quota.Settlement{Used: 7})
		k.request("org:c", 10)
		k.request("org:c", 10)
		k.wantUsed(t, 0, 27)
		k.request("org:c", 1)
		k.wantUsed(t, 0, 28)
	})
}

// What is given back to a forgotten purse does not reach the account of another tree.
func TestRefund_A26_OfATreeThatWasLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newMovingTill(t)
		p := k.request("org:a", 10)
		k.lock.Lock()
		p.Close()
		k.lock.Unlock()
		k.wantUsed(t, 10, 0)
		k.lock.Lock()
		if !k.Forget(p) {
			t.Error("not forgotten")
		}
		k.lock.Unlock()
		k.request("org:b", 30)
		k.lock.Lock()
		p.Refund(k.now(), 10, 10)
		k.lock.Unlock()
		k.wantUsed(t, 10, 30)
	})
}

// Requests that come at once after a move are charged in the tree that the tenant is in,
// while what was used before is reported where it was.
func TestOpen_A26_AtOnceAfterAMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newMovingTill(t)
		k.request("org:a", 10)
		k.request("org:b", 7)
		k.request("org:b", 1)
		k.request("org:a", 5) // back before all is reported
		k.request("org:c", 2)
		k.wantUsed(t, 15, 10)
	})
}
