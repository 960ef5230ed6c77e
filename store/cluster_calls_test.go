package store_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/store"
)

// A fakeEndpoint answers as it is told: at once, or with err, or never.
type fakeEndpoint struct {
	clientv3.KV
	clientv3.Lease
	hangs atomic.Bool
	err   atomic.Pointer[error]
	calls atomic.Int64
}

func (f *fakeEndpoint) fail(err error) { f.err.Store(&err) }

func (f *fakeEndpoint) answer(ctx context.Context) error {
	f.calls.Add(1)
	if f.hangs.Load() {
		<-ctx.Done()
		return ctx.Err()
	}
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *fakeEndpoint) Do(ctx context.Context, _ clientv3.Op) (clientv3.OpResponse, error) {
	return clientv3.OpResponse{}, f.answer(ctx)
}

func (f *fakeEndpoint) Grant(ctx context.Context, _ int64) (*clientv3.LeaseGrantResponse, error) {
	return &clientv3.LeaseGrantResponse{}, f.answer(ctx)
}

// fakeCluster returns a cluster of n endpoints, the first of which is preferred.
func fakeCluster(t *testing.T, n int) (*store.Cluster, []*fakeEndpoint) {
	t.Helper()
	var clients []*clientv3.Client
	var fakes []*fakeEndpoint
	for range n {
		f := &fakeEndpoint{}
		c := clientv3.NewCtxClient(t.Context())
		c.KV, c.Lease = f, f
		clients, fakes = append(clients, c), append(fakes, f)
	}
	return store.ClusterOf(clients...), fakes
}

// isOn tells that calls go to fakes[i], by making one.
func isOn(t *testing.T, c *store.Cluster, fakes []*fakeEndpoint, i int) {
	t.Helper()
	before := fakes[i].calls.Load()
	if err := do(t.Context(), c, time.Second, aPut()); err != nil || fakes[i].calls.Load() != before+1 {
		t.Errorf("a write ended with %v; endpoint %d got %d calls, want one more than %d", err, i, fakes[i].calls.Load(), before)
	}
}

func aGet() clientv3.Op { return clientv3.OpGet("k") }
func aPut() clientv3.Op { return clientv3.OpPut("k", "v") }

func do(ctx context.Context, c *store.Cluster, limit time.Duration, op clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := c.Do(ctx, op)
	return err
}

const try = 120 * time.Millisecond // what callers give one request

func TestCluster_AReadIsAskedOfAnotherEndpointInTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		limit, want time.Duration
		hang        int
	}{
		{2 * time.Second, 2 * time.Second / 3, 1},
		{300 * time.Millisecond, try, 1},
		{300 * time.Millisecond, 2 * try, 2},
		{2 * time.Second, 2*time.Second/3 + (2*time.Second-2*time.Second/3)/2, 2},
	} {
		synctest.Test(t, func(t *testing.T) {
			cluster, fakes := fakeCluster(t, 3)
			for i := range c.hang {
				fakes[i].hangs.Store(true)
			}
			began := time.Now()
			if err := do(t.Context(), cluster, c.limit, aGet()); err != nil || time.Since(began) != c.want {
				t.Errorf("%d hang: %v after %v, want an answer after %v", c.hang, err, time.Since(began), c.want)
			}
			isOn(t, cluster, fakes, c.hang)
			if h := cluster.Health(); h.Failovers != int64(c.hang) || !h.Up || len(h.Quarantined) != c.hang {
				t.Errorf("%d hang: health %+v", c.hang, h)
			}
		})
	}
}

// A read may take long; only the last endpoint may have all the time that is left.
func TestCluster_AReadWithoutADeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, fakes := fakeCluster(t, 3)
		fakes[0].hangs.Store(true)
		if _, err := cluster.Do(t.Context(), aGet()); err != nil || fakes[1].calls.Load() != 1 {
			t.Errorf("%v; %d calls of the second endpoint", err, fakes[1].calls.Load())
		}
	})
}

