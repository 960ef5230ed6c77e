package store_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// The transaction that fills the database is applied, and answered with "no space" all
// the same: only the account tells.
func TestAccounts_A34_NoSpaceMayComeAfterAWriteThatLanded(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, mode store.Batching) {
		t.Parallel()
		ops := asks(t, 5)
		w := newWire(func(_ int, op clientv3.Op) fault {
			if puts(op) {
				return fault{reply: rpctypes.ErrNoSpace}
			}
			return fault{}
		})
		for i, o := range appliedTo(t, w, mode, ops) {
			if o.err != nil || o.Result != granted() {
				t.Errorf("operation %d: got %+v, %v; the account has it", i, o.Result, o.err)
			}
		}
	})
}

// Nothing is known where the account has moved on since: it may have been applied, and its
// holder folded away.
func TestAccounts_A34_NoSpaceAndAnAccountThatMovedOnIsNotKnown(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, mode store.Batching) {
		t.Parallel()
		ops := asks(t, 5)
		s := subjectIn(t, mode)
		w := newWire(func(_ int, op clientv3.Op) fault {
			if !puts(op) {
				return fault{}
			}
			return fault{reply: rpctypes.ErrNoSpace, then: func() {
				for _, op := range ops { // folded away before anybody looks
					s.SetLiable(op.Holder, false)
					other := op
					other.Holder = op.Holder + "-other"
					s.SetLiable(other.Holder, true)
					apply(t, s.Store, other)
				}
			}}
		})
		for i, o := range appliedTo(t, w, mode, ops[:1]) {
			if o.err == nil || errors.Is(o.err, quota.ErrNotApplied) || errors.Is(o.err, quota.ErrGone) {
				t.Errorf("operation %d: got %+v, %v; want an error that leaves the outcome open", i, o.Result, o.err)
			}
		}
	})
}

// appliedTo applies operations over w: in one transaction if mode allows it.
func appliedTo(t *testing.T, w *wire, mode store.Batching, ops []quota.Operation) []outcome {
	t.Helper()
	accounts := accountsOver(w, mode)
	accounts.Liable = func(string) bool { return true }
	if mode == store.Nested {
		return together(t, w, accounts, ops)
	}
	outcomes := make([]outcome, len(ops))
	for i, op := range ops {
		outcomes[i].Result, outcomes[i].err = accounts.Apply(t.Context(), op)
	}
	return outcomes
}
