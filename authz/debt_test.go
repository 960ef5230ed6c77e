package authz_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

// debtDesk has a limit of 100 tokens a minute, and routes that reserve 10 of them.
func debtDesk(t *testing.T) *desk {
	t.Helper()
	return newDesk(t, app("units: {tokens: {title: tokens}}\n")+
		planDoc("free", "tpm: {kind: rate, unit: tokens, amount: 100, window: 1m}")+tenantDoc("org:a", "{plan: free}")+
		routesDoc(`
- {name: chat, match: {path: /chat}, units: {tokens: {reserve: 10, use: [{response_header: x-usage}, {response_trailer: x-usage}]}}}
- {name: job, match: {path: /job}, units: {tokens: {reserve: 10, use: [{report: true}]}}}
`)).seals()
}

// C151: what was used beyond the reservation is a debt of the bucket, by any source that tells of it;
// the next request waits until it is paid, and is told how long.
func TestSettle_C151_ABucketOwes(t *testing.T) {
	t.Parallel()
	for name, settle := range map[string]func(k *desk, dec *authz.Decision, token string){
		"by the log": func(k *desk, _ *authz.Decision, token string) { k.end(token, tells(200, "x-usage", "500")) },
		"by a trailer": func(k *desk, _ *authz.Decision, token string) {
			e := answered(200)
			e.Response = answer{trailer: map[string]string{"x-usage": "500"}}
			k.end(token, e)
		},
		"by a report": func(k *desk, dec *authz.Decision, _ string) {
			if err := k.report(dec, 500); err != nil {
				t.Error(err)
			}
		},
		"on stream done": func(k *desk, _ *authz.Decision, token string) { k.units(token, "tokens", 500, false) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := debtDesk(t)
				path := "/chat"
				if name == "by a report" {
					path = "/job"
				}
				dec := k.must(at(path), authz.Allowed)
				settle(k, dec, k.token(dec))
				dec = k.must(at(path), authz.RateLimited)
				if l := limit(t, dec, "tpm"); dec.RetryAfter != 246*time.Second || l.Reset != 246*time.Second || l.Left != 0 {
					t.Errorf("retry after %s, reset %s, left %d; want 4m6s for 400 owed and 10 asked for", dec.RetryAfter, l.Reset, l.Left)
				}
				time.Sleep(246*time.Second - 1)
				k.must(at(path), authz.RateLimited)
				time.Sleep(time.Nanosecond)
				k.must(at(path), authz.Allowed)
			})
		})
	}
}

// C151, as it was reported: a caller that asks every half second for three minutes is
// served what the limit brings, and one request beyond it.
func TestSettle_C151_OverALongSpan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := debtDesk(t)
		served := 0
		for range 6 * 60 { // three minutes
			dec := k.ask(at("/chat"))
			if dec.Outcome == authz.Allowed {
				served += 500
				k.end(k.token(dec), tells(200, "x-usage", "500"))
			}
			time.Sleep(500 * time.Millisecond)
		}
		if served != 500 {
			t.Errorf("%d tokens served in 3 minutes of 100 a minute, want one request's 500", served)
		}
		if n := k.d.Stats().Forgiven; n != 0 {
			t.Errorf("%d forgiven", n)
		}
		dec := k.ask(at("/chat"))
		for dec.Outcome != authz.Allowed {
			time.Sleep(dec.RetryAfter)
			dec = k.ask(at("/chat"))
		}
		k.end(k.token(dec), tells(200, "x-usage", "6010"))
		if n := k.d.Stats().Forgiven; n != 5000 {
			t.Errorf("%d forgiven of a use of 6,010, want all but ten windows", n)
		}
	})
}

// A refused request takes nothing, and what is given back pays a debt.
func TestSettle_C151_OnlyUseOwes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := debtDesk(t)
		first, second := k.must(at("/chat"), authz.Allowed), k.must(at("/chat"), authz.Allowed)
		k.end(k.token(first), tells(200, "x-usage", "150"))
		for range 20 {
			k.must(at("/chat"), authz.RateLimited)
		}
		k.d.GiveBack(time.Now(), second)
		if l := limit(t, k.must(at("/chat"), authz.RateLimited), "tpm"); l.Reset != 36*time.Second {
			t.Errorf("reset %s, want 36s for 50 owed and 10 asked for", l.Reset)
		}
	})
}

// R23: with a replica less the share of each grows at its rate, not at once.
func TestRate_R23_AShareThatGrowsRefills(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", "rps: {kind: rate, amount: 10, window: 1s, replicas: split}")+tenantDoc("org:a", "{plan: free}"))
		k.d.SetReplicas(2)
		k.must(from("org:a"), authz.Allowed)
		time.Sleep(time.Second) // full again, with 5
		k.d.SetReplicas(1)
		served := 0
		for range 10 {
			if k.ask(from("org:a")).Outcome == authz.Allowed {
				served++
			}
		}
		if served != 5 {
			t.Errorf("%d served at once, want the 5 of the share", served)
		}
		time.Sleep(time.Second)
		for range 10 {
			k.must(from("org:a"), authz.Allowed)
		}
	})
}

// C151: what a limit is owed that is renamed, or removed, is counted as forgiven.
func TestOwe_C151_ALimitThatIsGone(t *testing.T) {
	t.Parallel()
	for name, limits := range map[string]string{
		"renamed":      "per_minute: {kind: rate, unit: tokens, amount: 100, window: 1m}",
		"a quota now":  "tpm: {kind: quota, unit: tokens, amount: 100, reset: {calendar: day}}",
		"another unit": "other: {kind: rate, amount: 100, window: 1m}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := debtDesk(t)
				k.end(k.token(k.must(at("/chat"), authz.Allowed)), tells(200, "x-usage", "500"))
				k.put(planDoc("free", limits))
				k.must(at("/chat"), authz.Allowed)
				if got := k.d.Stats().Forgiven; got != 400 {
					t.Errorf("%d units are forgiven, want 400", got)
				}
			})
		})
	}
}
