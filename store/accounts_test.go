package store_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/storetest"
)

// modes are the ways in which operations travel.
var modes = []store.Batching{store.Single, store.Nested}

// inModes runs a test in each mode.
func inModes(t *testing.T, test func(*testing.T, store.Batching)) {
	t.Helper()
	for _, mode := range modes {
		t.Run(mode.String(), func(t *testing.T) { test(t, mode) })
	}
}

// accountsOver returns accounts that travel in a mode.
func accountsOver(kv store.Doer, mode store.Batching) *store.Accounts {
	accounts := store.NewAccounts(kv)
	accounts.SetBatching(mode)
	return accounts
}

func subject(t *testing.T) storetest.Subject { return subjectIn(t, store.Single) }

func subjectIn(t *testing.T, mode store.Batching) storetest.Subject {
	c := server.Client()
	accounts := accountsOver(c, mode)
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

func TestAccounts_A34_KeepTheContract(t *testing.T) {
	inModes(t, func(t *testing.T, mode store.Batching) {
		storetest.Run(t, func(t *testing.T) storetest.Subject { return subjectIn(t, mode) })
	})
}

// Without lists of its own, and with one that knows nobody.
func TestAccounts_A34_KeepTheContractWithAWrongViewOfWhoIsLiable(t *testing.T) {
	inModes(t, func(t *testing.T, mode store.Batching) {
		storetest.Run(t, func(t *testing.T) storetest.Subject {
			s := subjectIn(t, mode)
			accounts := accountsOver(server.Client(), mode)
			accounts.Liable = func(string) bool { return false }
			s.Store = accounts
			return s
		})
	})
}

func TestAccounts_A18_FirstUseIsRecordedForTheApp(t *testing.T) {
	inModes(t, testFirstUse)
}

func testFirstUse(t *testing.T, mode store.Batching) {
	s, c, me := subjectIn(t, mode), server.Client(), unique(t)
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

func TestAccounts_A34_ErrorsTellWhetherAnOperationWasApplied(t *testing.T) {
	inModes(t, testErrors)
}

func testErrors(t *testing.T, mode store.Batching) {
	noSpace := rpctypes.ErrNoSpace
	lost := errors.New("connection lost")
	for _, c := range []struct {
		name       string
		how        func(n int) fault
		notApplied bool // else unknown, or applied when ok
		ok         bool
		txns       int
		limit      time.Duration // for those that never end by themselves: as short as may be
	}{
		{"no space", func(int) fault { return fault{lost: noSpace} }, true, false, 1, time.Minute},
		{"reply lost once", func(n int) fault { return fault{reply: onlyFirst(n, lost)} }, false, true, 1, time.Minute},
		{"request lost once", func(n int) fault { return fault{lost: onlyFirst(n, lost)} }, false, true, 2, time.Minute},
		{"request lost, then no space", func(n int) fault {
			if n == 0 {
				return fault{lost: lost}
			}
			return fault{lost: noSpace}
		}, false, false, 2, time.Minute},
		{"never an answer", func(int) fault { return fault{lost: lost} }, false, false, 3, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWire(func(n int, _ clientv3.Op) fault { return c.how(n) })
			accounts := accountsOver(w, mode)
			accounts.Liable = func(string) bool { return true }
			me := unique(t)
			put(t, server.Client(), store.LiableKey(me), "")
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			op := quota.Operation{Key: quota.Key{Tenant: me}, Holder: me, Seq: 1, Want: 5, Min: 1, Ceiling: 100, Used: 1}
			r, err := accounts.Apply(ctx, op)
			if errors.Is(err, quota.ErrNotApplied) != c.notApplied || (err == nil) != c.ok {
				t.Errorf("got %+v, %v", r, err)
			}
			if c.ok && r != (quota.Result{Granted: 5, Left: 94, Used: 1, Leased: 5, Seq: 1, Own: 1}) {
				t.Errorf("got %+v", r)
			}
			if w.calls() < c.txns {
				t.Errorf("%d transactions, want at least %d", w.calls(), c.txns)
			}
		})
	}
}

// A try whose reply was lost may have landed before its holder was folded away:
// ErrGone would say that it had not.
func TestAccounts_A33_AFoldedHolderAfterALostReplyIsNotKnown(t *testing.T) {
	inModes(t, testFoldedAfterALostReply)
}

func testFoldedAfterALostReply(t *testing.T, mode store.Batching) {
	me, s := unique(t), subject(t)
	s.SetLiable(me, true)
	s.SetLiable(me+"-other", true)
	op := quota.Operation{Key: quota.Key{Tenant: me}, Holder: me, Seq: 1, Used: 3, Ceiling: 100}
	other := quota.Operation{Key: op.Key, Holder: me + "-other", Seq: 1, Want: 5, Min: 1, Ceiling: 100}
	accounts := accountsOver(newWire(func(n int, _ clientv3.Op) fault {
		if n > 0 {
			return fault{}
		}
		return fault{reply: errors.New("reply lost"), then: func() {
			s.SetLiable(me, false)
			apply(t, s.Store, other)
		}}
	}), mode)
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

func onlyFirst(n int, err error) error {
	if n == 0 {
		return err
	}
	return nil
}

// unique names what a test run has for itself on the shared server.
func unique(t *testing.T) string {
	t.Helper()
	return t.Name() + "-" + rand.Text()
}
