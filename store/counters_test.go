package store_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// P35: the accounts under a prefix, in all shards and however many there are in one, and
// no others.
func TestListUnder_P35_FindsAllAndNoOthers(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	one, err := store.EncodeAccount(quota.Account{Base: 7})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	add := func(root, tenant string, found bool) {
		key := store.AccountKey(quota.Key{Root: root, Tenant: tenant, Limit: "ratelimit:per_hour", Window: "hour@2026-11-30T12:00Z"})
		put(t, c, key, string(one))
		if found {
			want = append(want, key)
		}
	}
	for i := range 300 {
		add(fmt.Sprint("edge?org=", i), fmt.Sprint("edge?org=", i), true)
		add("same", fmt.Sprint("edge?route=%2F", i), true) // all in one shard
	}
	for _, other := range []string{"edge", "edg", "edge@", "edge%3F", "edge/eg?a=b", "org:edge?a", "edge>"} {
		add(other, other, false)
	}
	put(t, c, store.AccountsPrefix+"00/edge?bad=1/l/w", "\xff")
	put(t, c, store.AccountsPrefix+"00/edge?bad=2", "")
	found, err := store.NewAccounts(c).ListUnder(t.Context(), "edge?")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range found {
		if e.Account.Used() != 7 || e.Revision == 0 {
			t.Fatalf("%+v", e)
		}
		root := e.Key.Tenant
		if strings.Contains(root, "route") {
			root = "same"
		}
		e.Key.Root = root
		got = append(got, store.AccountKey(e.Key))
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("found %d accounts, want %d", len(got), len(want))
	}
}

// holding is a holder that takes leases of an account, spends some of each, and knows
// what it has reported.
type holding struct {
	op       quota.Operation
	reported int64
}

// renew reports a part of what was granted, and asks for more.
func (h *holding) renew(t *testing.T, s quota.Store, dice *rand.Rand) {
	h.op.Seq++
	h.op.Want, h.op.Min = dice.Int64N(9), 0
	h.op.Min = min(1, h.op.Want)
	res := apply(t, s, h.op)
	h.reported = h.op.Used
	h.op.Used += min(res.Granted, dice.Int64N(5))
	h.op.Hold = []quota.Lease{{ID: h.op.Seq, Units: res.Granted - (h.op.Used - h.reported)}}
}

// P36: accounts that replicas renew are cleared, by two at once, and every unit that was
// reported is counted, or was cleared once.
func TestClearAccounts_P36_A34_TwoAtOnceAmongReplicas(t *testing.T) {
	t.Parallel()
	c, me := server.Client(), unique(t)
	hour, day := quota.Key{Root: me, Tenant: me, Limit: "ratelimit:per_hour", Window: "h"}, quota.Key{Root: me, Tenant: me, Limit: "ratelimit:per_day", Window: "d"}
	never := quota.Key{Root: me, Tenant: me, Limit: "ratelimit:per_year", Window: "y"}
	var renewing, clearers sync.WaitGroup
	var over atomic.Bool
	var holders []*holding
	for i := range 4 {
		h := &holding{op: quota.Operation{Key: []quota.Key{hour, day}[i%2], Holder: fmt.Sprint(me, i), Ceiling: 1000, Replicas: 2}}
		holders = append(holders, h)
		put(t, c, store.LiableKey(h.op.Holder), "")
		accounts, dice := store.NewAccounts(c), rand.New(rand.NewPCG(1, uint64(i)))
		renewing.Go(func() {
			for !over.Load() {
				h.renew(t, accounts, dice)
			}
		})
	}
	cleared := map[quota.Key]int64{}
	var mu sync.Mutex
	for range 2 {
		clearers.Go(func() {
			for range 15 {
				done, revision, err := store.ClearAccounts(t.Context(), c, me, []quota.Key{hour, never, day})
				if err != nil || revision == 0 {
					t.Errorf("clear: %v at %d", err, revision)
				}
				mu.Lock()
				for _, d := range done {
					cleared[d.Key] += d.Used
				}
				mu.Unlock()
			}
		})
	}
	clearers.Wait()
	over.Store(true)
	renewing.Wait()
	for i, key := range []quota.Key{hour, day, never} {
		var reported int64
		for j, h := range holders {
			if j%2 == i && i < 2 {
				reported += h.reported
			}
		}
		a, revision, err := store.NewAccounts(c).Read(t.Context(), key)
		if err != nil || a.Used()+cleared[key] != reported {
			t.Errorf("%s: used %d and cleared of %d, want %d in all (%v)", key.Limit, a.Used(), cleared[key], reported, err)
		}
		if (cleared[key] > 0) == (key == never) || (revision > 0) == (key == never) {
			t.Errorf("%s was cleared of %d, at revision %d", key.Limit, cleared[key], revision)
		}
	}
}

