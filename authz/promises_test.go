package authz_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// keyed is an App that knows its tenants by other sources.
func keyed(sources string) string {
	return strings.Replace(app(""), "{request_header: x-tenant}", sources, 1)
}

// A lease is a number of units that a replica hands out alone: with it, most
// requests ask nobody (A2, A20).
func TestDecide_A2_A20_MostRequestsAskNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("100000", ""))+tenantDoc("org:a", "{plan: free}"))
		k.must(from("org:a"), authz.Allowed)
		if n := k.store.count(); n != 1 {
			t.Fatalf("the first request asked the store %d times, want once", n)
		}
		for range 6 { // of the first lease of 10 units, up to where it is renewed
			k.must(from("org:a"), authz.Allowed)
		}
		if n := k.store.count(); n != 1 {
			t.Errorf("7 requests from a lease of 10 asked the store %d times, want once", n)
		}
		const requests = 20_000
		for range requests {
			k.must(from("org:a"), authz.Allowed)
			time.Sleep(time.Millisecond)
		}
		if n := k.store.count(); n > requests/100 {
			t.Errorf("%d requests in 20 s asked the store %d times, want one in a hundred at most", requests, n)
		}
	})
}

// No lease is larger than what the customer has left, by all replicas (A24).
func TestDecide_A24_ALeaseIsNeverMoreThanIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("1000", ""))+tenantDoc("org:a", "{plan: free}"))
		k.must(from("org:a"), authz.Allowed)
		key := k.memory.Accounts()[0]
		other := quota.Operation{Key: key, App: "api", Holder: "r2", Seq: 1, Used: 983, Ceiling: 1000, Replicas: 2}
		if _, err := k.memory.Apply(t.Context(), other); err != nil {
			t.Fatal(err)
		}
		for i := range 16 { // 1,000 less 983 and the one of before
			k.must(from("org:a"), authz.Allowed)
			a := k.memory.Account(key)
			if a.Used()+a.Leased() > 1000 {
				t.Fatalf("request %d: %d used and %d lent of 1,000", i, a.Used(), a.Leased())
			}
		}
		k.must(from("org:a"), authz.QuotaExceeded)
	})
}

// A rate limit refuses without a call to anybody, whatever state the store is in
// (R2).
func TestDecide_R2_ARateRefusesWithoutACall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", "per_minute: {kind: rate, amount: 3, window: 1m}\n"+monthly("100", ""))+tenantDoc("org:a", "{plan: free}"))
		for range 3 {
			k.must(from("org:a"), authz.Allowed)
		}
		asked := k.store.count()
		k.store.slow(time.Hour)
		began := time.Now()
		for range 1000 {
			k.must(from("org:a"), authz.RateLimited)
		}
		if n, took := k.store.count()-asked, time.Since(began); n != 0 || took != 0 {
			t.Errorf("1,000 refusals asked the store %d times and took %v, want neither", n, took)
		}
	})
}

// What is configured is in memory: no decision of any outcome reads it from the
// store, and only a lease is ever asked for (P75).
func TestDecide_P75_NoDecisionReadsTheStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, keyed("{api_key: x-key}, {request_header: x-tenant}")+
			planDoc("free", "per_minute: {kind: rate, amount: 2, window: 1m}")+planDoc("none", "monthly: {kind: quota, amount: unlimited, reset: {calendar: month}}")+
			tenantDoc("org:a", "{plan: free}")+tenantDoc("org:free", "{}")+credentialDoc("good", "{tenant: \"org:a\"}"))
		key := func(k string) authz.Request {
			return authz.Request{Method: "GET", Path: "/", Headers: []authz.Field{{Name: "x-key", Value: k}}}
		}
		for range 100 {
			k.must(key("bad"), authz.Unauthenticated)
			k.must(authz.Request{}, authz.Unauthenticated)
			k.must(from("org:nobody"), authz.TenantUnknown)
			k.must(from("org:free"), authz.Allowed)
			k.put(tenantDoc("org:b", "{plan: free}")) // edits come by themselves
		}
		k.must(key("good"), authz.Allowed)
		k.must(from("org:a"), authz.Allowed)
		k.must(key("good"), authz.RateLimited)
		if n := k.store.count(); n != 0 {
			t.Errorf("decisions without a quota asked the store %d times", n)
		}
	})
}

