package authz_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// TestDecide_A34_TwoReplicasNeverOver plays two replicas over one store: 1,000 units,
// random load, weights and answers that nobody hears. Not one unit too many.
func TestDecide_A34_TwoReplicasNeverOver(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { playDeciders(t, seed) })
		})
	}
}

func playDeciders(t *testing.T, seed uint64) {
	t.Helper()
	m := &storetest.Memory{}
	docs := treeDocs + planDoc("org", quotaOf("1000")) + planDoc("project", quotaOf("700")) + tenantDoc("org:o", "{plan: org}") +
		tenantDoc("project:1", `{plan: project, parent: "org:o"}`) + tenantDoc("project:2", `{plan: project, parent: "org:o"}`)
	var admitted [3]atomic.Int64
	var load sync.WaitGroup
	for i := range 2 {
		k := newDeskOn(t, m, fmt.Sprint("r", i), docs, 0)
		k.d.SetReplicas(2)
		for j := range 3 {
			rng := rand.New(rand.NewPCG(seed, uint64(10*i+j)))
			k.store.slow(time.Duration(rng.IntN(20)) * time.Millisecond)
			load.Go(func() {
				for range 300 {
					which := 1 + rng.IntN(2)
					req := from(fmt.Sprint("project:", which))
					req.Hits = 1 + rng.Int64N(4)
					dec := k.ask(req)
					if dec.Outcome == authz.UnavailableAllowed {
						t.Errorf("seed %d: a store that answers counts as away", seed)
					}
					if dec.Outcome.Admits() && rng.IntN(8) == 0 {
						k.d.GiveBack(time.Now(), dec)
					} else if dec.Outcome.Admits() {
						admitted[0].Add(req.Hits)
						admitted[which].Add(req.Hits)
					}
					time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
				}
			})
		}
	}
	load.Wait()
	time.Sleep(3 * time.Minute)
	synctest.Wait()
	for _, key := range m.Accounts() {
		at, ceiling := map[string]int{"org:o": 0, "project:1": 1, "project:2": 2}[key.Tenant], int64(700)
		if at == 0 {
			ceiling = 1000
		}
		n, a := admitted[at].Load(), m.Account(key)
		if n > ceiling || a.Used() != n || a.Leased() != 0 {
			t.Errorf("%s: %d of %d admitted; the account says used %d, leased %d", key.Tenant, n, ceiling, a.Used(), a.Leased())
		}
	}
	if n := admitted[0].Load(); n < 950 {
		t.Errorf("only %d of 1,000 were of use", n)
	}
}

// A tenant that may use two apps gets no new bucket by going to and fro between them.
func TestDecide_C041_TwoAppsMakeNoNewBuckets(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		other := `
---
apiVersion: mete/v1
kind: App
metadata: {name: other}
spec: {time_zone: UTC, identity: {tenant: [{request_header: x-tenant}]}, defaults: {plan: other}}
`
		k := newDesk(t, app("defaults: {plan: free}")+other+
			planDoc("free", "per_hour: {kind: rate, amount: 3, window: 1h}\n"+monthly("100", ""))+
			planDoc("other", "hourly: {kind: rate, amount: 3, window: 1h}\n"+monthly("100", ""))+tenantDoc("org:a", "{}"))
		count := map[string]int{}
		for range 10 {
			for _, name := range []string{"api", "other"} {
				req := from("org:a")
				req.App = name
				if k.ask(req).Outcome == authz.Allowed {
					count[name]++
				}
				time.Sleep(time.Second)
			}
		}
		if count["api"] != 3 || count["other"] != 3 {
			t.Errorf("admitted %v, want 3 in each", count)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		var used int64
		for _, key := range k.memory.Accounts() {
			used += k.memory.Account(key).Used()
		}
		if used != 6 {
			t.Errorf("%d counted, want 6", used)
		}
	})
}

// Around a boundary requests of both windows come in. They make no waits and no
// storm of operations.
func TestDecide_A17_BothWindowsAroundTheBoundary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", "hourly: {kind: quota, amount: 1000, reset: {calendar: hour}}")+tenantDoc("org:a", "{plan: free}"))
		until(t, "2026-12-10T10:59:00Z")
		k.store.slow(5 * time.Millisecond)
		waits := 0
		for i := range 200 {
			req, start := from("org:a"), time.Now()
			if i%2 == 1 {
				req.Start = time.Now().Add(-time.Minute)
			}
			k.must(req, authz.Allowed)
			if time.Since(start) > 0 {
				waits++
			}
		}
		if n := k.store.count(); waits > 12 || n > 30 {
			t.Errorf("%d of 200 requests waited, %d operations", waits, n)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for _, key := range k.memory.Accounts() {
			if a := k.memory.Account(key); a.Used() != 100 || a.Leased() != 0 {
				t.Errorf("%s: used %d, leased %d; want 100 and 0", key.Window, a.Used(), a.Leased())
			}
		}
	})
}

