package store_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/storetest"
)

// newFaulty returns a wire that loses requests, loses replies, and delivers requests
// late, after it has reported an error: each with one transaction in twenty. late is
// what is still to be delivered.
func newFaulty(seed uint64, late *sync.WaitGroup) *wire {
	w := newWire(nil)
	var mu sync.Mutex
	dice := rand.New(rand.NewPCG(seed, 1))
	lost := errors.New("lost on the way")
	w.how = func(_ int, op clientv3.Op) fault {
		mu.Lock()
		roll, delay := dice.IntN(20), time.Duration(dice.IntN(20_000))*time.Microsecond
		mu.Unlock()
		switch {
		case accountsIn(op) == 0:
		case roll == 0:
			return fault{lost: lost}
		case roll == 1:
			return fault{reply: lost}
		case roll == 2:
			late.Go(func() {
				time.Sleep(delay) // the fault, not a wait for something
				_, _ = w.Doer.Do(context.Background(), op)
			})
			return fault{lost: lost}
		}
		return fault{}
	}
	return w
}

// A past is what holders saw of accounts.
type past struct {
	began time.Time
	mu    sync.Mutex
	ops   []porcupine.Operation
}

// apply does op until its outcome is known.
func (p *past) apply(s quota.Store, client int, op quota.Operation, patience time.Duration) quota.Result {
	for {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		call := time.Since(p.began)
		r, err := s.Apply(ctx, op)
		cancel()
		o := porcupine.Operation{ClientId: client, Input: op, Output: r, Call: int64(call), Return: int64(time.Since(p.began))}
		if err != nil {
			// It may take effect at any time from now on.
			o.Output, o.Return = nil, int64(time.Hour)
		}
		p.mu.Lock()
		p.ops = append(p.ops, o)
		p.mu.Unlock()
		if err == nil {
			return r
		}
	}
}

// What the holders of accounts see is what the plain arithmetic of quota.Apply says
// (case C102): in each mode, and with the mode changing meanwhile.
func TestAccounts_C102_HistoryIsLinearizable(t *testing.T) {
	t.Parallel()
	for name, mode := range map[string]func(*rand.Rand) store.Batching{
		"single":   func(*rand.Rand) store.Batching { return store.Single },
		"nested":   func(*rand.Rand) store.Batching { return store.Nested },
		"changing": func(dice *rand.Rand) store.Batching { return modes[dice.IntN(len(modes))] },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Run("replies to callers are lost", func(t *testing.T) {
				t.Parallel()
				fleet := history{mode: mode, same: func(got, want quota.Result) bool { return got == want }}
				fleet.wire = func(uint64) *wire { return newWire(nil) }
				fleet.store = func(s quota.Store) quota.Store { return storetest.LostReply(s, 5) }
				fleet.patience = func(*rand.Rand) time.Duration { return time.Minute }
				fleet.check(t)
			})
			t.Run("requests and replies are lost or late, and callers leave", func(t *testing.T) {
				t.Parallel()
				var late sync.WaitGroup
				fleet := history{mode: mode, same: sameGrant}
				fleet.wire = func(seed uint64) *wire { return newFaulty(seed, &late) }
				fleet.store = func(s quota.Store) quota.Store { return s }
				fleet.patience = func(dice *rand.Rand) time.Duration { return time.Duration(2+dice.IntN(300)) * time.Millisecond }
				fleet.check(t)
				late.Wait()
			})
		})
	}
}

// sameGrant compares what does not change any more once an operation is applied. The
// rest of an answer is as the account is later where the first answer was lost.
func sameGrant(got, want quota.Result) bool {
	return got.Granted == want.Granted && got.Seq == want.Seq && got.Own == want.Own
}

// A history is made by replicas that share accounts.
type history struct {
	mode     func(*rand.Rand) store.Batching
	wire     func(seed uint64) *wire
	store    func(quota.Store) quota.Store
	patience func(*rand.Rand) time.Duration
	same     func(got, want quota.Result) bool
}

const (
	historyTenants = 6
	historyCeiling = 120
)

func (h history) check(t *testing.T) {
	t.Helper()
	const replicas = 4
	seed, me := rand.Uint64(), unique(t)
	p := &past{began: time.Now()}
	var calls sync.WaitGroup
	for r := range replicas {
		accounts, id := h.wire(seed+uint64(r)).nested(), fmt.Sprintf("%s-%d", me, r)
		put(t, server.Client(), store.LiableKey(id), "")
		s := h.store(accounts)
		for tenant := range historyTenants {
			dice := rand.New(rand.NewPCG(seed, uint64(r*historyTenants+tenant)))
			calls.Go(func() {
				h.hold(p, s, r, quota.Key{Tenant: fmt.Sprint(me, tenant)}, id, dice, accounts)
			})
		}
	}
	calls.Wait()
	if got := porcupine.CheckOperationsTimeout(accountModel(h.same), p.ops, time.Minute); got != porcupine.Ok {
		t.Errorf("history of %d operations is %v; seed %d", len(p.ops), got, seed)
	}
	for tenant := range historyTenants {
		a, _, err := store.NewAccounts(server.Client()).Read(t.Context(), quota.Key{Tenant: fmt.Sprint(me, tenant)})
		if err != nil || a.Used()+a.Leased() > historyCeiling {
			t.Errorf("stored %+v, %v; seed %d", a, err, seed)
		}
	}
}

// hold takes leases of one account and spends some of them.
func (h history) hold(p *past, s quota.Store, replica int, key quota.Key, holder string, dice *rand.Rand, accounts *store.Accounts) {
	var used int64
	for seq := uint64(1); seq <= 20; seq++ {
		accounts.SetBatching(h.mode(dice))
		want := int64(seq % 17)
		got := p.apply(s, replica, quota.Operation{
			Key: key, Holder: holder, Seq: seq, Used: used,
			Want: want, Min: min(1, want), Ceiling: historyCeiling, Replicas: 1,
		}, h.patience(dice))
		used += min(got.Granted, int64(seq%2))
	}
}

// accountModel is quota.Apply, for each account by itself.
func accountModel(same func(got, want quota.Result) bool) porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			byAccount := map[quota.Key][]porcupine.Operation{}
			for _, o := range all {
				op, _ := o.Input.(quota.Operation)
				byAccount[op.Key] = append(byAccount[op.Key], o)
			}
			return slices.Collect(maps.Values(byAccount))
		},
		Init: func() any { return quota.Account{} },
		Step: func(state, input, output any) (bool, any) {
			a, _ := state.(quota.Account)
			op, _ := input.(quota.Operation)
			next, want := quota.Apply(a, op)
			if want.Used+want.Leased > op.Ceiling {
				return false, a
			}
			got, known := output.(quota.Result)
			return !known || same(got, want), next
		},
		Equal: func(x, y any) bool {
			a, _ := x.(quota.Account)
			b, _ := y.(quota.Account)
			return a.Base == b.Base && slices.EqualFunc(a.Holders, b.Holders, func(g, h quota.Holder) bool {
				return g.ID == h.ID && g.Seq == h.Seq && g.Used == h.Used && slices.Equal(g.Leases, h.Leases)
			})
		},
	}
}