// Whether a write was done is not known: its caller repeats it, elsewhere.
func TestCluster_A56_AWriteIsSentOnce(t *testing.T) {
	t.Parallel()
	inner := clientv3.OpTxn(nil, []clientv3.Op{aGet()}, []clientv3.Op{clientv3.OpDelete("k")})
	for name, c := range map[string]struct {
		op    clientv3.Op
		calls int64 // of the second endpoint
	}{
		"put":                   {aPut(), 0},
		"delete":                {clientv3.OpDelete("k"), 0},
		"transaction":           {clientv3.OpTxn(nil, []clientv3.Op{aGet(), aPut()}, nil), 0},
		"nested transactions":   {clientv3.OpTxn(nil, []clientv3.Op{inner}, nil), 0},
		"transaction of reads":  {clientv3.OpTxn(nil, []clientv3.Op{aGet()}, []clientv3.Op{aGet()}), 1},
		"nested, of reads":      {clientv3.OpTxn(nil, []clientv3.Op{clientv3.OpTxn(nil, []clientv3.Op{aGet()}, nil)}, nil), 1},
		"get, for comparison":   {aGet(), 1},
		"transaction of nought": {clientv3.OpTxn(nil, nil, nil), 1},
	} {
		for _, err := range []error{nil, status.Error(codes.Unavailable, "gone"), rpctypes.ErrNoLeader} {
			synctest.Test(t, func(t *testing.T) {
				cluster, fakes := fakeCluster(t, 2)
				fakes[0].hangs.Store(err == nil)
				fakes[0].fail(err)
				got := do(t.Context(), cluster, 2*try, c.op)
				if fakes[0].calls.Load() != 1 || fakes[1].calls.Load() != c.calls || (got == nil) != (c.calls == 1) {
					t.Errorf("%s: %v; %d and %d calls", name, got, fakes[0].calls.Load(), fakes[1].calls.Load())
				}
				isOn(t, cluster, fakes, 1)
			})
		}
	}
}

// What a caller gives up, or gives no time, is no fault of the endpoint; nor is an
// answer that says no.
func TestCluster_WhatIsNoFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, fakes := fakeCluster(t, 3)
		fakes[0].hangs.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		for _, op := range []clientv3.Op{aPut(), clientv3.OpTxn(nil, []clientv3.Op{aPut()}, nil)} {
			if _, err := cluster.Do(ctx, op); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		if err := do(t.Context(), cluster, 90*time.Millisecond, aPut()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if err := do(t.Context(), cluster, 90*time.Millisecond, aGet()); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		fakes[0].hangs.Store(false)
		for _, no := range []error{
			rpctypes.ErrPermissionDenied, rpctypes.ErrCompacted, rpctypes.ErrTooManyRequests, rpctypes.ErrGRPCNoSpace,
			status.Error(codes.InvalidArgument, "no"), status.Error(codes.Canceled, "closing"),
		} {
			fakes[0].fail(no)
			if err := do(t.Context(), cluster, try, aGet()); !errors.Is(err, no) {
				t.Errorf("got %v, want %v", err, no)
			}
		}
		if fakes[1].calls.Load()+fakes[2].calls.Load() != 0 {
			t.Error("another endpoint was asked")
		}
		if h := cluster.Health(); h.Failovers != 0 || len(h.Quarantined) != 0 || !h.Up {
			t.Errorf("health %+v", h)
		}
	})
}

// Nobody goes back to a silent endpoint while there is another; if there is none, the
// one that was silent longest ago gets the next call.
func TestCluster_P74_Quarantine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, fakes := fakeCluster(t, 3)
		silence := func(i int) {
			t.Helper()
			fakes[i].hangs.Store(true)
			before := fakes[i].calls.Load()
			if err := do(t.Context(), cluster, try, aPut()); err == nil || fakes[i].calls.Load() != before+1 {
				t.Fatalf("endpoint %d should have been silent, but %v", i, err)
			}
		}
		quarantined := func(want int, up bool, when string) {
			t.Helper()
			if h := cluster.Health(); len(h.Quarantined) != want || h.Up != up {
				t.Errorf("%s: health %+v, want %d in quarantine, up %v", when, h, want, up)
			}
		}
		silence(0)
		isOn(t, cluster, fakes, 1)
		time.Sleep(10 * time.Second)
		quarantined(1, true, "10 s")
		silence(1)
		isOn(t, cluster, fakes, 2)
		quarantined(2, true, "two")
		time.Sleep(6 * time.Second)
		quarantined(1, true, "16 s")
		silence(2)
		quarantined(2, false, "all silent")
		silence(0)
		silence(1)
		fakes[2].hangs.Store(false)
		isOn(t, cluster, fakes, 2)
		quarantined(2, true, "one answers")
		time.Sleep(15 * time.Second)
		quarantined(0, true, "later")
		if got := cluster.Health().Failovers; got != 5 {
			t.Errorf("%d failovers, want 5", got)
		}
	})
}

