package store

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
)

// tryTimeout bounds one request to an etcd that is near: two fit into the 300 ms that a
// request may wait for a lease, so that a second member can answer for one that hangs.
const tryTimeout = 120 * time.Millisecond

// patienceFor returns how long one request to etcd may take where a round trip takes as
// long as far: 120 ms at least, else two round trips and a little.
func patienceFor(far time.Duration) time.Duration {
	return min(max(tryTimeout, 2*far+nearEtcd), callTimeout)
}

// Accounts keeps accounts in etcd. It implements [quota.Store].
type Accounts struct {
	kv Doer
	// Liable reports whether an incarnation may still hold units, as far as this
	// process knows: [Members.Liable]. A wrong answer costs a round trip and
	// nothing else. Nil: etcd is asked for each account.
	Liable func(incarnation string) bool

	// Alone reports whether this replica is the only live one, as far as it knows. It
	// then sends two transactions at a time. Nil: it is not.
	Alone func() bool

	// RoundTrip returns how long etcd takes for an answer when it has little to do; 0:
	// not known. [Cluster.RoundTrip] is one. Nil: it is near.
	RoundTrip func() time.Duration

	batching atomic.Int32
	used     sync.Map // app name: its used key is known to exist
	lines    [2]line
	asked    askedFor
	counters accountCounters
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

// NewAccounts returns the accounts of an etcd, with operations sent singly: what
// the etcd can take is for [Accounts.SetBatching] to say.
func NewAccounts(kv Doer) *Accounts { return &Accounts{kv: kv} }

// A Batching says how operations on accounts travel to etcd.
type Batching int32

const (
	// Single sends every operation in a transaction of its own, all at once.
	Single Batching = iota
	// Nested sends up to 64 operations in one transaction, and one transaction
	// at a time. It needs etcd 3.5.33, 3.6.14, 3.7.1 or later: [CheckBatching].
	Nested
)

// String returns the word for b in logs.
func (b Batching) String() string {
	if b == Nested {
		return "nested"
	}
	return "single"
}

// SetBatching sets how operations travel from now on. Those under way end as they
// began. It is safe for concurrent use with everything.
func (s *Accounts) SetBatching(b Batching) { s.batching.Store(int32(b)) }

// Batching returns how operations travel.
func (s *Accounts) Batching() Batching { return Batching(s.batching.Load()) }

// Forget drops what is remembered of the store: it is another one now.
func (s *Accounts) Forget() {
	s.used.Clear()
	s.asked.clear()
}

func (s *Accounts) roundTrip() time.Duration {
	if s.RoundTrip == nil {
		return 0
	}
	return s.RoundTrip()
}

// Apply implements [quota.Store]. Each request to etcd has 120 ms, or two round trips to
// an etcd that is farther away; lost ones are
// repeated until ctx ends. When it does, Apply returns at once, though a request
// that carries op may be under way and land later.
func (s *Accounts) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	s.counters.operations.Add(1)
	a := newAttempt(s, op)
	var last error
	for pause := firstPause; ; pause = min(2*pause, lastPause) {
		left := s.try(ctx, a)
		switch {
		case left && last != nil:
			return quota.Result{}, fmt.Errorf("apply to %s: not known: %w, after: %w", told(a.op.Key), ctx.Err(), last)
		case left:
			return quota.Result{}, fmt.Errorf("apply to %s: not known: %w", told(a.op.Key), ctx.Err())
		case a.err == nil:
			return a.result, nil
		}
		if err := a.verdict(); err != nil {
			return quota.Result{}, fmt.Errorf("apply to %s: %w", told(a.op.Key), err)
		}
		last = a.err
		if sleep(ctx, pause) != nil {
			return quota.Result{}, fmt.Errorf("apply to %s: %w", told(a.op.Key), a.lastWord())
		}
	}
}

// try brings a to a result or an error. It reports whether ctx ended before that
// and a is not the caller's any more.
func (s *Accounts) try(ctx context.Context, a *attempt) (left bool) {
	a.done, a.err = false, nil
	if s.Batching() == Nested {
		return s.join(ctx, a)
	}
	for a.open() {
		s.round(ctx, []*attempt{a})
	}
	return false
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
