package store_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// scripted is an etcd without a network, for bubbles of fake time: it has no keys, and
// every transaction succeeds that does not run out of time.
type scripted struct {
	takes func(op clientv3.Op) time.Duration
	fails error // of transactions with conditions

	mu   sync.Mutex
	sent []clientv3.Op
}

// never is how long requests take that hang.
const never = time.Hour

// Do implements [store.Doer].
func (s *scripted) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	s.mu.Lock()
	s.sent = append(s.sent, op)
	takes := s.takes(op)
	s.mu.Unlock()
	select {
	case <-time.After(takes):
	case <-ctx.Done():
		return clientv3.OpResponse{}, ctx.Err()
	}
	if accountsIn(op) > 0 && s.fails != nil {
		return clientv3.OpResponse{}, s.fails
	}
	if op.IsGet() {
		return (&clientv3.GetResponse{}).OpResponse(), nil
	}
	r := &clientv3.TxnResponse{Succeeded: true}
	_, then, _ := op.Txn()
	for _, inner := range then {
		var o etcdserverpb.ResponseOp
		if inner.IsTxn() {
			o.Response = &etcdserverpb.ResponseOp_ResponseTxn{ResponseTxn: &etcdserverpb.TxnResponse{Succeeded: true}}
		}
		r.Responses = append(r.Responses, &o)
	}
	return r.OpResponse(), nil
}

// keys returns the accounts that requests were about, with conditions or without.
func (s *scripted) keys(swaps bool) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var keys []string
	for _, op := range s.sent {
		if accountsIn(op) > 0 == swaps {
			keys = append(keys, accountKeys(op)...)
		}
	}
	return keys
}

// accountKeys returns the keys of the accounts in a request.
func accountKeys(op clientv3.Op) []string {
	if !op.IsTxn() {
		return []string{string(op.KeyBytes())}
	}
	compares, then, _ := op.Txn()
	if len(compares) > 0 {
		return []string{string(compares[0].KeyBytes())}
	}
	var keys []string
	for _, inner := range then {
		keys = append(keys, accountKeys(inner)...)
	}
	return keys
}

// A caller is a call of Apply with a time limit.
type caller struct {
	op    quota.Operation
	limit time.Duration

	took time.Duration
	err  error
}

func newCaller(name string, limit time.Duration) *caller {
	return &caller{limit: limit, op: quota.Operation{
		Key: quota.Key{Tenant: name}, Holder: "me", Seq: 1, Want: 5, Min: 1, Ceiling: 100,
	}}
}

func (c *caller) key() string { return store.AccountKey(c.op.Key) }

// call runs callers one after the other begins to wait, and waits for all.
func call(t *testing.T, accounts *store.Accounts, callers ...*caller) {
	t.Helper()
	var calls sync.WaitGroup
	for _, c := range callers {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			began := time.Now()
			_, c.err = accounts.Apply(ctx, c.op)
			c.took = time.Since(began)
		})
		synctest.Wait()
	}
	calls.Wait()
}

func scriptedAccounts(takes func(clientv3.Op) time.Duration) (*store.Accounts, *scripted) {
	etcd := &scripted{takes: takes}
	accounts := store.NewAccounts(etcd)
	accounts.SetBatching(store.Nested)
	accounts.Liable = func(string) bool { return true }
	return accounts, etcd
}

// Who leaves the line is not sent, and nobody waits longer for that. The goroutine
// that sends ends by itself: the bubble would not end otherwise.
func TestBatch_A56_ACallerLeavesTheLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		accounts, etcd := scriptedAccounts(func(clientv3.Op) time.Duration { return never })
		first, short, long := newCaller("first", 300*time.Millisecond), newCaller("short", 50*time.Millisecond), newCaller("long", 300*time.Millisecond)
		call(t, accounts, first, short, long)
		for _, c := range []*caller{first, short, long} {
			if c.took > c.limit || !errors.Is(c.err, context.DeadlineExceeded) || errors.Is(c.err, quota.ErrNotApplied) {
				t.Errorf("%s: %v after %v", c.op.Key.Tenant, c.err, c.took)
			}
		}
		if read := etcd.keys(false); slices.Contains(read, short.key()) || !slices.Contains(read, long.key()) {
			t.Errorf("read %q", read)
		}
	})
}

