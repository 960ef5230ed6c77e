package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// left reads what is left of a limit from a RateLimit field.
func (r *reply) left(t *testing.T, limit string) int {
	t.Helper()
	_, rest, found := strings.Cut(r.header.Get("RateLimit"), `"`+limit+`";r=`)
	text, _, _ := strings.Cut(rest, ";")
	n, err := strconv.Atoi(text)
	if !found || err != nil {
		t.Fatalf("RateLimit = %q, want %s", r.header.Get("RateLimit"), limit)
	}
	return n
}

// A request is one unit of a quota for its period (A1, A6), and the refusal says in
// words which quota, whose, how much and until when (Q56).
func TestQuota_A1_A6_Q56_InWords(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 3, reset: {calendar: month}}", "headers: {x_quota: true}")
	for used := 1; used <= 3; used++ {
		wantHeader(t, a.admit(t, 1), "X-Quota-Used", strconv.Itoa(used))
	}
	body := a.refuse(t, http.StatusTooManyRequests).refusal(t)
	end := berlinMonthEnd(t, time.Now())
	want := "The monthly quota of " + a.tenant + " is used up: 3 of 3 requests. It resets on " + end.Format("2 January 2006 at 15:04") + " (Europe/Berlin)."
	if body.Detail != want || body.Details.UpgradeURL == "" {
		t.Errorf("got %q\nwant %q and where to get more", body.Detail, want)
	}
}

// A quota can follow the day that a tenant is billed on (A16).
func TestBilling_A16_TenantsOwnDay(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 10, window: 1h}", "headers: {x_quota: true}")
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	day := min(28, time.Now().In(berlin).AddDate(0, 0, 10).Day()) // one that every month has
	a.put(t, map[string]string{
		"plans/" + a.name:     a.plan("cycle: {kind: quota, amount: 10, reset: {calendar: billing}}"),
		"tenants/" + a.tenant: document("Tenant", a.tenant, "  plan: "+a.name+"\n  billing_anchor: "+strconv.Itoa(day)),
	})
	a.awaitRoutes(t)
	now := time.Now().In(berlin)
	end := time.Date(now.Year(), now.Month(), day, 0, 0, 0, 0, berlin)
	if !end.After(now) {
		end = time.Date(now.Year(), now.Month()+1, day, 0, 0, 0, 0, berlin)
	}
	wantHeader(t, a.admit(t, 1), "X-Quota-Reset", end.UTC().Format("2006-01-02T15:04:05.000Z"))
}

// A tenant without a limit per second has none (R11); of two the minute caps what goes
// on and the second caps bursts (R18).
func TestTwoRates_R11_R18(t *testing.T) {
	t.Parallel()
	one := newApp(t, shared(t), "per_minute: {kind: rate, amount: 60, window: 1m}")
	wantHeader(t, one.admit(t, 30), "RateLimit-Policy", `"per_minute";q=60;w=60`)

	two := newApp(t, shared(t), "burst: {kind: rate, amount: 2, window: 100m}\nsustained: {kind: rate, amount: 50, window: 100h}")
	if got := two.admit(t, 2).left(t, "sustained"); got != 48 {
		t.Errorf("%d left of the sustained rate, want 48", got)
	}
	r := two.refuse(t, http.StatusTooManyRequests)
	if got := r.refusal(t).Violated; len(got) != 1 || got[0] != "burst" || r.left(t, "sustained") != 48 {
		t.Errorf("violated %q, %d left; want burst alone and 48", got, r.left(t, "sustained"))
	}
}

// An override by a pattern of names holds for those it matches, and a tenant's own
// comes after it (P50).
func TestOverrides_P50_Patterns(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 100, window: 1h}")
	wantHeader(t, a.admit(t, 1), "RateLimit-Policy", `"hourly";q=100;w=3600`)
	more := "\n  overrides:\n    - {tenants: [\"org:*" + a.name[strings.LastIndex(a.name, "-"):] + "\"], limits: {hourly: {amount: 200}}, reason: a deal}"
	a.put(t, map[string]string{"plans/" + a.name: strings.TrimSpace(a.plan("hourly: {kind: rate, amount: 100, window: 1h}")) + more + "\n"})
	a.awaitRoutes(t)
	wantHeader(t, a.admit(t, 1), "RateLimit-Policy", `"hourly";q=200;w=3600`)
	a.put(t, map[string]string{"tenants/" + a.tenant: document("Tenant", a.tenant, "  plan: "+a.name+"\n  overrides: {hourly: {amount: 300, reason: a better deal}}")})
	a.awaitRoutes(t)
	wantHeader(t, a.admit(t, 1), "RateLimit-Policy", `"hourly";q=300;w=3600`)
}

// Each replica enforces a rate in full, or its share, rounded up, of one that is
// split among those that are there (R22, R23, R24), from when another joins (R25).
func TestSplit_R22_R23_R24_R25(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, func(config string) string { return config })
	a := newApp(t, first, `
full: {kind: rate, amount: 9, window: 1000h}
split: {kind: rate, amount: 9, window: 1000h, replicas: split}`)
	r := a.admit(t, 1)
	if r.left(t, "full") != 8 || r.left(t, "split") != 8 {
		t.Errorf("alone: %q, want 8 of both", r.header.Get("RateLimit"))
	}
	second := newWorld(t, []string{"--etcd-endpoints", "http://" + first.mete.Etcd}, func(config string) string { return config })
	b := *a
	b.world = second
	b.await(t)
	eventually(t, "the first replica has heard of the second", func() bool {
		_, text := first.page(t, "/metrics")
		return strings.Contains(text, "mete_replicas 2\n")
	})
	eventually(t, "the second replica has heard of the first", func() bool {
		_, text := second.page(t, "/metrics")
		return strings.Contains(text, "mete_replicas 2\n")
	})
	if r := b.admit(t, 5); r.left(t, "full") != 4 || r.left(t, "split") != 0 {
		t.Errorf("5 requests of the second replica: %q, want 4 of 9 and 0 of 5 left", r.header.Get("RateLimit"))
	}
	if got := b.refuse(t, http.StatusTooManyRequests).refusal(t).Violated; len(got) != 1 || got[0] != "split" {
		t.Errorf("violated %q, want split", got)
	}
	if left := a.admit(t, 1).left(t, "split"); left > 4 {
		t.Errorf("%d left of the first replica's share of 5", left)
	}
}