// An answer on another endpoint ends the search.
func TestCluster_AnAnswerMakesAnEndpointPreferred(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, fakes := fakeCluster(t, 3)
		fakes[0].hangs.Store(true)
		fakes[1].hangs.Store(true)
		_ = do(t.Context(), cluster, try, aPut()) // 0 is silent, 1 is preferred
		patient := make(chan error, 1)
		go func() { patient <- do(t.Context(), cluster, time.Minute, aPut()) }() // on 1
		synctest.Wait()
		_ = do(t.Context(), cluster, try, aPut()) // 1 is silent, 2 is preferred
		isOn(t, cluster, fakes, 2)
		if err := <-patient; err == nil { // late word of 1 changes nothing
			t.Error("an answer")
		}
		isOn(t, cluster, fakes, 2)
	})
}

func TestCluster_AnOnlyEndpointIsNeverLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, fakes := fakeCluster(t, 1)
		fakes[0].hangs.Store(true)
		for range 3 {
			began := time.Now()
			if err := do(t.Context(), cluster, time.Second, aGet()); err == nil || time.Since(began) != time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
		if h := cluster.Health(); h.Up || h.Failovers != 0 || len(h.Quarantined) != 0 || h.Preferred == "" {
			t.Errorf("health %+v", h)
		}
		fakes[0].hangs.Store(false)
		isOn(t, cluster, fakes, 0)
		if h := cluster.Health(); !h.Up {
			t.Errorf("health %+v", h)
		}
	})
}

// C120: what keeps a replica registered and its documents true calls a dead store at
// a steady rate, however long it is dead and however it fails.
func TestCluster_C120_CallsToADeadStoreStayFlat(t *testing.T) {
	t.Parallel()
	for name, err := range map[string]error{"hangs": nil, "fails at once": status.Error(codes.Unavailable, "dead")} {
		synctest.Test(t, func(t *testing.T) {
			cluster, fakes := fakeCluster(t, 3)
			for _, f := range fakes {
				f.hangs.Store(err == nil)
				f.fail(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{}, 2)
			go func() { _ = store.NewDocuments(cluster).Run(ctx); done <- struct{}{} }()
			go func() { _ = store.NewMembers(cluster, "a").Run(ctx); done <- struct{}{} }()
			calls := func() (n int64) {
				for _, f := range fakes {
					n += f.calls.Load()
				}
				return n
			}
			time.Sleep(time.Minute) // pauses have grown
			for range 3 {
				before := calls()
				time.Sleep(10 * time.Minute)
				// Three loops, one round of three calls a second each at most.
				if rate := float64(calls()-before) / 600; rate == 0 || rate > 12 {
					t.Errorf("%s: %.1f calls a second", name, rate)
				}
			}
			if n := cluster.Health().Failovers; n == 0 {
				t.Errorf("%s: no failover", name)
			}
			cancel()
			<-done
			<-done
		})
	}
}

func TestNewCluster_HasAClientForEachEndpoint(t *testing.T) {
	t.Parallel()
	cluster, err := store.NewCluster(store.Config{Endpoints: []string{"127.0.0.1:1", "127.0.0.1:2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Close() }()
	var names []string
	for _, c := range cluster.Clients() {
		names = append(names, c.Endpoints()...)
	}
	if got := strings.Join(names, " "); got != "127.0.0.1:1 127.0.0.1:2" {
		t.Errorf("clients of %s", got)
	}
	if h := cluster.Health(); !strings.HasPrefix(h.Preferred, "127.0.0.1:") || !h.Up {
		t.Errorf("health %+v", h)
	}
	if _, err := store.NewCluster(store.Config{}); err == nil {
		t.Error("a cluster without an endpoint")
	}
}