// Who leaves while a transaction that carries its operation hangs cannot know what
// becomes of it. The others of that batch go on without it.
func TestBatch_A34_ACallerLeavesABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		batches := 0
		accounts, etcd := scriptedAccounts(func(op clientv3.Op) time.Duration {
			switch n := accountsIn(op); {
			case n == 0:
				return time.Millisecond
			case n > 1:
				if batches++; batches == 1 {
					return never
				}
			}
			return 0
		})
		first, short, long := newCaller("first", time.Second), newCaller("short", 50*time.Millisecond), newCaller("long", time.Second)
		more := newCaller("more", time.Second)
		call(t, accounts, first, short, long, more)
		for _, c := range []*caller{first, long, more} {
			if c.err != nil {
				t.Errorf("%s: %v", c.op.Key.Tenant, c.err)
			}
		}
		if short.took != short.limit || !errors.Is(short.err, context.DeadlineExceeded) || errors.Is(short.err, quota.ErrNotApplied) {
			t.Errorf("got %v after %v, want an open outcome after %v", short.err, short.took, short.limit)
		}
		swapped := etcd.keys(true)
		if n := count(swapped, short.key()); n != 1 {
			t.Errorf("sent %d times, want once: %q", n, swapped)
		}
		if n := count(swapped, long.key()); n != 2 {
			t.Errorf("another one was sent %d times, want twice: %q", n, swapped)
		}
	})
}

// Who leaves while the accounts of a batch are read is not in the transaction.
func TestBatch_A34_ACallerLeavesBeforeTheTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		accounts, etcd := scriptedAccounts(func(op clientv3.Op) time.Duration {
			if accountsIn(op) == 0 {
				return 100 * time.Millisecond
			}
			return 0
		})
		first, short, long := newCaller("first", time.Second), newCaller("short", 150*time.Millisecond), newCaller("long", time.Second)
		call(t, accounts, first, short, long)
		if first.err != nil || long.err != nil || !errors.Is(short.err, context.DeadlineExceeded) {
			t.Errorf("got %v, %v and %v", first.err, short.err, long.err)
		}
		if swapped := etcd.keys(true); !slices.Equal(swapped, []string{first.key(), long.key()}) {
			t.Errorf("sent %q, want those who waited", swapped)
		}
		if read := etcd.keys(false); !slices.Contains(read, short.key()) {
			t.Errorf("read %q, want the one who left, too", read)
		}
	})
}

// Who has no time for another try while etcd has too much to do was not applied.
func TestAccounts_A34_TooManyRequestsToTheEndIsNotApplied(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, mode store.Batching) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			accounts, etcd := scriptedAccounts(func(clientv3.Op) time.Duration { return time.Millisecond })
			accounts.SetBatching(mode)
			etcd.fails = rpctypes.ErrTooManyRequests
			c := newCaller("first", 200*time.Millisecond)
			call(t, accounts, c)
			if !errors.Is(c.err, quota.ErrNotApplied) {
				t.Errorf("got %v, want ErrNotApplied", c.err)
			}
			if n := len(etcd.keys(true)); n < 3 {
				t.Errorf("tried %d times in 200 ms", n)
			}
		})
	})
}

func count(all []string, one string) int {
	n := 0
	for _, s := range all {
		if s == one {
			n++
		}
	}
	return n
}

// The time of a request is its own: a caller with little time left does not cut short
// what others sent along.
func TestBatch_A56_ARequestHasItsOwnTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		deadlines := make(map[time.Duration]int)
		_, etcd := scriptedAccounts(func(clientv3.Op) time.Duration { return time.Millisecond })
		accounts := store.NewAccounts(timed{etcd, deadlines})
		accounts.SetBatching(store.Nested)
		call(t, accounts, newCaller("short", 20*time.Millisecond), newCaller("long", time.Minute))
		if len(deadlines) != 1 || deadlines[120*time.Millisecond] == 0 {
			t.Errorf("requests had %v, want 120 ms each", deadlines)
		}
	})
}

// timed notes how much time requests have.
type timed struct {
	store.Doer
	has map[time.Duration]int
}

// Do implements [store.Doer].
func (d timed) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	end, _ := ctx.Deadline()
	d.has[time.Until(end)]++
	return d.Doer.Do(ctx, op)
}
