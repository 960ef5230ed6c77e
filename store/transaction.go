package store

import (
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
)

// A transaction is what a round sends for one account: the account at a revision,
// the conditions of the operation, and puts or a read.
type transaction struct {
	key      string
	compares []clientv3.Cmp
	then     []clientv3.Op // a put or a read of the account
	writes   bool
	app      string // that this is a use of; "": no use
	firstUse bool   // of the app, as far as is known: puts its used key, too

	guards []quota.Guard
	holder string   // that must be liable; "": no condition, for what was applied already
	gone   []string // that must not be
}

// newTransaction returns one that wants the account to be at revision.
func newTransaction(key string, revision int64) *transaction {
	return &transaction{
		key:      key,
		compares: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
	}
}

// require adds the conditions under which op may be applied.
func (t *transaction) require(op quota.Operation) {
	if op.Want > 0 {
		t.guards = op.Guards
		for _, g := range op.Guards {
			t.compares = append(t.compares, clientv3.Compare(clientv3.ModRevision(guardKey(g)), "=", g.Revision))
		}
	}
	// Of a holder that was folded the account knows no sequence any more, so that
	// a repeat of what it once reported would count a second time.
	t.holder = op.Holder
	t.compares = append(t.compares, clientv3.Compare(clientv3.CreateRevision(liableKey(op.Holder)), ">", 0))
	t.gone = op.Gone
	for _, id := range op.Gone {
		t.compares = append(t.compares, clientv3.Compare(clientv3.CreateRevision(liableKey(id)), "=", 0))
	}
}

// put makes t write the account.
func (t *transaction) put(op quota.Operation, next quota.Account) error {
	b, err := encodeAccount(next)
	if err != nil {
		return fmt.Errorf("%w: %w", quota.ErrNotApplied, err)
	}
	t.writes = true
	t.then = []clientv3.Op{clientv3.OpPut(t.key, string(b))}
	if op.Used > 0 {
		t.app = op.App
	}
	return nil
}

// puts returns what is done if t wins: with the first use of an app its used key is
// put by the same transaction as the account (A18).
func (t *transaction) puts() []clientv3.Op {
	if t.firstUse {
		return append(t.then[:1:1], clientv3.OpPut(UsedKey(t.app), ""))
	}
	return t.then
}

// width is the number of conditions or of reads in t, whichever is more: etcd counts
// both against the same bound, and there is a read for each condition.
func (t *transaction) width() int { return len(t.compares) }

// size estimates the bytes of t in a request: each condition has a read of the same
// key, and a few bytes of its own.
func (t *transaction) size() int {
	const more = 24
	n := 0
	for i := range t.compares {
		n += 2 * (len(t.compares[i].KeyBytes()) + more)
	}
	for i := range t.then {
		n += len(t.then[i].KeyBytes()) + len(t.then[i].ValueBytes()) + more
	}
	return n
}

// reads returns what tells, after a loss, which condition failed.
func (t *transaction) reads() []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpGet(t.key)}
	if t.holder != "" {
		ops = append(ops, clientv3.OpGet(liableKey(t.holder), clientv3.WithKeysOnly()))
	}
	for _, g := range t.guards {
		ops = append(ops, clientv3.OpGet(guardKey(g), clientv3.WithKeysOnly()))
	}
	for _, id := range t.gone {
		ops = append(ops, clientv3.OpGet(liableKey(id), clientv3.WithKeysOnly()))
	}
	return ops
}

// lost reads the answers of reads but the first. It returns ErrGone, or ErrStale of
// a holder that is liable; nil means that the account moved or that a holder is
// here after all.
func (t *transaction) lost(rs []*etcdserverpb.ResponseOp, here map[string]bool) error {
	revision := func() int64 {
		kvs := rs[0].GetResponseRange().GetKvs()
		rs = rs[1:]
		if len(kvs) == 0 {
			return 0
		}
		return kvs[0].ModRevision
	}
	if t.holder != "" && revision() == 0 {
		return fmt.Errorf("%s: %w", t.holder, quota.ErrGone)
	}
	for _, g := range t.guards {
		if now := revision(); now != g.Revision {
			return fmt.Errorf("%s %s is at revision %d, not %d: %w", g.Kind, g.Name, now, g.Revision, quota.ErrStale)
		}
	}
	for _, id := range t.gone {
		if revision() > 0 {
			here[id] = true
		}
	}
	return nil
}
