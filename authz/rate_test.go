package authz_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/storetest"
)

const twoRates = `per_second: {kind: rate, amount: 10, window: 1s}
per_minute: {kind: rate, amount: 300, window: 1m}`

func TestDecide_R1_R4_R7_R17_SecondAndMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", twoRates)+tenantDoc("org:a", "{plan: free}"))
		for range 10 {
			k.must(from("org:a"), authz.Allowed)
		}
		dec := k.must(from("org:a"), authz.RateLimited)
		second, minute := limit(t, dec, "per_second"), limit(t, dec, "per_minute")
		if !second.Refused || minute.Refused || dec.RetryAfter != 100*time.Millisecond {
			t.Fatalf("refused by %s after %v, want per_second alone, in 100ms", show(dec), dec.RetryAfter)
		}
		if second.Left != 0 || second.Reset != 100*time.Millisecond || minute.Left != 290 || minute.Reset != 2*time.Second {
			t.Fatalf("states %s, want 0 in 100ms and 290 full in 2s", show(dec))
		}
		time.Sleep(100 * time.Millisecond) // R15: one token each 100 ms
		k.must(from("org:a"), authz.Allowed)
		k.must(from("org:a"), authz.RateLimited)
	})
}

func TestDecide_R18_MinuteCapsSustainedTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", twoRates)+tenantDoc("org:a", "{plan: free}"))
		admitted := 0
		for range 1200 { // 20 a second for a minute
			if k.ask(from("org:a")).Outcome == authz.Allowed {
				admitted++
			}
			time.Sleep(50 * time.Millisecond)
		}
		if admitted < 590 || admitted > 601 {
			t.Fatalf("%d admitted in a minute, want the burst of 300 and 300 more", admitted)
		}
	})
}

func TestDecide_R10_R13_R14_C019_EachTenantForItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		one := `per_minute: {kind: rate, amount: 1, window: 1m}`
		k := newDesk(t, app("")+planDoc("p1", one)+planDoc("p2", one)+
			tenantDoc("org:a", "{plan: p1}")+tenantDoc("org:b", "{plan: p2}")+tenantDoc("org:none", "{}"))
		k.must(from("org:a"), authz.Allowed)
		k.must(from("org:a"), authz.RateLimited)
		k.must(from("org:b"), authz.Allowed)
		for range 50 {
			k.must(from("org:none"), authz.Allowed) // without a plan there is no limit
		}
	})
}

func TestDecide_R11_ALeftOutLimitImposesNothing_C008(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("minute", `per_minute: {kind: rate, amount: 5, window: 1m}`)+
			planDoc("zero", `per_second: {kind: rate, amount: 0, window: 1s}`)+
			planDoc("zeroquota", `monthly: {kind: quota, amount: 0, reset: {calendar: month}}`)+
			tenantDoc("org:a", "{plan: minute}")+tenantDoc("org:z", "{plan: zero}")+tenantDoc("org:q", "{plan: zeroquota}"))
		for range 5 {
			k.must(from("org:a"), authz.Allowed)
		}
		k.must(from("org:a"), authz.RateLimited)
		if dec := k.must(from("org:z"), authz.RateLimited); dec.RetryAfter != 0 {
			t.Errorf("a rate of zero says to wait %v; no wait can help", dec.RetryAfter)
		}
		dec := k.must(from("org:q"), authz.QuotaExceeded)
		if end := limit(t, dec, "monthly").ResetsAt; dec.RetryAfter != time.Until(end) {
			t.Errorf("a quota of zero says to wait %v, want until %v", dec.RetryAfter, end)
		}
		if n := k.store.count(); n > 1 {
			t.Errorf("a quota of zero asked the store %d times", n)
		}
	})
}

func TestDecide_R19_R20_A10_C030_ARefusedRequestTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("units: {renders: {}}")+planDoc("free", `all: {kind: rate, amount: 10, window: 1m}
render: {kind: rate, amount: 3, window: 1m, unit: renders}
monthly: {kind: quota, amount: 100, reset: {calendar: month}}`)+tenantDoc("org:a", "{plan: free}")+`
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec: {app: api, rules: [{name: render, match: {path_prefix: /render}, units: {renders: {reserve: 1}}}]}
`)
		render := from("org:a")
		render.Path = "/render/x"
		for i := range 5 {
			want := authz.Allowed
			if i >= 3 {
				want = authz.RateLimited
			}
			k.must(render, want)
		}
		for range 7 {
			k.must(from("org:a"), authz.Allowed)
		}
		dec := k.must(from("org:a"), authz.RateLimited)
		if used := limit(t, dec, "monthly").Used; used != 10 {
			t.Errorf("%d of the quota used by 10 admitted requests", used)
		}
	})
}

