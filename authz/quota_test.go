package authz_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store/storetest"
)

func monthly(amount, more string) string {
	return "monthly: {kind: quota, amount: " + amount + ", reset: {calendar: month}" + more + "}"
}

// until sleeps until an instant of the bubble's time.
func until(t *testing.T, at string) {
	t.Helper()
	when, err := time.Parse(time.RFC3339Nano, at)
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(when))
}

func TestDecide_A1_A4_A13_A14_Q56_MonthInTheAppsZone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("5", ""))+tenantDoc("org:a", "{plan: free}"))
		until(t, "2026-12-10T11:00:00Z") // 12:00 in Berlin
		for range 5 {
			k.must(from("org:a"), authz.Allowed)
		}
		dec := k.must(from("org:a"), authz.QuotaExceeded)
		l := limit(t, dec, "monthly")
		if dec.RetryAfter != 1857600*time.Second || l.ResetsAt.Format(time.RFC3339) != "2026-12-31T23:00:00Z" {
			t.Errorf("wait %v until %v, want 1857600 s until midnight in Berlin", dec.RetryAfter, l.ResetsAt)
		}
		if l.Tenant != "org:a" || l.Limit.Name != "monthly" || l.Limit.Amount != 5 || l.Used != 5 || l.Left != 0 || l.Window != 2678400*time.Second {
			t.Errorf("refusal %+v does not name limit, node, amount and use", l)
		}
	})
}

func TestDecide_A17_C052_C067_EndOfTheMinuteDecidesTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("2", ""))+tenantDoc("org:a", "{plan: free}"))
		until(t, "2026-12-31T22:58:00Z")
		k.must(from("org:a"), authz.Allowed)
		k.must(from("org:a"), authz.Allowed)
		dec := k.must(from("org:a"), authz.QuotaExceeded)
		if dec.RetryAfter != 120*time.Second {
			t.Errorf("wait %v at 23:58, want 120 s", dec.RetryAfter)
		}
		until(t, "2026-12-31T22:59:00Z") // this minute ends in January; no job has run
		dec = k.must(from("org:a"), authz.Allowed)
		if l := limit(t, dec, "monthly"); l.WindowID != "month@2026-12-31T23:00Z" || l.Used != 1 {
			t.Errorf("window %s used %d, want January's, 1", l.WindowID, l.Used)
		}
		late := from("org:a") // started before, by Envoy's clock: still December
		late.Start = time.Now().Add(-time.Second)
		k.must(late, authz.QuotaExceeded)
	})
}

func TestDecide_A16_BillingWindowFromTheTenantsAnchor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("pro", "contract: {kind: quota, amount: 9, reset: {calendar: billing, anchor: 1}}")+
			tenantDoc("org:a", "{plan: pro, billing_anchor: 31, time_zone: UTC}"))
		until(t, "2027-02-10T00:00:00Z")
		l := limit(t, k.must(from("org:a"), authz.Allowed), "contract")
		if got := l.ResetsAt.Format(time.RFC3339); got != "2027-02-28T00:00:00Z" {
			t.Errorf("resets %s, want 2027-02-28T00:00:00Z", got)
		}
	})
}

