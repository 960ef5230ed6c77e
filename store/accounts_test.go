package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/storetest"
)

func subject(t *testing.T) storetest.Subject {
	c := server.Client()
	accounts := store.NewAccounts(c)
	return storetest.Subject{
		Store: accounts,
		Account: func(k quota.Key) quota.Account {
			a, _, err := accounts.Read(t.Context(), k)
			if err != nil {
				t.Fatal(err)
			}
			return a
		},
		SetLiable: func(holder string, liable bool) {
			if !liable {
				del(t, c, store.LiableKey(holder))
				return
			}
			put(t, c, store.LiableKey(holder), "")
		},
		Edit: func(kind, name string) quota.Guard {
			key := store.DocumentKey(plan.Kind(kind), name)
			if kind == "Plan" {
				key = store.EffectiveKey(plan.KindPlan, name)
			}
			return quota.Guard{Kind: kind, Name: name, Revision: put(t, c, key, "x")}
		},
	}
}

func TestAccounts(t *testing.T) { storetest.Run(t, subject) }

// Without lists of its own, and with one that knows nobody.
func TestAccountsWithAWrongViewOfWhoIsLiable(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		s := subject(t)
		accounts := store.NewAccounts(server.Client())
		accounts.Liable = func(string) bool { return false }
		s.Store = accounts
		return s
	})
}

func TestFirstUseIsRecordedForTheApp(t *testing.T) {
	s, c, me := subject(t), server.Client(), unique(t)
	op := quota.Operation{Key: quota.Key{Tenant: me}, App: me, Holder: me, Seq: 1, Want: 5, Min: 1, Ceiling: 100}
	s.SetLiable(me, true)
	apply(t, s.Store, op)
	if r, _ := c.Get(t.Context(), store.UsedKey(me)); len(r.Kvs) > 0 {
		t.Error("a lease counts as use")
	}
	op.Seq, op.Used = 2, 1
	apply(t, s.Store, op)
	if r, _ := c.Get(t.Context(), store.UsedKey(me)); len(r.Kvs) == 0 {
		t.Error("use was not recorded")
	}
}

func TestListOfAccounts(t *testing.T) {
	s, me := subject(t), unique(t)
	accounts := store.NewAccounts(server.Client())
	s.SetLiable(me, true)
	for i, tenant := range []string{me + "/a", me + "/a", me + "/b"} {
		apply(t, s.Store, quota.Operation{
			Key:    quota.Key{Root: fmt.Sprint(i), Tenant: tenant, Limit: "l", Window: fmt.Sprint(i)},
			Holder: me, Seq: 1, Used: int64(i + 1), Ceiling: 100,
		})
	}
	got, err := accounts.List(t.Context(), me+"/a")
	if err != nil || len(got) != 2 {
		t.Errorf("got %+v, %v; want two accounts", got, err)
	}
	for _, e := range got {
		if e.Account.Used() == 0 || e.Revision == 0 || e.Key.Tenant != me+"/a" {
			t.Errorf("got %+v", e)
		}
	}
	all, err := accounts.List(t.Context())
	if err != nil || len(all) < 3 {
		t.Errorf("all: %d accounts, %v", len(all), err)
	}
}

func apply(t *testing.T, s quota.Store, op quota.Operation) quota.Result {
	t.Helper()
	r, err := s.Apply(t.Context(), op)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// failing fails transactions in ways that etcd and networks do.
type failing struct {
	clientv3.KV
	mu    sync.Mutex
	calls int
	how   func(call int) (before, after error)
}

func (f *failing) Txn(ctx context.Context) clientv3.Txn {
	return &failingTxn{f.KV.Txn(ctx), f, ctx, nil}
}

type failingTxn struct {
	clientv3.Txn
	f    *failing
	ctx  context.Context //nolint:containedctx // lives as long as a call
	then []clientv3.Op
}

func (x *failingTxn) If(cs ...clientv3.Cmp) clientv3.Txn { x.Txn = x.Txn.If(cs...); return x }

func (x *failingTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.Txn = x.Txn.Then(ops...)
	return x
}

func (x *failingTxn) Else(ops ...clientv3.Op) clientv3.Txn { x.Txn = x.Txn.Else(ops...); return x }

func (x *failingTxn) Commit() (*clientv3.TxnResponse, error) {
	x.f.mu.Lock()
	before, after := x.f.how(x.f.calls)
	x.f.calls++
	x.f.mu.Unlock()
	if before != nil {
		return nil, before
	}
	r, err := x.Txn.Commit()
	if err == nil && after != nil {
		return nil, after
	}
	return r, err
}

func TestErrorsTellWhetherAnOperationWasApplied(t *testing.T) {
	noSpace := rpctypes.ErrNoSpace
	lost := errors.New("connection lost")
	for _, c := range []struct {
		name       string
		how        func(call int) (before, after error)
		notApplied bool // else unknown, or applied when ok
		ok         bool
		txns       int
	}{
		{"no space", func(int) (error, error) { return noSpace, nil }, true, false, 1},
		{"reply lost once", func(n int) (error, error) { return nil, onlyFirst(n, lost) }, false, true, 1},
		{"request lost once", func(n int) (error, error) { return onlyFirst(n, lost), nil }, false, true, 2},
		{"request lost, then no space", func(n int) (error, error) {
			if n == 0 {
				return lost, nil
			}
			return noSpace, nil
		}, false, false, 2},
		{"never an answer", func(int) (error, error) { return lost, nil }, false, false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := &failing{KV: server.Client(), how: c.how}
			accounts := store.NewAccounts(f)
			accounts.Liable = func(string) bool { return true }
			me := unique(t)
			put(t, server.Client(), store.LiableKey(me), "")
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			op := quota.Operation{Key: quota.Key{Tenant: me}, Holder: me, Seq: 1, Want: 5, Min: 1, Ceiling: 100, Used: 1}
			r, err := accounts.Apply(ctx, op)
			if errors.Is(err, quota.ErrNotApplied) != c.notApplied || (err == nil) != c.ok {
				t.Errorf("got %+v, %v", r, err)
			}
			if c.ok && r != (quota.Result{Granted: 5, Left: 94, Used: 1, Leased: 5, Seq: 1, Own: 1}) {
				t.Errorf("got %+v", r)
			}
			if f.calls < c.txns {
				t.Errorf("%d transactions, want at least %d", f.calls, c.txns)
			}
		})
	}
}