func TestDecide_C030_QuotaRefusesWithoutTakingTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", `per_hour: {kind: rate, amount: 100, window: 1h}
monthly: {kind: quota, amount: 3, reset: {calendar: month}}`)+tenantDoc("org:a", "{plan: free}"))
		for range 3 {
			k.must(from("org:a"), authz.Allowed)
		}
		for range 20 {
			k.must(from("org:a"), authz.QuotaExceeded)
		}
		if left := limit(t, k.ask(from("org:a")), "per_hour").Left; left != 97 {
			t.Errorf("%d tokens left, want 97: refusals took some", left)
		}
	})
}

func TestDecide_R22_R23_R24_R25_FullAndSplit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("split", `per_second: {kind: rate, amount: 10, window: 1s, replicas: split}`)+
			planDoc("full", `per_second: {kind: rate, amount: 10, window: 1s}`)+
			planDoc("one", `per_second: {kind: rate, amount: 1, window: 1s, replicas: split}`)+
			tenantDoc("org:s", "{plan: split}")+tenantDoc("org:f", "{plan: full}")+tenantDoc("org:o", "{plan: one}"))
		burst := func(tenant string) (n int) {
			for k.ask(from(tenant)).Outcome == authz.Allowed {
				n++
			}
			return n
		}
		if n := burst("org:s"); n != 10 {
			t.Fatalf("alone: %d, want 10", n)
		}
		k.d.SetReplicas(4)
		time.Sleep(time.Minute)
		for tenant, want := range map[string]int{"org:s": 3, "org:f": 10, "org:o": 1} {
			if n := burst(tenant); n != want {
				t.Errorf("one of four: %s got %d, want %d", tenant, n, want)
			}
		}
		k.d.SetReplicas(1)
		time.Sleep(time.Minute)
		if n := burst("org:s"); n != 10 {
			t.Errorf("alone again: %d, want 10", n)
		}
	})
}

// Known effects of counting in each replica's memory: a customer whose requests all
// reach one replica has that one's share alone (R27), and a process that begins again has
// full buckets (R28).
func TestDecide_R27_R28_KnownEffects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := app("") + planDoc("free", "hourly: {kind: rate, amount: 10, window: 1h, replicas: split}") + tenantDoc("org:a", "{plan: free}")
		burst := func() (allowed int) {
			k := newDesk(t, docs)
			k.d.SetReplicas(4)
			for k.ask(from("org:a")).Outcome == authz.Allowed {
				allowed++
			}
			return allowed
		}
		if n := burst(); n != 3 {
			t.Errorf("%d requests at one of 4 replicas, want 10 / 4 rounded up", n)
		}
		if n := burst(); n != 3 {
			t.Errorf("%d requests after a restart, want a full bucket", n)
		}
	})
}

func TestDecide_R29_R30_R12_ANewTenantHasItsLimitsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", `per_minute: {kind: rate, amount: 2, window: 1m}
monthly: {kind: quota, amount: 100, reset: {calendar: month}}`))
		k.must(from("org:new"), authz.TenantUnknown)
		k.put(tenantDoc("org:new", "{plan: free}"))
		k.must(from("org:new"), authz.Allowed)
		dec := k.must(from("org:new"), authz.Allowed)
		if used := limit(t, dec, "monthly").Used; used != 2 {
			t.Errorf("quota used %d from the first request on, want 2", used)
		}
		k.must(from("org:new"), authz.RateLimited)
		k.put(planDoc("free", `per_minute: {kind: rate, amount: 60, window: 1m}
monthly: {kind: quota, amount: 100, reset: {calendar: month}}`))
		time.Sleep(time.Second) // C017: tokens grow at the new rate
		k.must(from("org:new"), authz.Allowed)
	})
}

func TestDecide_R31_R32_C041_EvictionNeverHandsOutAFullBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDeskOn(t, &storetest.Memory{}, "r1", app("defaults: {plan: free}")+
			planDoc("free", `per_hour: {kind: rate, amount: 5, window: 1h}