func TestDecide_A5_WhatHappensWhenUnitsRunOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("hard", monthly("10", ""))+planDoc("soft", monthly("10", ", when_used_up: {grace: 20%}"))+
			planDoc("count", monthly("10", ", when_used_up: count"))+planDoc("free", monthly("unlimited", ""))+
			tenantDoc("org:hard", "{plan: hard}")+tenantDoc("org:soft", "{plan: soft}")+
			tenantDoc("org:count", "{plan: count}")+tenantDoc("org:free", "{plan: free}"))
		expect := func(tenant string, want ...authz.Outcome) {
			t.Helper()
			for range 10 {
				k.must(from(tenant), authz.Allowed)
			}
			for _, o := range want {
				k.must(from(tenant), o)
			}
		}
		expect("org:hard", authz.QuotaExceeded)
		expect("org:soft", authz.Grace, authz.Grace, authz.QuotaExceeded)
		expect("org:count", authz.CountedOver, authz.CountedOver, authz.CountedOver)
		expect("org:free", authz.Allowed, authz.Allowed)
		if dec := k.ask(from("org:free")); len(dec.Limits) != 0 {
			t.Errorf("an unlimited limit is advertised: %s (C009)", show(dec))
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for _, key := range k.memory.Accounts() {
			want := map[string]int64{"org:hard": 10, "org:soft": 12, "org:count": 13, "org:free": 13}[key.Tenant]
			if used := k.memory.Account(key).Used(); used != want {
				t.Errorf("%s: the account says %d, want %d", key.Tenant, used, want)
			}
		}
	})
}

func TestDecide_A6_A39_RoutesNotListedReserveOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("100", ""))+tenantDoc("org:a", "{plan: free}")+`
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec:
  app: api
  rules:
    - {name: export, match: {methods: [POST], path: "/exports/{id}"}, weight: 5}
    - {name: quota, match: {path_prefix: /quota}, meter: false, check: false, reason: reading your own quota is free}
    - {name: ingest, match: {path: /ingest}, check: false, reason: telemetry can not be sent again}
    - {name: status, match: {path: /status}, meter: false, reason: asking how a job goes is free}
`)
		ask := func(method, path string, want authz.Outcome) int64 {
			t.Helper()
			req := from("org:a")
			req.Method, req.Path = method, path
			dec := k.must(req, want)
			if len(dec.Limits) == 0 {
				return -1
			}
			return limit(t, dec, "monthly").Used
		}
		for i, step := range []struct {
			method, path string
			outcome      authz.Outcome
			used         int64
		}{
			{"GET", "/anything", authz.Allowed, 1},
			{"POST", "/exports/7", authz.Allowed, 6},
			{"GET", "/exports/7", authz.Allowed, 7},
			{"GET", "/quota", authz.Exempt, -1},
			{"POST", "/ingest", authz.Allowed, 8},
			{"GET", "/status", authz.Allowed, 8},
		} {
			if used := ask(step.method, step.path, step.outcome); used != step.used {
				t.Errorf("step %d (%s %s): used %d, want %d", i, step.method, step.path, used, step.used)
			}
		}
		req := from("org:a")
		req.Path = "/status"
		if dec := k.must(req, authz.Allowed); !limit(t, dec, "monthly").Looked {
			t.Error("a route without meter claims to have taken a unit")
		}
		if dec := k.must(from("org:a"), authz.Allowed); limit(t, dec, "monthly").Looked {
			t.Error("a charge claims to have been a look")
		}
		for range 91 {
			ask("GET", "/", authz.Allowed)
		}
		ask("GET", "/", authz.QuotaExceeded)
		if used := ask("POST", "/ingest", authz.CountedOver); used != 101 {
			t.Errorf("a metered route that is never refused: used %d, want 101", used)
		}
	})
}

func TestDecide_A19_C118_WaitsAtMostThreeHundredMilliseconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("100", ""))+tenantDoc("org:a", "{plan: free}")+tenantDoc("org:b", "{plan: free}"))
		k.store.slow(200 * time.Millisecond)
		start := time.Now()
		k.must(from("org:a"), authz.Allowed)
		if waited := time.Since(start); waited != 200*time.Millisecond {
			t.Errorf("waited %v for a lease, want 200ms", waited)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		start = time.Now()
		dec, req := new(authz.Decision), from("org:b")
		dec.Reset()
		k.d.Decide(ctx, time.Now(), &req, dec)
		if waited := time.Since(start); dec.Outcome != authz.UnavailableAllowed || waited >= 50*time.Millisecond {
			t.Errorf("with 50 ms to live: %s after %v, want the app's own rule before the deadline", dec.Outcome.Word(), waited)
		}
	})
}

