// Package storetest has what tests of stores and of their users share: the
// contract that every [quota.Store] must pass, a store in memory that passes it,
// and ways to break one.
package storetest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/meteproject/mete/quota"
)

// Memory is a [quota.Store] in memory. The zero Memory is empty and ready to use:
// every holder is liable and no guarded document exists.
type Memory struct {
	// Trees keeps the accounts of each tree apart, as stores do of trees in different
	// shards. It is set before anything else.
	Trees bool

	mu       sync.Mutex
	accounts map[quota.Key]quota.Account // by keys as [Memory.account] returns them
	guards   map[quota.Guard]int64       // by guards without their revision
	gone     map[string]bool
	changed  func(quota.Key, quota.Account) // nil: nobody follows accounts
	writes   map[quota.Key]int
}

var _ quota.Store = (*Memory)(nil)

// Apply implements [quota.Store].
func (m *Memory) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	if err := ctx.Err(); err != nil {
		return quota.Result{}, fmt.Errorf("apply: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := m.account(op.Key)
	a := m.accounts[key]
	if !knows(a, op) {
		if err := m.check(op); err != nil {
			return quota.Result{}, err
		}
	}
	op.Gone = slices.Sorted(maps.Keys(m.gone))
	next, result := quota.Apply(a, op)
	if result.Granted == 0 && idle(a, next, op) {
		return result, nil
	}
	if m.accounts == nil {
		m.accounts, m.writes = map[quota.Key]quota.Account{}, map[quota.Key]int{}
	}
	m.accounts[key] = next
	m.writes[key]++
	if m.changed != nil {
		m.changed(key, next)
	}
	return result, nil
}

// Writes returns how often an account was written.
func (m *Memory) Writes(key quota.Key) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.writes[m.account(key)]
}

func (m *Memory) check(op quota.Operation) error {
	for _, g := range op.Guards {
		if op.Want == 0 {
			break // a report needs no terms
		}
		if now := m.guards[quota.Guard{Kind: g.Kind, Name: g.Name}]; now != g.Revision {
			return fmt.Errorf("%s %s is at revision %d, not %d: %w", g.Kind, g.Name, now, g.Revision, quota.ErrStale)
		}
	}
	if m.gone[op.Holder] {
		return fmt.Errorf("%s: %w", op.Holder, quota.ErrGone)
	}
	return nil
}

// Clear clears an account, and returns what of it had been used.
func (m *Memory) Clear(key quota.Key) (used int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key = m.account(key)
	a, known := m.accounts[key]
	if !known {
		return 0
	}
	m.accounts[key], used = a.Cleared()
	m.writes[key]++
	if m.changed != nil {
		m.changed(key, m.accounts[key])
	}
	return used
}

// SetGuard puts a document at g's revision; 0 deletes it.
func (m *Memory) SetGuard(g quota.Guard) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.guards == nil {
		m.guards = map[quota.Guard]int64{}
	}
	m.guards[quota.Guard{Kind: g.Kind, Name: g.Name}] = g.Revision
}

// SetLiable reports whether a holder is liable.
func (m *Memory) SetLiable(holder string, liable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone == nil {
		m.gone = map[string]bool{}
	}
	if liable {
		delete(m.gone, holder)
		return
	}
	m.gone[holder] = true
}

// Account returns an account as it is now.
func (m *Memory) Account(key quota.Key) quota.Account {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.accounts[m.account(key)]
}

// Accounts returns the keys of all accounts, without their roots unless Trees is set.
func (m *Memory) Accounts() []quota.Key {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Collect(maps.Keys(m.accounts))
}

// account returns the key under which an account is kept.
func (m *Memory) account(k quota.Key) quota.Key {
	if m.Trees {
		return k
	}
	return withoutRoot(k)
}

func withoutRoot(k quota.Key) quota.Key {
	k.Root = ""
	return k
}

// knows reports whether a has seen op, or op only asks.
func knows(a quota.Account, op quota.Operation) bool {
	return op.Seq == 0 || slices.ContainsFunc(a.Holders, func(h quota.Holder) bool { return h.ID == op.Holder && h.Seq >= op.Seq })
}

// idle reports whether next differs from a in op's sequence alone.
func idle(a, next quota.Account, op quota.Operation) bool {
	strip := func(a quota.Account) []quota.Holder {
		var hs []quota.Holder
		for _, h := range a.Holders {
			if h.ID == op.Holder && h.Used == 0 && len(h.Leases) == 0 {
				continue
			}
			if h.ID == op.Holder {
				h.Seq = 0
			}
			hs = append(hs, h)
		}
		return hs
	}
	return a.Base == next.Base && slices.EqualFunc(strip(a), strip(next), func(x, y quota.Holder) bool {
		return x.ID == y.ID && x.Seq == y.Seq && x.Used == y.Used && x.Reserved == y.Reserved && slices.Equal(x.Leases, y.Leases)
	})
}

// LostReply applies every nth operation and then fails it all the same.
func LostReply(s quota.Store, n int64) quota.Store { return &lossy{store: s, n: n} }

type lossy struct {
	store quota.Store
	n     int64
	calls atomic.Int64
}

// Apply implements [quota.Store].
func (l *lossy) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	r, err := l.store.Apply(ctx, op)
	if err == nil && l.calls.Add(1)%l.n == 0 {
		return quota.Result{}, context.DeadlineExceeded
	}
	return r, err
}

// A Link is a way to a store that can be cut.
type Link struct {
	store quota.Store
	cut   atomic.Bool
}

// Partition puts a link before a store. It is whole until it is cut.
func Partition(s quota.Store) *Link { return &Link{store: s} }

// Cut cuts the link: a call hangs until its context ends, also one that was under
// way, as it does when a network is cut.
func (l *Link) Cut() { l.cut.Store(true) }

// Heal makes the link whole for the calls that come after.
func (l *Link) Heal() { l.cut.Store(false) }

// Apply implements [quota.Store].
func (l *Link) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	if !l.cut.Load() {
		if r, err := l.store.Apply(ctx, op); !l.cut.Load() {
			return r, err
		}
	}
	<-ctx.Done()
	return quota.Result{}, fmt.Errorf("cut off: %w", ctx.Err())
}

// Unguarded returns s without its guards: every operation finds its documents as it
// expects them. For tests and benchmarks that have no documents in their store.
func Unguarded(s quota.Store) quota.Store { return unguarded{s} }

type unguarded struct{ quota.Store }

// Apply implements [quota.Store].
func (u unguarded) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	op.Guards = nil
	return u.Store.Apply(ctx, op)
}