// A try whose reply was lost may have landed before its holder was folded away:
// ErrGone would say that it had not.
func TestAFoldedHolderAfterALostReplyIsNotKnown(t *testing.T) {
	c, me := server.Client(), unique(t)
	s := subject(t)
	s.SetLiable(me, true)
	s.SetLiable(me+"-other", true)
	op := quota.Operation{Key: quota.Key{Tenant: me}, Holder: me, Seq: 1, Used: 3, Ceiling: 100}
	other := quota.Operation{Key: op.Key, Holder: me + "-other", Seq: 1, Want: 5, Min: 1, Ceiling: 100}
	f := &failing{KV: c, how: func(call int) (before, after error) {
		return nil, onlyFirst(call, errors.New("reply lost"))
	}}
	accounts := store.NewAccounts(foldBeforeRead{f, sync.OnceFunc(func() {
		s.SetLiable(me, false)
		apply(t, s.Store, other)
	})})
	accounts.Liable = func(string) bool { return true }
	_, err := accounts.Apply(t.Context(), op)
	if err == nil || errors.Is(err, quota.ErrGone) || errors.Is(err, quota.ErrNotApplied) || errors.Is(err, quota.ErrStale) {
		t.Errorf("got %v, want an error that leaves the outcome open", err)
	}
	if _, err = accounts.Apply(t.Context(), op); !errors.Is(err, quota.ErrGone) {
		t.Errorf("the next call: got %v, want ErrGone", err)
	}
	if got := s.Account(op.Key); got.Used() != 3 {
		t.Errorf("stored %+v, want 3 used", got)
	}
}

// foldBeforeRead does something before the second read.
type foldBeforeRead struct {
	*failing
	fold func()
}

func (f foldBeforeRead) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	f.mu.Lock()
	wrote := f.calls > 0
	f.mu.Unlock()
	if wrote {
		f.fold()
	}
	return f.failing.Get(ctx, key, opts...)
}

func onlyFirst(n int, err error) error {
	if n == 0 {
		return err
	}
	return nil
}

// TestHistoryIsLinearizable checks what holders saw of one account, with replies
// lost, against the plain arithmetic of quota.Apply (case C102).
func TestHistoryIsLinearizable(t *testing.T) {
	const holders, rounds, ceiling = 6, 40, 120
	accounts, me := store.NewAccounts(server.Client()), unique(t)
	lossy := storetest.LostReply(accounts, 5)
	began := time.Now()
	var mu sync.Mutex
	var history []porcupine.Operation
	var wg sync.WaitGroup
	for h := range holders {
		id := fmt.Sprintf("%s-%d", me, h)
		put(t, server.Client(), store.LiableKey(id), "")
		wg.Go(func() {
			var used int64
			for seq := uint64(1); seq <= rounds; seq++ {
				op := quota.Operation{
					Key: quota.Key{Tenant: me}, Holder: id, Seq: seq, Used: used,
					Want: int64(seq % 17), Min: min(1, int64(seq%17)), Ceiling: ceiling, Replicas: 1,
				}
				for done := false; !done; {
					call := time.Since(began)
					r, err := lossy.Apply(t.Context(), op)
					o := porcupine.Operation{ClientId: h, Input: op, Output: r, Call: int64(call), Return: int64(time.Since(began))}
					if done = err == nil; !done {
						// It may take effect at any time from now on.
						o.ClientId, o.Output, o.Return = h+holders*(1+len(op.Holder)), nil, int64(time.Hour)
					}
					mu.Lock()
					history = append(history, o)
					mu.Unlock()
					if done && seq%4 == 0 {
						used += min(r.Granted, 1)
					}
				}
			}
		})
	}
	wg.Wait()
	if got := porcupine.CheckOperationsTimeout(accountModel(), history, 20*time.Second); got != porcupine.Ok {
		t.Errorf("history of %d operations is %v", len(history), got)
	}
}

func accountModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return quota.Account{} },
		Step: func(state, input, output any) (bool, any) {
			a, _ := state.(quota.Account)
			op, _ := input.(quota.Operation)
			next, want := quota.Apply(a, op)
			if want.Used+want.Leased > op.Ceiling {
				return false, a
			}
			got, known := output.(quota.Result)
			return !known || got == want, next
		},
		Equal: func(x, y any) bool { return fmt.Sprint(x) == fmt.Sprint(y) },
	}
}

// unique names what a test run has for itself on the shared server.
func unique(t *testing.T) string {
	t.Helper()
	return t.Name() + "-" + rand.Text()
}
