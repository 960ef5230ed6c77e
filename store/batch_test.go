package store_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

func TestBatch_Q44_ManyOperationsTakeFewTransactions(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	accounts := w.nested()
	for i, o := range together(t, w, accounts, asks(t, 200)) {
		if o.err != nil || o.Result != granted() {
			t.Fatalf("operation %d: %+v, %v", i, o.Result, o.err)
		}
	}
	if got := w.swaps(); !slices.Equal(got, []int{64, 64, 64, 8}) {
		t.Errorf("transactions of %v accounts, want 64, 64, 64 and 8", got)
	}
	want := store.AccountStats{Operations: 201, Reads: 5, Writes: 4}
	if got := accounts.Stats(); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
}

// What comes alone waits for nobody.
func TestBatch_A34_AnIdleLineSendsAtOnce(t *testing.T) {
	t.Parallel()
	w := newWire(nil)
	accounts := w.nested()
	for _, op := range asks(t, 2) {
		if got := apply(t, accounts, op); got != granted() {
			t.Errorf("got %+v", got)
		}
	}
	if got := w.swaps(); !slices.Equal(got, []int{1, 1}) {
		t.Errorf("transactions of %v accounts, want one each", got)
	}
	if busy, waiting := accounts.Line(); busy && waiting > 0 {
		t.Errorf("%d are left in line", waiting)
	}
}

// In a batch some lose to another replica, some have old terms, and some holders are
// gone; all others are applied, and so are the losers in the next one.
func TestBatch_C102_LosersFailNobodyElse(t *testing.T) {
	t.Parallel()
	s, ops := subject(t), asks(t, 64)
	const loser, stale, gone = 7, 20, 33
	for i := range ops {
		ops[i].Guards = []quota.Guard{{Kind: string(plan.KindTenant), Name: ops[i].Holder}}
	}
	rival := asks(t, 1)[0]
	rival.Key = ops[loser].Key
	w := newWire(func(_ int, op clientv3.Op) fault {
		if accountsIn(op) < len(ops) {
			return fault{}
		}
		return fault{first: func() {
			apply(t, s.Store, rival)
			s.Edit(string(plan.KindTenant), ops[stale].Holder)
			s.SetLiable(ops[gone].Holder, false)
		}}
	})
	accounts := w.nested()
	for i, o := range together(t, w, accounts, ops) {
		switch i {
		case loser:
			if want := (quota.Result{Granted: 5, Left: 90, Leased: 10, Seq: 1}); o.err != nil || o.Result != want {
				t.Errorf("the loser: %+v, %v; want %+v", o.Result, o.err, want)
			}
		case stale:
			if !errors.Is(o.err, quota.ErrStale) || !strings.Contains(o.err.Error(), ops[stale].Holder) {
				t.Errorf("under an old guard: %v, want ErrStale that names it", o.err)
			}
		case gone:
			if !errors.Is(o.err, quota.ErrGone) {
				t.Errorf("of a gone holder: %v, want ErrGone", o.err)
			}
		default:
			if o.err != nil || o.Result != granted() {
				t.Errorf("operation %d: %+v, %v", i, o.Result, o.err)
			}
		}
	}
	if got := w.swaps(); !slices.Equal(got, []int{64, 1}) {
		t.Errorf("transactions of %v accounts, want all and then the loser", got)
	}
	if got := accounts.Stats(); got.Lost != 3 || got.Reads != 2 {
		t.Errorf("counted %+v, want 3 lost, and no further read for the loser", got)
	}
}

// The reply of a batch is lost: whether it was applied or not, each of its operations
// is applied once.
func TestBatch_C102_AfterALostReplyAllIsAppliedOnce(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{
		"applied":     {reply: rpctypes.ErrTimeoutDueToConnectionLost},
		"not applied": {lost: rpctypes.ErrTimeoutDueToConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, ops := subject(t), asks(t, 64)
			var once sync.Once
			w := newWire(func(_ int, op clientv3.Op) (now fault) {
				if accountsIn(op) > 1 {
					once.Do(func() { now = f })
				}
				return now
			})
			accounts := w.nested()
			for i := range ops {
				ops[i].Used, ops[i].App = 3, "" // no first use, which would travel by itself
			}
			for i, o := range together(t, w, accounts, ops) {
				want := quota.Result{Granted: 5, Left: 92, Used: 3, Leased: 5, Seq: 1, Own: 3}
				if o.err != nil || o.Result != want {
					t.Errorf("operation %d: %+v, %v", i, o.Result, o.err)
				}
				if a := s.Account(ops[i].Key); a.Used() != 3 || a.Leased() != 5 {
					t.Errorf("account %d: %+v", i, a)
				}
			}
			if got := accounts.Stats().Unknown; got != 64 {
				t.Errorf("%d of unknown outcome, want 64", got)
			}
		})
	}
}

// A read after an unknown outcome goes through the leader; others ask any member.
func TestBatch_A34_OnlyDoubtsAreReadThroughTheLeader(t *testing.T) {
	t.Parallel()
	ops := asks(t, 3)
	var once sync.Once
	w := newWire(func(_ int, op clientv3.Op) (f fault) {
		if accountsIn(op) > 1 {
			once.Do(func() { f.reply = context.DeadlineExceeded })
		}
		return f
	})
	together(t, w, w.nested(), ops)
	wrote := 0
	for _, op := range w.sent() {
		if accountsIn(op) > 0 {
			wrote++
			continue
		}
		_, gets, _ := op.Txn()
		for _, get := range gets {
			if get.IsSerializable() != (wrote == 0) {
				t.Errorf("after %d transactions: a serializable read is %v", wrote, get.IsSerializable())
			}
		}
	}
}

// etcd refuses a transaction that puts a key twice, so operations on one account
// travel one after the other.
func TestBatch_C111_AnAccountIsInABatchOnce(t *testing.T) {
	t.Parallel()
	s, ops := subject(t), asks(t, 30)
	for i := range ops {
		ops[i].Key = ops[i%10].Key
	}
	w := newWire(nil)
	accounts := w.nested()
	for i, o := range together(t, w, accounts, ops) {
		if o.err != nil || o.Granted != 5 {
			t.Errorf("operation %d: %+v, %v", i, o.Result, o.err)
		}
	}
	for i := range 10 {
		if got := s.Account(ops[i].Key).Leased(); got != 15 {
			t.Errorf("account %d: %d leased, want 15", i, got)
		}
	}
	if got := accounts.Stats(); got.Lost > 0 || got.Writes != 3 {
		t.Errorf("counted %+v, want 3 writes and none lost", got)
	}
}