// What a Decision says stays true when the caller's buffer is used again.
func TestDecide_ADecisionKeepsNothingOfTheCallersBuffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: UTC
  identity: {tenant: [{request_header: x-tenant}], principal: [{request_header: x-user}]}
`+planDoc("free", monthly("100", ""))+tenantDoc("org:a", "{plan: free}")+`
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec:
  app: api
  rules: [{name: quota, match: {path_prefix: /quota}, meter: false, check: false, reason: reading your own quota is free}]
`)
		for _, path := range []string{"/", "/quota"} {
			for _, tenant := range []string{"org:a", "org:unknown"} {
				buffer := []byte(tenant + "jo" + path)
				text := unsafe.String(&buffer[0], len(buffer))
				n := len(tenant)
				dec := k.ask(authz.Request{Method: "GET", Path: text[n+2:], Headers: []authz.Field{
					{Name: "x-tenant", Value: text[:n]}, {Name: "x-user", Value: text[n : n+2]},
				}})
				clear(buffer)
				if dec.Tenant != tenant || dec.Principal != "jo" {
					t.Errorf("%s of %s: decision of tenant %q, principal %q", path, tenant, dec.Tenant, dec.Principal)
				}
			}
		}
	})
}

func TestDecide_C046_ACheckInTheGraceBand(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("soft", monthly("10", ", when_used_up: {grace: 20%}"))+tenantDoc("org:a", "{plan: soft}"))
		check := from("org:a")
		check.CheckOnly = true
		for i := range 12 {
			if dec := k.ask(check); !dec.Outcome.Admits() {
				t.Errorf("a check after %d of 12: %s", i, dec.Outcome.Word())
			}
			k.ask(from("org:a"))
		}
		k.must(check, authz.QuotaExceeded)
		k.must(from("org:a"), authz.QuotaExceeded)
	})
}

// A route that is never refused is not refused either while terms are not known.
func TestDecide_C122_NeverRefusedThoughThePlanIsBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("defaults: {on_unavailable: deny}")+planDoc("free", monthly("1", "")+"\nper_hour: {kind: rate, amount: 1, window: 1h}")+
			tenantDoc("org:a", "{plan: never}")+tenantDoc("org:b", "{plan: free}")+`
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec: {app: api, rules: [{name: ingest, match: {path: /ingest}, check: false, reason: telemetry can not be sent again}]}
`)
		ingest := from("org:a")
		ingest.Path = "/ingest"
		k.must(from("org:a"), authz.Unavailable)
		k.must(ingest, authz.UnavailableAllowed)
		ingest = from("org:b")
		ingest.Path = "/ingest"
		k.must(from("org:b"), authz.Allowed)
		for range 5 { // bucket and quota have run out
			k.must(ingest, authz.CountedOver)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for _, key := range k.memory.Accounts() {
			if used := k.memory.Account(key).Used(); used != 6 {
				t.Errorf("%d counted, want 6", used)
			}
		}
	})
}

// A split limit of an ancestor follows the replicas for all that share it, also when
// their number changes and comes back.
func TestTree_R24_SplitAncestorFollowsReplicasThatComeAndGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, treeDocs+planDoc("org", "per_second: {kind: rate, amount: 10, window: 1s, replicas: split, cascade: true}")+planDoc("none", "x: {kind: rate, amount: 1000, window: 1s}")+
			tenantDoc("org:o", "{plan: org}")+tenantDoc("project:1", `{plan: none, parent: "org:o"}`)+tenantDoc("project:2", `{plan: none, parent: "org:o"}`))
		k.must(from("project:1"), authz.Allowed)
		k.d.SetReplicas(10)
		k.must(from("project:2"), authz.Allowed)
		k.d.SetReplicas(1)
		k.ask(from("project:1"))
		time.Sleep(2 * time.Second)
		n := 0
		for k.ask(from("project:1")).Outcome == authz.Allowed {
			n++
		}
		if n != 10 {
			t.Errorf("%d at once with one replica, want 10", n)
		}
	})
}

// A store that answers "not now" for one account makes nobody wait and no one else
// go uncounted.
func TestDecide_A61_OneFailingAccountWaitsOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("100", ", on_unavailable: deny"))+tenantDoc("org:a", "{plan: free}")+tenantDoc("org:b", "{plan: free}"))
		k.memory.SetGuard(quota.Guard{Kind: "Tenant", Name: "org:a", Revision: 99}) // the watch has not told yet
		start := time.Now()
		dec := k.must(from("org:a"), authz.Unavailable)
		if waited := time.Since(start); waited != 300*time.Millisecond || dec.RetryAfter <= 0 || dec.RetryAfter > 5*time.Second {
			t.Errorf("waited %v, retry after %v", waited, dec.RetryAfter)
		}
		start = time.Now()
		for range 100 {
			k.must(from("org:a"), authz.Unavailable)
			k.must(from("org:b"), authz.Allowed)
		}
		if waited := time.Since(start); waited != 0 {
			t.Errorf("waited %v again", waited)
		}
		k.put(tenantDoc("org:a", "{plan: free}"))
		k.must(from("org:a"), authz.Allowed)
	})
}

func TestDecide_ClaimsAllocateNothing(t *testing.T) {
	k := newDesk(t, `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec: {time_zone: UTC, identity: {tenant: [{jwt_claim: org.id}]}}