// A caller that is not verified is charged to no tenant (C36).
func TestDecide_C36_OnlyVerifiedCallersAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, keyed("{api_key: x-key}")+
			planDoc("free", "per_minute: {kind: rate, amount: 2, window: 1m}\n"+monthly("2", ""))+tenantDoc("org:a", "{plan: free}")+
			credentialDoc("good", "{tenant: \"org:a\"}")+credentialDoc("old", "{tenant: \"org:a\", disabled: true}"))
		for range 50 {
			for _, fields := range [][]authz.Field{
				nil,
				{{Name: "x-key", Value: "bad"}},
				{{Name: "x-key", Value: "old"}},
				{{Name: "x-key", Value: "org:a"}},
				{{Name: "x-mete-tenant", Value: "org:a"}, {Name: "x-tenant", Value: "org:a"}},
			} {
				if dec := k.must(authz.Request{Headers: fields}, authz.Unauthenticated); len(dec.Limits) != 0 || dec.Tenant != "" {
					t.Fatalf("%v: the decision tells of %q: %s", fields, dec.Tenant, show(dec))
				}
			}
		}
		if n := len(k.memory.Accounts()); n != 0 {
			t.Errorf("%d accounts were opened", n)
		}
		good := authz.Request{Headers: []authz.Field{{Name: "x-key", Value: "good"}}}
		dec := k.must(good, authz.Allowed)
		if used, left := limit(t, dec, "monthly").Used, limit(t, dec, "per_minute").Left; used != 1 || left != 1 {
			t.Errorf("after 250 requests of strangers and one of its own: %d used, %d left; want 1 and 1", used, left)
		}
	})
}