// A clearing in a history is an account that somebody cleared.
type clearing struct{ key quota.Key }

// P36, C102: what holders and those who clear see is one order of both.
func TestClearAccounts_P36_C102_HistoryIsLinearizable(t *testing.T) {
	t.Parallel()
	c, me, seed := server.Client(), unique(t), rand.Uint64()
	key := quota.Key{Root: me, Tenant: me}
	p := &past{began: time.Now()}
	var calls sync.WaitGroup
	for r := range 3 {
		id, dice := fmt.Sprint(me, r), rand.New(rand.NewPCG(seed, uint64(r)))
		put(t, c, store.LiableKey(id), "")
		accounts := newWire(nil).nested()
		h := history{mode: func(*rand.Rand) store.Batching { return store.Nested }, patience: func(*rand.Rand) time.Duration { return time.Minute }}
		calls.Go(func() { h.hold(p, accounts, r, key, id, dice, accounts) })
	}
	for r := range 2 {
		calls.Go(func() {
			for range 10 {
				call := time.Since(p.began)
				done, _, err := store.ClearAccounts(t.Context(), c, me, []quota.Key{key})
				if err != nil {
					t.Error(err)
				}
				var used int64
				for _, d := range done {
					used += d.Used
				}
				p.mu.Lock()
				p.ops = append(p.ops, porcupine.Operation{ClientId: 3 + r, Input: clearing{key}, Output: used, Call: int64(call), Return: int64(time.Since(p.began))})
				p.mu.Unlock()
			}
		})
	}
	calls.Wait()
	model := accountModel(func(got, want quota.Result) bool { return got == want })
	step := model.Step
	model.Partition = nil
	model.Step = func(state, input, output any) (bool, any) {
		if _, clears := input.(clearing); !clears {
			return step(state, input, output)
		}
		next, used := state.(quota.Account).Cleared()
		return used == output.(int64), next
	}
	if got := porcupine.CheckOperationsTimeout(model, p.ops, time.Minute); got != porcupine.Ok {
		t.Errorf("history of %d operations is %v; seed %d", len(p.ops), got, seed)
	}
}

// P36: more accounts than one transaction takes are all cleared, and what replicas keep
// moving is told to be so.
func TestClearAccounts_P36_ManyAndBusyOnes(t *testing.T) {
	t.Parallel()
	c, me := server.Client(), unique(t)
	used, err := store.EncodeAccount(quota.Account{Base: 7})
	if err != nil {
		t.Fatal(err)
	}
	var keys []quota.Key
	for i := range 150 {
		keys = append(keys, quota.Key{Root: me, Tenant: me, Limit: fmt.Sprint("ratelimit:per_hour=", i), Window: "h"})
		put(t, c, store.AccountKey(keys[i]), string(used))
	}
	done, _, err := store.ClearAccounts(t.Context(), c, me, keys)
	if err != nil || len(done) != 150 {
		t.Errorf("%d cleared, %v", len(done), err)
	}
	entries, err := store.NewAccounts(c).ListOf(t.Context(), me, me)
	if err != nil || len(entries) != 150 {
		t.Errorf("%d accounts, %v", len(entries), err)
	}
	for _, e := range entries {
		if e.Account.Used() != 0 || e.Account.Base != 0 || e.Key.Root != me {
			t.Errorf("%+v", e)
		}
	}
	busy := busyAccounts{c, func() { put(t, c, store.AccountKey(keys[0]), string(used)) }}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, _, err := store.ClearAccounts(ctx, busy, me, keys[:1]); err == nil {
		t.Error("cleared, though it was changed each time")
	}
}

// busyAccounts are moved before whatever is written to them.
type busyAccounts struct {
	store.Doer
	move func()
}

func (b busyAccounts) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsTxn() {
		if compares, _, _ := op.Txn(); len(compares) > 0 {
			b.move()
		}
	}
	return b.Doer.Do(ctx, op)
}

// S27: a store that needs a newer version is not written to.
func TestClearAccounts_P36_S27_NotInANewerStore(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.MinimumKey, fmt.Sprintf(`{"feature_level": %d}`, plan.FeatureLevel+1))
	var old *store.TooOldError
	if _, _, err := store.ClearAccounts(t.Context(), c, "org:a", nil); !errors.As(err, &old) {
		t.Errorf("got %v, want a TooOldError", err)
	}
	if r, err := c.Get(t.Context(), store.VersionKey("org:a")); err != nil || len(r.Kvs) > 0 {
		t.Errorf("written: %+v, %v", r, err)
	}
}

