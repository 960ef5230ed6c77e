package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
)

// tryTimeout bounds one request to etcd: two fit into the 300 ms that a request
// may wait for a lease, so that a second member can answer for one that hangs.
const tryTimeout = 120 * time.Millisecond

// Accounts keeps accounts in etcd. It implements [quota.Store].
type Accounts struct {
	kv Doer
	// Liable tells whether an incarnation may still hold units, as far as this
	// process knows: [Members.Liable]. A wrong answer costs a round trip and
	// nothing else. Nil: etcd is asked for each account.
	Liable func(incarnation string) bool

	used sync.Map // app name: its used key is known to exist
}

var _ quota.Store = (*Accounts)(nil)

// A Doer sends one request to etcd. [clientv3.KV] is one.
type Doer interface {
	Do(context.Context, clientv3.Op) (clientv3.OpResponse, error)
}

func get(ctx context.Context, kv Doer, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	r, err := kv.Do(ctx, clientv3.OpGet(key, opts...))
	return r.Get(), err
}

func txn(ctx context.Context, kv Doer, compares []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	r, err := kv.Do(ctx, clientv3.OpTxn(compares, then, otherwise))
	return r.Txn(), err
}

// NewAccounts returns the accounts of an etcd.
func NewAccounts(kv Doer) *Accounts { return &Accounts{kv: kv} }

// Forget drops what is remembered of the store: it is another one now.
func (s *Accounts) Forget() { s.used.Clear() }

// Apply implements [quota.Store]. Each request to etcd has 120 ms; lost ones are
// repeated until ctx ends.
func (s *Accounts) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	a := attempt{store: s, op: op, key: AccountKey(op.Key), here: map[string]bool{op.Holder: true}}
	for pause := firstPause; ; {
		done, err := a.step(ctx)
		switch {
		case done:
			return a.result, nil
		case err == nil:
			continue
		case definite(err) && !a.unknown:
			return quota.Result{}, fmt.Errorf("apply to %s: %w", a.key, asNotApplied(err))
		case errors.Is(err, quota.ErrStale):
			// A guard that has moved on never comes back, and the holder, which
			// is liable, would be known by an earlier try that had landed.
			return quota.Result{}, fmt.Errorf("apply to %s: %w", a.key, err)
		case definite(err):
			// An earlier try may have landed, or may yet.
			return quota.Result{}, fmt.Errorf("apply to %s: not known: %v", a.key, err) //nolint:errorlint // must not look like ErrNotApplied
		}
		a.seen = nil
		if sleep(ctx, pause) != nil {
			return quota.Result{}, fmt.Errorf("apply to %s: %w", a.key, err)
		}
		pause = min(2*pause, lastPause)
	}
}

// Pauses between tries that failed.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// sleep waits for d; an error if ctx ends before that, or would.
func sleep(ctx context.Context, d time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d { //nolint:forbidigo // context deadlines are on the real clock
		return context.DeadlineExceeded
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// An attempt is one call of Apply.
type attempt struct {
	store *Accounts
	op    quota.Operation // Gone is filled in anew in each step
	key   string

	seen    *version
	here    map[string]bool // holders whose liable key was just seen
	unknown bool            // a write of this call may have landed
	result  quota.Result
}

// A version is an account as it was read.
type version struct {
	account  quota.Account
	revision int64 // of the last change; 0: never written
	current  bool  // read through the leader after the call began
}

// step does one round: read if need be, compute, swap. It is done when the result
// is known; neither done nor an error means that the next step will tell.
func (a *attempt) step(ctx context.Context) (done bool, err error) {
	if a.seen == nil {
		if err := a.read(ctx); err != nil {
			return false, err
		}
	}
	replay := replayed(a.seen.account, a.op)
	if !replay {
		if err := a.findGone(ctx); err != nil {
			return false, err
		}
	}
	next, result := quota.Apply(a.seen.account, a.op)
	a.result = result
	if replay && a.seen.current {
		return true, nil
	}
	t := newTransaction(a.key, a.seen.revision)
	if !replay {
		t.require(a.op)
	}
	if changed(a.seen.account, next, a.op.Holder) {
		if err := t.put(a, next); err != nil {
			return false, err
		}
	} else {
		t.then = append(t.then, clientv3.OpGet(a.key, clientv3.WithKeysOnly()))
	}
	return a.commit(ctx, t)
}

// read reads the account from any member: an old value only loses the swap. After
// a try of unknown outcome it reads through the leader.
func (a *attempt) read(ctx context.Context) error {
	var opts []clientv3.OpOption
	if !a.unknown {
		opts = append(opts, clientv3.WithSerializable())
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	r, err := get(ctx, a.store.kv, a.key, opts...)
	if err != nil {
		return err
	}
	return a.see(r.Kvs, a.unknown)
}

func (a *attempt) see(kvs []*mvccpb.KeyValue, current bool) error {
	v := version{current: current}
	if len(kvs) > 0 {
		account, err := decodeAccount(kvs[0].Value)
		if err != nil {
			return fmt.Errorf("%w: %w", quota.ErrNotApplied, err)
		}
		v.account, v.revision = account, kvs[0].ModRevision
	}
	a.seen = &v
	return nil
}

// maxGone bounds how many holders one operation folds, so that its transaction
// stays below the 128 operations that etcd allows. The next one folds the rest.
const maxGone = 32

// findGone fills in the holders that do not seem liable any more.
func (a *attempt) findGone(ctx context.Context) error {
	a.op.Gone = nil
	var candidates []string
	for _, h := range a.seen.account.Holders {
		if a.here[h.ID] || a.store.Liable != nil && a.store.Liable(h.ID) {
			continue
		}
		if candidates = append(candidates, h.ID); len(candidates) == maxGone {
			break
		}
	}
	if a.store.Liable != nil || len(candidates) == 0 {
		a.op.Gone = candidates
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	ops := make([]clientv3.Op, 0, len(candidates))
	for _, id := range candidates {
		ops = append(ops, clientv3.OpGet(liableKey(id), clientv3.WithKeysOnly(), clientv3.WithSerializable()))
	}
	r, err := txn(ctx, a.store.kv, nil, ops, nil)
	if err != nil {
		return err
	}
	for i, id := range candidates {
		if len(r.Responses[i].GetResponseRange().GetKvs()) > 0 {
			a.here[id] = true
			continue
		}
		a.op.Gone = append(a.op.Gone, id)
	}
	return nil
}

// commit sends t. When it loses it finds out why.
func (a *attempt) commit(ctx context.Context, t *transaction) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	r, err := txn(ctx, a.store.kv, t.compares, t.then, t.reads())
	if err != nil {
		a.unknown = a.unknown || t.writes && !definite(err)
		return false, err
	}
	if r.Succeeded {
		if t.used {
			a.store.used.Store(a.op.App, true)
		}
		return true, nil
	}
	if err := a.see(r.Responses[0].GetResponseRange().GetKvs(), true); err != nil {
		return false, err
	}
	if replayed(a.seen.account, a.op) {
		return false, nil // an earlier try had landed
	}
	return false, t.lost(r.Responses[1:], a.here)
}
