package store_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// farKV is an etcd as far away as far, in fake time, in which nobody has used any account.
type farKV struct {
	clientv3.KV
	far time.Duration
}

func (k *farKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	select {
	case <-time.After(k.far):
	case <-ctx.Done():
		return clientv3.OpResponse{}, ctx.Err()
	}
	h := &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 1}
	if !op.IsTxn() {
		return opResponse(&etcdserverpb.RangeResponse{}, h)
	}
	_, then, _ := op.Txn()
	r := &etcdserverpb.TxnResponse{Succeeded: true, Header: h}
	for _, inner := range then {
		one := &etcdserverpb.ResponseOp{Response: &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: &etcdserverpb.RangeResponse{}}}
		if inner.IsTxn() {
			one.Response = &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: &etcdserverpb.TxnResponse{Succeeded: true}}
		}
		r.Responses = append(r.Responses, one)
	}
	return (*clientv3.TxnResponse)(r).OpResponse(), nil
}

// farAccounts are those of a replica that has heard of its etcd before.
func farAccounts(t *testing.T, kv *farKV) *store.Accounts {
	t.Helper()
	c := clientv3.NewCtxClient(t.Context())
	c.KV = kv
	cluster := store.ClusterOf(c)
	accounts := store.NewAccounts(cluster)
	accounts.SetBatching(store.Nested)
	accounts.Liable, accounts.RoundTrip = func(string) bool { return true }, cluster.RoundTrip
	if _, err := cluster.Do(t.Context(), aGet()); err != nil {
		t.Fatal(err)
	}
	if got := cluster.RoundTrip(); got != kv.far {
		t.Fatalf("round trip %v, want %v", got, kv.far)
	}
	return accounts
}

func firstLease(n int) quota.Operation {
	return quota.Operation{Key: quota.Key{Tenant: fmt.Sprint("t", n)}, Holder: "me", Seq: 1, Want: 5, Min: 1, Ceiling: 100, Replicas: 1}
}

// An etcd 100 ms away is as good as a near one: of the first leases of new tenants, 50 a
// second, each is there within the 300 ms that a request waits.
func TestAccounts_A56_A61_FirstLeasesOfADistantEtcd(t *testing.T) {
	t.Parallel()
	for _, far := range []time.Duration{time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond, 100 * time.Millisecond, 120 * time.Millisecond} {
		t.Run(far.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				accounts := farAccounts(t, &farKV{far: far})
				const n = 500
				took := make(chan time.Duration, n)
				for i := range n {
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
						defer cancel()
						began := time.Now()
						if r, err := accounts.Apply(ctx, firstLease(i)); err != nil || r.Granted != 5 {
							t.Errorf("tenant %d: %+v, %v after %v", i, r, err, time.Since(began))
						}
						took <- time.Since(began)
					}()
					time.Sleep(20 * time.Millisecond)
				}
				slowest := time.Duration(0)
				for range n {
					slowest = max(slowest, <-took)
				}
				t.Logf("the slowest took %v", slowest)
			})
		})
	}
}

// A first lease takes two round trips, also where the purse asks first what the account
// knows of it.
func TestAccounts_A56_AFirstLeaseTakesTwoRoundTrips(t *testing.T) {
	t.Parallel()
	for _, asks := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const far = 100 * time.Millisecond
			accounts := farAccounts(t, &farKV{far: far})
			began := time.Now()
			if asks {
				question := firstLease(1)
				question.Seq, question.Want, question.Min = 0, 0, 0
				if _, err := accounts.Apply(t.Context(), question); err != nil {
					t.Fatal(err)
				}
			}
			if r, err := accounts.Apply(t.Context(), firstLease(1)); err != nil || r.Granted != 5 {
				t.Errorf("%+v, %v", r, err)
			}
			if took := time.Since(began); took != 2*far {
				t.Errorf("asks %v: took %v, want %v", asks, took, 2*far)
			}
		})
	}
}

// Near, one batch is under way at a time: what was read for a second one would be old.
func TestBatch_A34_OneBatchAtATimeWhereEtcdIsNear(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &farKV{far: time.Millisecond}
		accounts := farAccounts(t, kv)
		time.Sleep(time.Second)
		kv.far = 100 * time.Millisecond // it has too much to do, and is no farther away
		for i := range 10 {
			go func() { _, _ = accounts.Apply(t.Context(), firstLease(i)) }()
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Second)
		if got := accounts.Stats(); got.Writes != 2 {
			t.Errorf("%+v, want one batch and then all that came meanwhile", got)
		}
	})
}

// A try has two round trips where those are long, so that a distant etcd is not taken for
// a silent one.
func TestCluster_A56_PatienceFollowsTheRoundTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &farKV{far: 130 * time.Millisecond} // longer than a try to a near one
		accounts := farAccounts(t, kv)
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if r, err := accounts.Apply(ctx, firstLease(1)); err != nil || r.Granted != 5 {
			t.Errorf("%+v, %v", r, err)
		}
		if got := accounts.Stats(); got.Reads != 1 || got.Writes != 1 {
			t.Errorf("%+v, want one read and one write", got)
		}
	})
}
