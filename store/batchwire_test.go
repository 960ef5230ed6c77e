package store_test

import (
	"context"
	"sync"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// A wire is the way from accounts to the server: tests see, fail and hold what goes
// over it. On it no request runs out of time, however slow the machine is.
type wire struct {
	store.Doer
	how func(n int, op clientv3.Op) fault // of the nth transaction; nil: none

	mu   sync.Mutex
	txns []clientv3.Op // sent, in order; single gets are none
	gate chan struct{} // while it is there requests wait until it is closed
}

// A fault is what goes wrong with a transaction. The zero fault is none.
type fault struct {
	lost  error  // instead of sending it
	first func() // is done before it is sent
	then  func() // is done before it is answered
	reply error  // instead of the answer
}

func newWire(how func(n int, op clientv3.Op) fault) *wire {
	return &wire{Doer: server.Client(), how: how}
}

// Do implements [store.Doer].
func (w *wire) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	ctx = context.WithoutCancel(ctx)
	w.mu.Lock()
	gate, n := w.gate, len(w.txns)
	if op.IsTxn() {
		w.txns = append(w.txns, op)
	}
	w.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if !op.IsTxn() || w.how == nil {
		return w.Doer.Do(ctx, op)
	}
	f := w.how(n, op)
	if f.lost != nil {
		return clientv3.OpResponse{}, f.lost
	}
	if f.first != nil {
		f.first()
	}
	r, err := w.Doer.Do(ctx, op)
	if f.then != nil {
		f.then()
	}
	if err == nil && f.reply != nil {
		return clientv3.OpResponse{}, f.reply
	}
	return r, err
}

func (w *wire) calls() int { return len(w.sent()) }

// sent returns the transactions up to now.
func (w *wire) sent() []clientv3.Op {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.txns[:len(w.txns):len(w.txns)]
}

// swaps returns the sizes of the transactions with conditions: the number of
// accounts of each.
func (w *wire) swaps() []int {
	var sizes []int
	for _, op := range w.sent() {
		if n := accountsIn(op); n > 0 {
			sizes = append(sizes, n)
		}
	}
	return sizes
}

// accountsIn returns how many accounts a transaction compares; 0 if it only reads.
func accountsIn(op clientv3.Op) int {
	compares, then, _ := op.Txn()
	switch {
	case len(compares) > 0:
		return 1
	case len(then) > 0 && then[0].IsTxn():
		return len(then)
	}
	return 0
}

// hold lets no request through until the returned function is called.
func (w *wire) hold() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	gate := make(chan struct{})
	w.gate = gate
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.gate = nil
		close(gate)
	}
}

// nested returns accounts that send over w in batches.
func (w *wire) nested() *store.Accounts {
	accounts := store.NewAccounts(w)
	accounts.SetBatching(store.Nested)
	accounts.Liable = func(string) bool { return true }
	return accounts
}

// An outcome is what Apply returned.
type outcome struct {
	quota.Result
	err error
}

// together applies operations that wait in one line when the first is sent, behind
// one more operation that holds it up.
func together(t *testing.T, w *wire, accounts *store.Accounts, ops []quota.Operation) []outcome {
	t.Helper()
	release := w.hold()
	outcomes := make([]outcome, len(ops))
	var calls sync.WaitGroup
	calls.Go(func() {
		question := quota.Operation{Key: quota.Key{Tenant: unique(t)}, Holder: "nobody"}
		if _, err := accounts.Apply(t.Context(), question); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "the first is under way", func() bool { busy, n := accounts.Line(); return busy && n == 0 })
	for i, op := range ops {
		calls.Go(func() {
			outcomes[i].Result, outcomes[i].err = accounts.Apply(t.Context(), op)
		})
	}
	eventually(t, "all in line", func() bool { _, n := accounts.Line(); return n == len(ops) })
	release()
	calls.Wait()
	return outcomes
}

// asks returns n operations on accounts of their own that ask for 5 of 100 units,
// each with a holder of its own that is liable.
func asks(t *testing.T, n int) []quota.Operation {
	t.Helper()
	me := unique(t)
	ops := make([]quota.Operation, n)
	for i := range ops {
		id := me + "-" + string(rune('A'+i/26)) + string(rune('a'+i%26))
		put(t, server.Client(), store.LiableKey(id), "")
		ops[i] = quota.Operation{
			Key: quota.Key{Tenant: id, Limit: "monthly", Window: "2026-11"}, App: me, Holder: id, Seq: 1,
			Want: 5, Min: 1, Ceiling: 100, Replicas: 1,
		}
	}
	return ops
}

// granted is what an operation of asks is answered.
func granted() quota.Result {
	return quota.Result{Granted: 5, Left: 95, Leased: 5, Seq: 1}
}