// startDecider runs a decider on c's documents and accounts, as a replica does that has no
// board: it hears of nothing but documents.
func startDecider(t *testing.T, c *clientv3.Client, holder string) (*replica, *authz.Decider) {
	t.Helper()
	put(t, c, store.LiableKey(holder), "")
	keeper := quota.NewKeeper(quota.KeeperConfig{Store: store.NewAccounts(c), Now: time.Now, Wait: patience}, holder)
	keeper.SetReplicas(2)
	d := authz.New(authz.Config{Keeper: keeper, Now: time.Now})
	r := startDocuments(t, c, zerolog.Nop())
	ctx, cancel := context.WithCancel(t.Context())
	r.done.Go(func() { _ = keeper.Run(ctx) })
	t.Cleanup(func() { cancel(); r.stop() })
	return r, d
}

// decide asks for a tenant, and countOne for a descriptor.
func decide(t *testing.T, d *authz.Decider) authz.Outcome {
	t.Helper()
	dec := new(authz.Decision)
	dec.Reset()
	d.Decide(t.Context(), time.Now(), &authz.Request{Method: "GET", Path: "/", Headers: []authz.Field{{Name: "x-tenant", Value: "org:a"}}}, dec)
	return dec.Outcome
}

func countOne(t *testing.T, d *authz.Decider) authz.Outcome {
	t.Helper()
	n := new(authz.Count)
	n.Reset()
	d.CountDescriptors(t.Context(), time.Now(), "edge", []authz.DescriptorAsk{{Entries: []plan.DescriptorEntry{{Key: "org", Value: "\xff"}}, Hits: 1}}, false, n)
	return n.Outcome
}

// P36: callers that are refused on several replicas are admitted as soon as these hear
// that the quota, or the counter, was cleared; nobody waits until a refusal is forgotten.
func TestClearAccounts_P36_RefusedCallersAreAdmitted(t *testing.T) {
	t.Parallel()
	for tenant, ask := range map[string]func(*testing.T, *authz.Decider) authz.Outcome{"org:a": decide, "edge?org=%FF": countOne} {
		t.Run(tenant, func(t *testing.T) {
			t.Parallel()
			c := ownServer(t).Client()
			put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
			put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 30))
			put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "pro", ""))
			put(t, c, store.DocumentKey(plan.KindRateLimits, "edge"), "domain: edge\ndescriptors:\n- {key: org, rate_limit: {unit: year, requests_per_unit: 30}}\n")
			var replicas []*replica
			var deciders []*authz.Decider
			for i := range 2 {
				r, d := startDecider(t, c, fmt.Sprint("r", i))
				r.until("documents", func(s *plan.Snapshot) bool {
					return s.Domain("edge") != nil && len(s.Terms(time.Now(), "shop", "org:a").Nodes) == 1
				})
				d.SetSnapshot(r.Snapshot())
				replicas, deciders = append(replicas, r), append(deciders, d)
			}
			spend := func() (admitted int64) {
				for _, d := range slices.Concat(deciders, deciders) { // again: the other one may have held some
					for ask(t, d) == authz.Allowed {
						admitted++
					}
				}
				return admitted
			}
			if n := spend(); n != 30 {
				t.Fatalf("%d admitted of 30", n)
			}
			revision := clearAll(t, c, tenant, 30)
			for i, r := range replicas {
				deciders[i].SetSnapshot(r.until("news", func(s *plan.Snapshot) bool { return s.Void(tenant) == revision }))
				if got := ask(t, deciders[i]); got != authz.Allowed {
					t.Errorf("replica %d says %v after it was cleared", i, got)
				}
			}
			if n := spend(); n != 28 {
				t.Errorf("%d admitted after it was cleared, of 28 that were left", n)
			}
		})
	}
}

// clearAll clears all accounts of a tenant, which is a root.
func clearAll(t *testing.T, c *clientv3.Client, tenant string, want int64) (revision int64) {
	t.Helper()
	found, err := store.NewAccounts(c).ListOf(t.Context(), tenant, tenant)
	if err != nil {
		t.Fatal(err)
	}
	var keys []quota.Key
	for _, e := range found {
		keys = append(keys, e.Key)
	}
	done, revision, err := store.ClearAccounts(t.Context(), c, tenant, keys)
	var used int64
	for _, d := range done {
		used += d.Used
	}
	if err != nil || used != want {
		t.Fatalf("cleared of %d, %v; want %d", used, err, want)
	}
	return revision
}