per_second: {kind: rate, amount: 100, window: 1s}`), 600)
		admitted := 0
		for i := range 3000 {
			if k.ask(from("org:steady")).Outcome == authz.Allowed {
				admitted++
			}
			visitor := fmt.Sprint("org:v", i)
			for range 2 {
				k.must(from(visitor), authz.Allowed)
			}
			time.Sleep(5 * time.Second)
		}
		// 3,000 × 5 s are 4 h 10 min: 5 at once and 5 an hour.
		if admitted > 5+21 {
			t.Errorf("%d admitted, want at most 26: the drained bucket was dropped", admitted)
		}
		s := k.d.Stats()
		if s.Evicted == 0 || s.Tenants > 600 {
			t.Errorf("%d tenants kept, %d dropped; 288 have spent within what refills", s.Tenants, s.Evicted)
		}
	})
}

func TestDecide_C049_FiftyFirstRequestsAtOnce(t *testing.T) {
	t.Parallel()
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			k := newDesk(t, app("")+planDoc("free", `per_second: {kind: rate, amount: 5, window: 1s}`)+tenantDoc("org:a", "{plan: free}"))
			got := make(chan authz.Outcome, 50)
			for range 50 {
				go func() { got <- k.ask(from("org:a")).Outcome }()
			}
			allowed := 0
			for range 50 {
				if <-got == authz.Allowed {
					allowed++
				}
			}
			if allowed != 5 {
				t.Fatalf("%d of 50 admitted, want 5", allowed)
			}
		})
	}
}

func TestDecide_C032_C043_WeightsAgainstTheBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", `per_second: {kind: rate, amount: 10, window: 1s}`)+tenantDoc("org:a", "{plan: free}")+`
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec:
  app: api
  rules:
    - {name: ten, match: {path: /ten}, weight: 10}
    - {name: eleven, match: {path: /eleven}, weight: 11}
`)
		ten, eleven := from("org:a"), from("org:a")
		ten.Path, eleven.Path = "/ten?x=1", "/eleven"
		if left := limit(t, k.must(ten, authz.Allowed), "per_second").Left; left != 0 {
			t.Errorf("%d left of 10 after 10", left)
		}
		time.Sleep(500 * time.Millisecond)
		if dec := k.must(ten, authz.RateLimited); dec.RetryAfter != 500*time.Millisecond {
			t.Errorf("wait %v, want 500ms", dec.RetryAfter)
		}
		time.Sleep(500 * time.Millisecond)
		k.must(ten, authz.Allowed)
		if dec := k.must(eleven, authz.RequestTooLarge); dec.RetryAfter != 0 {
			t.Errorf("more than the bucket holds: wait %v, want none", dec.RetryAfter)
		}
	})
}

// A look asks for anything at all, whatever the request would take: two of five are left
// for one that takes three.
func TestDecide_C046_ALookAsksForAnythingAtAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", "per_minute: {kind: rate, amount: 5, window: 1m}\n"+monthly("7", ""))+
			tenantDoc("org:a", "{plan: free}")+routesDoc("- {name: export, match: {path: /exports}, weight: 3}"))
		req := from("org:a")
		req.Path = "/exports"
		look := req
		look.CheckOnly = true
		k.must(req, authz.Allowed) // three of five
		for range 3 {
			dec := k.must(look, authz.Allowed)
			if rate, quota := limit(t, dec, "per_minute"), limit(t, dec, "monthly"); rate.Left != 2 || quota.Left != 4 {
				t.Fatalf("a look took something: %s", show(dec))
			}
		}
		k.must(req, authz.RateLimited)
		k.must(from("org:a"), authz.Allowed)
		k.must(from("org:a"), authz.Allowed)
		k.must(look, authz.RateLimited) // nothing is left
		time.Sleep(time.Minute)
		k.must(req, authz.QuotaExceeded)
		k.must(look, authz.Allowed) // two of seven
		k.must(from("org:a"), authz.Allowed)
		k.must(from("org:a"), authz.Allowed)
		k.must(look, authz.QuotaExceeded)
	})
}