func TestDecide_A56_A57_A60_A61_A62_EtcdAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("open", monthly("100", ""))+planDoc("closed", monthly("100", ", on_unavailable: deny"))+
			tenantDoc("org:open", "{plan: open}")+tenantDoc("org:closed", "{plan: closed}")+tenantDoc("org:late", "{plan: open}"))
		k.store.slow(time.Hour)
		start := time.Now()
		k.must(from("org:open"), authz.UnavailableAllowed)
		if waited := time.Since(start); waited != 300*time.Millisecond {
			t.Errorf("waited %v, want 300ms", waited)
		}
		start = time.Now()
		dec := k.must(from("org:closed"), authz.Unavailable) // 503 quota_unavailable
		if dec.RetryAfter <= 0 || dec.RetryAfter > 5*time.Second {
			t.Errorf("retry after %v, want up to 5 s", dec.RetryAfter)
		}
		for range 9 {
			k.must(from("org:open"), authz.UnavailableAllowed)
			k.must(from("org:late"), authz.UnavailableAllowed)
		}
		forced := from("org:open")
		forced.Extensions = []authz.Field{{Name: "mete-on-unavailable", Value: "deny"}}
		k.must(forced, authz.Unavailable)
		forced = from("org:closed")
		forced.Extensions = []authz.Field{{Name: "mete-on-unavailable", Value: "allow"}}
		k.must(forced, authz.UnavailableAllowed)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("requests waited %v within 5 s of a failure, want none", waited)
		}
		k.store.slow(0)
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		for _, key := range k.memory.Accounts() {
			want := map[string]int64{"org:open": 10, "org:late": 9, "org:closed": 1}[key.Tenant]
			if used := k.memory.Account(key).Used(); used != want {
				t.Errorf("%s: %d counted once etcd was back, want %d (A57)", key.Tenant, used, want)
			}
		}
		k.must(from("org:closed"), authz.Allowed)
	})
}

func TestDecide_A34_TwoReplicasShareOneQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		docs := app("") + planDoc("free", monthly("1000", "")) + tenantDoc("org:a", "{plan: free}")
		a, b := newDeskOn(t, m, "r1", docs, 0), newDeskOn(t, m, "r2", docs, 0)
		a.d.SetReplicas(2)
		b.d.SetReplicas(2)
		admitted := 0
		for i := range 3000 {
			k := a
			if i%3 == 0 {
				k = b
			}
			if k.ask(from("org:a")).Outcome == authz.Allowed {
				admitted++
			}
			time.Sleep(20 * time.Millisecond)
		}
		if admitted > 1000 || admitted < 990 {
			t.Errorf("%d of 1,000 admitted", admitted)
		}
	})
}

func TestDecide_C046_ACheckTakesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("2", "")+"\nper_minute: {kind: rate, amount: 2, window: 1m}")+tenantDoc("org:a", "{plan: free}"))
		check := from("org:a")
		check.CheckOnly = true
		for range 20 {
			k.must(check, authz.Allowed)
		}
		if n := k.store.count(); n != 0 {
			t.Errorf("a check asked the store %d times", n)
		}
		k.must(from("org:a"), authz.Allowed)
		k.must(check, authz.Allowed)
		k.must(from("org:a"), authz.Allowed)
		k.must(check, authz.QuotaExceeded) // both have run out; the quota for longer
		time.Sleep(time.Minute)
		k.must(from("org:a"), authz.QuotaExceeded)
		k.must(check, authz.QuotaExceeded)
		seven := from("org:a")
		seven.Hits = 7
		k.put(planDoc("free", monthly("4", "")))
		k.must(seven, authz.RequestTooLarge)
		if left := limit(t, k.must(check, authz.Allowed), "monthly").Left; left != 2 {
			t.Errorf("%d left after a refused request for 7, want 2", left)
		}
	})
}

