package store_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// lateReads answers reads at the last moment that they may take.
type lateReads struct{ store.Doer }

// Do implements [store.Doer]. A transaction fails at once if its time is over: whether
// it would be sent is a race.
func (l lateReads) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsTxn() && ctx.Err() != nil {
		return clientv3.OpResponse{}, ctx.Err()
	}
	r, err := l.Doer.Do(ctx, op)
	if op.IsGet() {
		<-ctx.Done()
	}
	return r, err
}

// Each request has its own time: what a read took is not missing to the swap, or an
// etcd that is 60 ms away would never apply anything.
func TestAccounts_A56_ASlowReadLeavesTheSwapItsTime(t *testing.T) {
	t.Parallel()
	me := unique(t)
	put(t, server.Client(), store.LiableKey(me), "")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r, err := store.NewAccounts(lateReads{server.Client()}).Apply(ctx, quota.Operation{
		Key: quota.Key{Tenant: me}, Holder: me, Seq: 1, Want: 5, Min: 1, Ceiling: 100,
	})
	if err != nil || r.Granted != 5 {
		t.Errorf("got %+v, %v; want 5 granted", r, err)
	}
}

// hangingRevoke is an etcd that is slow to end leases.
type hangingRevoke struct{ clientv3.Lease }

func (hangingRevoke) Revoke(ctx context.Context, _ clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// noDeadWrites fails what would be sent when its time is over.
type noDeadWrites struct{ clientv3.KV }

func (k noDeadWrites) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if err := ctx.Err(); err != nil {
		return clientv3.OpResponse{}, err
	}
	return k.KV.Do(ctx, op)
}

// A clean stop takes both keys away before anything that may take long: until the
// liable key is gone, nobody gets the units of what was not settled.
func TestMembers_ACleanStopDeletesBothKeysFirst(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	slow := clientv3.NewCtxClient(t.Context())
	slow.KV, slow.Lease, slow.Watcher = noDeadWrites{c.KV}, hangingRevoke{c.Lease}, c.Watcher
	a := startMember(t, slow, "a", time.Minute)
	eventually(t, "registered", func() bool { return len(a.Replicas()) == 1 && a.Liable(a.Incarnation()) })
	a.stop()
	for _, key := range []string{store.ReplicaKey(a.Incarnation()), store.LiableKey(a.Incarnation())} {
		if r, err := c.Get(t.Context(), key); err != nil || len(r.Kvs) != 0 {
			t.Errorf("%s is left, %v", key, err)
		}
	}
}

// hangingHistory never answers what a single key once was.
type hangingHistory struct{ clientv3.KV }

func (h hangingHistory) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsGet() && op.Rev() > 0 && op.RangeBytes() == nil {
		<-ctx.Done()
		return clientv3.OpResponse{}, ctx.Err()
	}
	return h.KV.Do(ctx, op)
}

// Documents of which no good version is known here are looked for in history. Where
// that hangs, all of them together wait for it once.
func TestDocuments_AHangingHistoryIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5))
	for n := range 20 {
		put(t, c, store.DocumentKey(plan.KindTenant, fmt.Sprint("org:", n)), "{")
	}
	slow := clientv3.NewCtxClient(t.Context())
	slow.KV, slow.Watcher = hangingHistory{c.KV}, c.Watcher
	r := startDocuments(t, slow, zerolog.Nop())
	r.until("the first read", hasAmount("free", 5))
}

// stuckWatcher takes no request for progress once it is stuck, as a stream does
// that is being opened again.
type stuckWatcher struct {
	clientv3.Watcher
	is atomic.Bool
}

func (w *stuckWatcher) RequestProgress(ctx context.Context) error {
	if w.is.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	return w.Watcher.RequestProgress(ctx)
}

// A stream that takes no requests delays an edit that has arrived no longer than one
// that says nothing.
func TestDocuments_AStuckStreamHoldsUpNothing(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	stuck := stuckWatcher{Watcher: c.Watcher}
	slow := clientv3.NewCtxClient(t.Context())
	slow.KV, slow.Watcher = c.KV, &stuck
	r := &replica{Documents: store.NewDocuments(store.ClusterOf(slow)), t: t}
	r.Progress, r.Silence = time.Minute, 2*time.Minute
	var ctx context.Context
	ctx, r.cancel = context.WithCancel(t.Context())
	r.done.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(r.stop)
	r.until("the first read", func(*plan.Snapshot) bool { return true })
	stuck.is.Store(true)
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r.until("the edit", hasAmount("pro", 1))
}

// A list of a tenant's accounts is of one revision, though it takes two requests.
func TestAccounts_AListIsOfOneRevision(t *testing.T) {
	t.Parallel()
	s, me := subject(t), unique(t)
	s.SetLiable(me, true)
	use := func(high bool) {
		key := quota.Key{Tenant: me, Limit: "l", Window: "w"}
		for range 1000 {
			key.Root = unique(t)
			if at := len(store.AccountsPrefix); store.AccountKey(key)[at] >= '8' == high {
				break
			}
		}
		apply(t, s.Store, quota.Operation{Key: key, Holder: me, Seq: 1, Used: 1, Ceiling: 100})
	}
	use(false)
	var once sync.Once
	w := newWire(func(n int, _ clientv3.Op) fault {
		if n == 1 {
			once.Do(func() { use(true) })
		}
		return fault{}
	})
	got, err := store.NewAccounts(w).List(t.Context(), me)
	if err != nil || len(got) != 1 {
		t.Errorf("got %d accounts, %v; want the one that was there at first", len(got), err)
	}
}
