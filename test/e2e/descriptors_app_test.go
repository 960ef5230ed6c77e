package e2e_test

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
)

// What a plan says of rates holds through the rate limit filter as it does through
// ext_authz: for a domain that is bound to the app, with the tenant in a descriptor.
func TestRLS_R1_R3_R4_R5_R6_R7_R9_R11_R17_R18_R19_R20_C030(t *testing.T) {
	t.Parallel()
	g, a := boundGateway(t, `
per_hour: {kind: rate, amount: 5, window: 1h}
per_day: {kind: rate, amount: 300, window: 1d}
yearly: {kind: quota, amount: 100, reset: {calendar: year}}`)
	tenant := "X-Tenant: " + a.tenant
	g.want(t, 5, http.StatusOK, "/", tenant)
	r := g.want(t, 1, http.StatusTooManyRequests, "/", tenant) // R3: the API sees nothing of it
	wait, err := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil || wait < 700 || wait > 720 { // R4: one token each 720 s
		t.Errorf("Retry-After %q, want up to 720", r.header.Get("Retry-After"))
	}
	for _, want := range []string{`"per_hour";q=5;w=3600`, `"per_day";q=300;w=86400`} { // R5
		if got := r.header.Get("Ratelimit-Policy"); !strings.Contains(got, want) {
			t.Errorf("RateLimit-Policy %s, want %s in it", got, want)
		}
	}
	for _, want := range []string{fmt.Sprintf(`"per_hour";r=0;t=%d`, wait), `"per_day";r=295;t=`} { // R6, R7
		if got := r.header.Get("Ratelimit"); !strings.Contains(got, want) {
			t.Errorf("RateLimit %s, want %s in it", got, want)
		}
	}
	if !strings.Contains(r.body, `"error":"rate_limited"`) || !strings.Contains(r.body, `"retry_after":`+strconv.Itoa(wait)) { // R9
		t.Errorf("body %s", r.body)
	}
	g.want(t, 3, http.StatusTooManyRequests, "/", tenant)
	// R17, R19, R20: what the hour refused neither the day nor the quota misses.
	r = g.want(t, 1, http.StatusTooManyRequests, "/", tenant)
	if got := r.header.Get("Ratelimit"); !strings.Contains(got, `"per_day";r=295;`) || !strings.Contains(got, `"yearly";r=95;`) {
		t.Errorf("RateLimit %s, want 295 left of the day and 95 of the year", got)
	}
	// R10, R13: another tenant has its own, and one without a plan has none.
	g.want(t, 9, http.StatusOK, "/", "X-Tenant: "+a.tenant+"-probe")
}

// A soft cap lets automation on past the amount, and not for ever (C4).
func TestRLS_C4_Grace(t *testing.T) {
	t.Parallel()
	g, a := boundGateway(t, "yearly: {kind: quota, amount: 10, reset: {calendar: year}, when_used_up: {grace: 20%}}")
	tenant := "X-Tenant: " + a.tenant
	g.want(t, 12, http.StatusOK, "/", tenant)
	r := g.want(t, 1, http.StatusTooManyRequests, "/", tenant)
	if !strings.Contains(r.body, `"error":"quota_exceeded"`) || r.header.Get("Retry-After") == "" {
		t.Errorf("refused by %s, %v", r.body, r.header)
	}
}

// boundGateway is an app with a plan's limits, and a gateway whose domain is bound to it.
func boundGateway(t *testing.T, limits string) (*gateway, *app) {
	t.Helper()
	w := shared(t)
	g := newGateway(t, w, "domain: DOMAIN\ndescriptors:\n  - {key: unused}", nil,
		perRoute("/", "- actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant}}]"))
	return g, newApp(t, w, limits, "domain: "+g.domain)
}