// Rates and quotas of several windows hold side by side, two of one kind and window
// too; each is told by its name (case C020).
func TestDecide_C020_SeveralLimitsOfOneUnit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", `per_second: {kind: rate, amount: 2, window: 1s}
per_minute: {kind: rate, amount: 6, window: 1m}
daily: {kind: quota, amount: 9, reset: {calendar: day}}
monthly: {kind: quota, amount: 12, reset: {calendar: month}}`)+planDoc("twins", `wide: {kind: rate, amount: 5, window: 1m}
narrow: {kind: rate, amount: 3, window: 1m}`)+tenantDoc("org:a", "{plan: free}")+tenantDoc("org:b", "{plan: twins}"))
		until(t, "2026-12-10T08:00:00Z")
		refused := func(want string, outcome authz.Outcome) {
			t.Helper()
			dec := k.must(from("org:a"), outcome)
			if got := dec.Limits[dec.Worst].Limit.Name; got != want {
				t.Errorf("%s refused, want %s: %s", got, want, show(dec))
			}
		}
		admit := func(n int) {
			t.Helper()
			for range n {
				k.must(from("org:a"), authz.Allowed)
			}
		}
		admit(2)
		refused("per_second", authz.RateLimited)
		time.Sleep(time.Second)
		admit(2)
		time.Sleep(time.Second)
		admit(2)
		time.Sleep(time.Second)
		refused("per_minute", authz.RateLimited)
		time.Sleep(time.Minute)
		admit(2)
		time.Sleep(time.Second)
		admit(1)
		refused("daily", authz.QuotaExceeded)
		time.Sleep(24 * time.Hour)
		admit(2)
		time.Sleep(time.Second)
		admit(1)
		refused("monthly", authz.QuotaExceeded)

		for range 3 {
			k.must(from("org:b"), authz.Allowed)
		}
		dec := k.must(from("org:b"), authz.RateLimited)
		if dec.Limits[dec.Worst].Limit.Name != "narrow" || limit(t, dec, "wide").Left != 2 || limit(t, dec, "wide").Refused {
			t.Errorf("of two limits per minute: %s", show(dec))
		}
	})
}

// What cannot be evaluated follows a rule that is written down, and each outcome is
// counted under its own name (case C122).
func TestDecide_C122_WhatCannotBeEvaluated(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("open", monthly("100", ""))+planDoc("closed", monthly("100", ", on_unavailable: deny"))+
			tenantDoc("org:open", "{plan: open}")+tenantDoc("org:closed", "{plan: closed}")+tenantDoc("org:never", "{plan: never}")+`
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec: {app: api, rules: [{name: export, match: {path: /export}, weight: 5}]}
`)
		k.catalog.PutBroken(plan.KindPlan, "never", 99, "plan never has never been valid", nil)
		k.publish()
		k.must(authz.Request{Path: "/"}, authz.Unauthenticated) // the header that the App needs is absent
		k.must(from("org:never"), authz.UnavailableAllowed)     // nobody knows its limits: the App's rule
		k.remove(plan.KindRoutes, "api")                        // the table of weights is gone: each costs 1
		export := from("org:open")
		export.Path = "/export"
		if asked := limit(t, k.must(export, authz.Allowed), "monthly").Asked; asked != 1 {
			t.Errorf("without its table a route costs %d, want 1", asked)
		}
		k.store.slow(time.Hour)
		k.must(from("org:closed"), authz.Unavailable)
		for range 20 {
			k.ask(from("org:open")) // the lease, then the limit's own rule
		}
		k.must(from("org:open"), authz.UnavailableAllowed)
		counts := k.d.Stats().Decisions["api"]
		for outcome, least := range map[authz.Outcome]int64{authz.Unauthenticated: 1, authz.Unavailable: 1, authz.UnavailableAllowed: 2, authz.Allowed: 1} {
			if counts[outcome] < least {
				t.Errorf("%s is counted %d times, want %d at least: %v", outcome.Word(), counts[outcome], least, counts)
			}
		}
	})
}

// Edits come while requests are decided, as fast as every 200 decisions: each
// decision is made under one version of everything, and what is in force afterwards
// is what was written (case C148).
func TestDecide_C148_OneVersionToADecision(t *testing.T) {
	t.Parallel()
	const edits, between, workers, tenants = 100, 200, 4, 200
	k := newDesk(t, app("defaults: {plan: free}"))
	// Version v has amount 1,000,000,000 + v, weight v and a tree of its own.
	version := func(v int) string {
		docs := planDoc("free", fmt.Sprintf("per_second: {kind: rate, amount: %d, window: 1s, cascade: true}", 1_000_000_000+v)) + fmt.Sprintf(`
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec: {app: api, rules: [{name: all, match: {path_prefix: /}, weight: %d}]}
`, v)
		for i := range 2 {
			docs += tenantDoc(fmt.Sprintf("root:%d", i), "{plan: free}")
		}
		return docs + tenantDoc("org:moves", fmt.Sprintf("{parent: \"root:%d\", overrides: {per_second: {amount: %d, reason: edit %d}}}", v%2, 2_000_000_000+v, v))
	}
	k.put(version(1))
	for i := range tenants {
		k.put(tenantDoc(fmt.Sprintf("user:%d", i), fmt.Sprintf("{plan: free, overrides: {per_second: {amount: %d, reason: of its own}}}", 3_000_000_000+i)))
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	var decided atomic.Int64
	for w := range workers {
		wg.Go(func() {
			dec := new(authz.Decision)
			for i := w; !stop.Load(); i++ {
				name := "org:moves"
				if i%2 == 0 {
					name = fmt.Sprintf("user:%d", i%tenants)
				}
				req := from(name)
				dec.Reset()
				k.d.Decide(context.Background(), time.Now(), &req, dec)
				decided.Add(1)
				if why := oneVersion(name, i%tenants, dec); why != "" {
					t.Error(why)
					return
				}
			}
		})
	}
	for v := 2; v <= edits; v++ {
		for until := decided.Load() + between; decided.Load() < until && !t.Failed(); {
			runtime.Gosched()
		}
		k.put(version(v))
	}
	stop.Store(true)
	wg.Wait()
	for i := range tenants {
		dec := k.must(from(fmt.Sprintf("user:%d", i)), authz.Allowed)
		if got := dec.Limits[0].Limit.Amount; got != 3_000_000_000+int64(i) {
			t.Errorf("user:%d has an amount of %d", i, got)
		}
	}
}

// oneVersion says what is wrong with a decision of C148's documents.
func oneVersion(name string, i int, dec *authz.Decision) string {
	if dec.Outcome != authz.Allowed {
		return fmt.Sprintf("%s: %s, %s", name, dec.Outcome.Word(), dec.Why)
	}
	if name != "org:moves" {
		if len(dec.Limits) != 1 || dec.Limits[0].Limit.Amount != 3_000_000_000+int64(i) {
			return fmt.Sprintf("%s: %s", name, show(dec))
		}
		return ""
	}
	if len(dec.Limits) != 2 {
		return fmt.Sprintf("%s: %d limits, want its own and its root's: %s", name, len(dec.Limits), show(dec))
	}
	own, root := dec.Limits[0], dec.Limits[1]
	v := own.Limit.Amount - 2_000_000_000
	if root.Limit.Amount != 1_000_000_000+v || own.Asked != v || root.Asked != v || root.Tenant != fmt.Sprintf("root:%d", v%2) {
		return fmt.Sprintf("%s mixes versions: own amount of version %d, root %s with that of %d, weights %d and %d",
			name, v, root.Tenant, root.Limit.Amount-1_000_000_000, own.Asked, root.Asked)
	}
	return ""
}

// Two replicas that hear of the same documents in different order come to equal
// terms, windows, leases and orders of limits (case C150).
func TestDecide_C150_OrderOfArrivalDoesNotMatter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until(t, "2026-12-10T08:00:00Z")
		docs, problems := plan.Decode("test.yaml", []byte(app("defaults: {plan: free}")+
			planDoc("free", "z: {kind: rate, amount: 10, window: 1s}\na: {kind: rate, amount: 100, window: 1m}\n"+monthly("1000", ", cascade: true"))+
			planDoc("gold", "z: {kind: rate, amount: 50, window: 1s, cascade: true}\nweekly: {kind: quota, amount: 700, reset: {calendar: week}}")+
			tenantDoc("org:a", "{plan: gold, time_zone: Asia/Tokyo}")+
			tenantDoc("user:a", "{parent: \"org:a\", plan: free, overrides: {a: {amount: 7, reason: edit}}, limits: {own: {kind: quota, amount: 5, reset: {calendar: day}}}}")))
		if plan.Refused(problems) {
			t.Fatal(problems)
		}
		var seen [2]string
		for i := range seen {
			k := &desk{t: t, memory: &storetest.Memory{}, catalog: plan.NewCatalog()}
			k.store = &brakes{Store: k.memory}
			k.keeper = quota.NewKeeper(quota.KeeperConfig{Store: k.store, Now: time.Now}, "r1")
			k.d = authz.New(authz.Config{Keeper: k.keeper, Now: time.Now})
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() { defer close(done); _ = k.keeper.Run(ctx) }()
			for j := range docs {
				n := j
				if i == 1 {
					n = len(docs) - 1 - j
				}
				k.catalog.Put(docs[n], int64(n+1))
				k.memory.SetGuard(quota.Guard{Kind: string(docs[n].Kind), Name: docs[n].Name, Revision: int64(n + 1)})
				k.publish() // and is seen half way
				k.ask(from("user:other"))
			}
			k.d.SetReplicas(3)
			dec := k.must(from("user:a"), authz.Allowed)
			for _, l := range dec.Limits {
				seen[i] += fmt.Sprintf("%s %s %s of %d from %s, window %s to %v\n", l.Tenant, l.Plan, l.Limit.Name, l.Limit.Amount, l.Limit.Source, l.WindowID, l.ResetsAt.UTC())
			}
			terms := k.catalog.Snapshot().Terms(time.Now(), "api", "user:a")
			for _, node := range terms.Nodes {
				seen[i] += fmt.Sprintf("%s at version %d guarded by %v\n", node.Tenant, node.Version, node.Guards)
			}
			keys := k.memory.Accounts()
			slices.SortFunc(keys, func(a, b quota.Key) int {
				return slices.Compare([]string{a.Tenant, a.Limit}, []string{b.Tenant, b.Limit})
			})
			for _, key := range keys {
				if key.Tenant != "user:other" {
					seen[i] += fmt.Sprintf("%+v leased %d\n", key, k.memory.Account(key).Leased())
				}
			}
			cancel()
			<-done
			if len(dec.Limits) < 5 {
				t.Errorf("limits %s", show(dec))
			}
		}
		if seen[0] != seen[1] {
			t.Errorf("one replica\n%s\nthe other\n%s", seen[0], seen[1])
		}
	})
}
