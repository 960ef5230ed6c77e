package store

import (
	"errors"
	"fmt"
	"sync/atomic"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
)

// An attempt is one call of Apply. From join until it is answered it belongs to
// the goroutine at work, else to the caller.
type attempt struct {
	store *Accounts
	line  *line
	op    quota.Operation // Gone is filled in again in each round
	key   string

	seen    *version        // nil: to be read
	here    map[string]bool // holders whose liable key was just seen
	unknown bool            // a write of this call may have landed
	t       *transaction    // of this round

	done   bool // result is known
	result quota.Result
	err    error // why this try failed

	answered chan struct{} // takes one value when done or err is set
	left     atomic.Bool   // the caller does not wait any more
	trip     *trip         // that it is on; nil: none; guarded by the line's lock
}

func newAttempt(s *Accounts, op quota.Operation) *attempt {
	a := &attempt{
		store: s, line: &s.lines[0], op: op, key: AccountKey(op.Key),
		here: map[string]bool{op.Holder: true}, answered: make(chan struct{}, 1),
	}
	if op.Seq > 0 {
		a.seen = s.asked.take(a.key)
	}
	return a
}

// A version is an account as it was read.
type version struct {
	account  quota.Account
	revision int64 // of the last change; 0: never written
	current  bool  // read through the leader after the call began
}

// open reports whether another round is needed.
func (a *attempt) open() bool { return !a.done && a.err == nil }

func (a *attempt) unread() bool { return a.open() && a.seen == nil }

// unapplied reports whether the account was read and has not seen the operation.
func (a *attempt) unapplied() bool {
	return a.open() && a.seen != nil && !replayed(a.seen.account, a.op)
}

// writes reports whether a has something to put in this round; else it reads.
func (a *attempt) writes() bool { return a.t.writes }

func (a *attempt) reads() bool { return !a.t.writes }

// linear reports whether a is read through the leader: after a try of unknown
// outcome, to see whether it has landed, and to answer a question by the read.
// All else reads from any member: an old value only loses the swap.
func (a *attempt) linear() bool { return a.unknown || a.op.Seq == 0 }

// fail ends the try. The next one reads again.
func (a *attempt) fail(err error) { a.err, a.seen = err, nil }

// lose ends a try whose write may have landed.
func (a *attempt) lose(err error) {
	a.unknown = true
	a.store.counters.unknown.Add(1)
	a.fail(err)
}

// see takes in the account as it was read.
func (a *attempt) see(kvs []*mvccpb.KeyValue, current bool) {
	v := version{current: current}
	if len(kvs) > 0 {
		account, err := decodeAccount(kvs[0].Value)
		if err != nil {
			a.fail(fmt.Errorf("%w: %w", quota.ErrNotApplied, err))
			return
		}
		v.account, v.revision = account, kvs[0].ModRevision
	}
	a.seen = &v
}

// prepare computes the account again and makes the transaction that swaps it. What
// is known already is done.
func (a *attempt) prepare() {
	replay := replayed(a.seen.account, a.op)
	next, result := quota.Apply(a.seen.account, a.op)
	a.result = result
	if replay && a.seen.current {
		a.done = true
		if a.op.Seq == 0 {
			a.store.asked.keep(a.key, *a.seen)
		}
		return
	}
	a.t = newTransaction(a.key, a.seen.revision)
	if !replay {
		a.t.require(a.op)
	}
	if !changed(a.seen.account, next, a.op.Holder) {
		a.t.then = []clientv3.Op{clientv3.OpGet(a.key, clientv3.WithKeysOnly())}
		return
	}
	if err := a.t.put(a.op, next); err != nil {
		a.fail(err)
	}
}

// learn takes in what became of a's transaction. Neither done nor an error means
// that it lost, and goes on from the account that it lost to.
func (a *attempt) learn(succeeded bool, responses []*etcdserverpb.ResponseOp) {
	if succeeded {
		if a.t.firstUse {
			a.store.used.Store(a.op.App, true)
		}
		a.done = true
		return
	}
	a.store.counters.lost.Add(1)
	a.see(responses[0].GetResponseRange().GetKvs(), true)
	if !a.open() || replayed(a.seen.account, a.op) {
		return // an earlier try had landed
	}
	if err := a.t.lost(responses[1:], a.here); err != nil {
		a.fail(err)
	}
}

// verdict returns what Apply says of the error of a try; nil if another try may
// help.
func (a *attempt) verdict() error {
	switch err := a.err; {
	case errors.Is(err, quota.ErrStale):
		// A guard that has moved on never comes back, and the holder, which is
		// liable, would be known by an earlier try that had landed.
		return err
	case !definite(err) || overloaded(err):
		return nil
	case a.unknown:
		// An earlier try may have landed, or may yet.
		return fmt.Errorf("not known: %v", err) //nolint:errorlint // must not look like ErrNotApplied
	default:
		return asNotApplied(err)
	}
}

// lastWord returns what Apply says when there is no time for another try.
func (a *attempt) lastWord() error {
	if definite(a.err) && !a.unknown {
		return asNotApplied(a.err)
	}
	return a.err
}