func TestDecide_CancelledRequestsAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("3", "")+"\nper_hour: {kind: rate, amount: 3, window: 1h}")+tenantDoc("org:a", "{plan: free}"))
		for range 10 {
			dec := k.must(from("org:a"), authz.Allowed)
			k.d.GiveBack(time.Now(), dec)
			k.d.GiveBack(time.Now(), dec) // a repeat changes nothing
		}
		for range 3 {
			k.must(from("org:a"), authz.Allowed)
		}
		k.store.slow(time.Hour)
		k.put(tenantDoc("org:b", "{plan: free}"))
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(10*time.Millisecond, cancel)
		dec, req := new(authz.Decision), from("org:b")
		dec.Reset()
		k.d.Decide(ctx, time.Now(), &req, dec)
		if dec.Outcome != authz.Undecided {
			t.Errorf("a caller that has gone got %q", dec.Outcome.Word())
		}
	})
}

func TestDecide_C004_C016_ABrokenPlanIsNeverNoLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+tenantDoc("org:a", "{plan: never}"))
		k.catalog.PutBroken(plan.KindPlan, "never", 99, "plan never has never been valid", nil)
		k.publish()
		dec := k.must(from("org:a"), authz.UnavailableAllowed)
		if dec.Why == "" {
			t.Error("nothing says why")
		}
		k.put(app("defaults: {on_unavailable: deny}"))
		k.must(from("org:a"), authz.Unavailable)
	})
}

func TestDecide_C073_AnEditInsideTheWindowKeepsWhatWasUsed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("100", ""))+tenantDoc("org:a", "{plan: free}"))
		for range 60 {
			k.must(from("org:a"), authz.Allowed)
		}
		k.put(app("") + planDoc("free", monthly("100", ", description: new words")) +
			tenantDoc("org:a", "{plan: free, overrides: {monthly: {amount: 150, reason: add-on}}}"))
		if left := limit(t, k.must(from("org:a"), authz.Allowed), "monthly").Left; left != 89 {
			t.Errorf("%d left, want 100 + 50 - 61", left)
		}
	})
}

func TestDecide_P50_OverrideEndsByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		until(t, "2026-12-10T00:00:00Z")
		k := newDesk(t, app("")+planDoc("free", "daily: {kind: quota, amount: 1, reset: {calendar: day}}")+
			tenantDoc("org:a", `{plan: free, overrides: {daily: {amount: 3, until: "2026-12-10T10:00:00Z", reason: holiday sale}}}`))
		k.must(from("org:a"), authz.Allowed)
		k.must(from("org:a"), authz.Allowed)
		until(t, "2026-12-10T10:00:00Z")
		k.must(from("org:a"), authz.QuotaExceeded)
	})
}

// Another reset is another account: what was used by month is not used by day, and the
// month goes on where it was when it comes back.
func TestDecide_A4_AnEditedReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("3", ""))+tenantDoc("org:a", "{plan: free}"))
		until(t, "2026-12-10T11:00:00Z")
		for range 3 {
			k.must(from("org:a"), authz.Allowed)
		}
		k.must(from("org:a"), authz.QuotaExceeded)
		k.put(planDoc("free", "monthly: {kind: quota, amount: 3, reset: {calendar: day}}"))
		l := limit(t, k.must(from("org:a"), authz.Allowed), "monthly")
		if l.WindowID != "day@2026-12-09T23:00Z" || l.Used != 1 {
			t.Errorf("by day: window %s used %d, want that of 10 December, 1", l.WindowID, l.Used)
		}
		k.put(planDoc("free", monthly("4", "")))
		l = limit(t, k.must(from("org:a"), authz.Allowed), "monthly")
		if l.WindowID != "month@2026-11-30T23:00Z" || l.Used != 4 {
			t.Errorf("by month again: window %s used %d, want December's, 4", l.WindowID, l.Used)
		}
		k.must(from("org:a"), authz.QuotaExceeded)
	})
}