`+planDoc("free", "per_second: {kind: rate, amount: 1000000000, window: 1s}")+tenantDoc("org:a", "{plan: free}"))
	req := &authz.Request{Method: "GET", Path: "/", Metadata: orgClaim{}}
	dec := new(authz.Decision)
	dec.Reset()
	if n := testing.AllocsPerRun(100, func() {
		dec.Reset()
		k.d.Decide(context.Background(), time.Now(), req, dec)
	}); n != 0 || dec.Outcome != authz.Allowed {
		t.Errorf("%v allocations for %s", n, dec.Outcome.Word())
	}
}

type orgClaim struct{}

func (orgClaim) Find(_ string, path []string) (string, authz.Found) {
	if len(path) == 3 && path[2] == "id" {
		return "org:a", authz.Value
	}
	return "", authz.Nothing
}

// A caller that waits as long as was announced is let in, with several limits that have
// run out, of both kinds, on the whole path.
func TestDecide_C128_TheAnnouncedWaitIsEnough(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 3))
			rate := func(name, window string) string {
				return fmt.Sprintf("%s: {kind: rate, amount: %d, window: %s, cascade: true}\n", name, 4+rng.IntN(30), window)
			}
			budget := func(name, reset string) string {
				return fmt.Sprintf("%s: {kind: quota, amount: %d, reset: {calendar: %s}, cascade: true}\n", name, 4+rng.IntN(60), reset)
			}
			k := newDesk(t, treeDocs+planDoc("org", rate("fast", "7s")+budget("daily", "day"))+planDoc("project", rate("fast", "1s")+rate("slow", "90s")+budget("hourly", "hour"))+
				tenantDoc("org:o", "{plan: org}")+tenantDoc("project:1", `{plan: project, parent: "org:o"}`))
			for range 60 {
				req := from("project:1")
				req.Hits = 1 + rng.Int64N(4)
				dec := k.ask(req)
				if !dec.Outcome.Admits() {
					if dec.RetryAfter <= 0 {
						t.Fatalf("seed %d: refused without a wait: %s", seed, show(dec))
					}
					early := time.Duration(0)
					if dec.Limits[dec.Worst].ResetsAt.IsZero() { // the last minute of a quota counts to the next window
						early = 1
					}
					time.Sleep(dec.RetryAfter - early)
					if early > 0 && k.ask(req).Outcome.Admits() {
						t.Fatalf("seed %d: admitted before the announced wait of %v", seed, dec.RetryAfter)
					}
					time.Sleep(early)
					if at := k.ask(req); !at.Outcome.Admits() {
						t.Fatalf("seed %d: refused after the announced wait of %v: %s; then %s", seed, dec.RetryAfter, show(dec), show(at))
					}
				}
				time.Sleep(time.Duration(rng.IntN(400)) * time.Millisecond)
			}
		})
	}
}

// Callers with less time than a lease may take do not wait one after the other: what
// nobody has answered for 300 ms counts for all of them (A61, C118).
func TestDecide_A61_C118_ImpatientCallersWaitOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("100", ""))+tenantDoc("org:a", "{plan: free}"))
		// An edit that the watch does not bring: every grant is refused as stale.
		k.memory.SetGuard(quota.Guard{Kind: "Plan", Name: "free", Revision: 99})
		waits := 0
		for range 15 {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
			dec, req := new(authz.Decision), from("org:a")
			dec.Reset()
			k.d.Decide(ctx, began, &req, dec)
			cancel()
			if dec.Outcome != authz.UnavailableAllowed {
				t.Fatalf("%s, want the choice for when etcd is away", dec.Outcome.Word())
			}
			if time.Since(began) > 100*time.Millisecond {
				waits++
			}
			time.Sleep(time.Millisecond)
		}
		if waits > 2 {
			t.Errorf("%d of 15 requests waited, want 2 at most", waits)
		}
	})
}
