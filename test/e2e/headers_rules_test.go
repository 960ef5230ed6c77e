package e2e_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/meteproject/mete/test/rig"
)

// besideRules is bothFilters, but the rate limit filter asks for the rules of a domain.
func besideRules(config string) string {
	return strings.NewReplacer(
		"{request_headers: {header_name: x-mete-tenant, descriptor_key: tenant}}", "{generic_key: {descriptor_key: all, descriptor_value: x}}",
		"domain: api\n                      timeout", "domain: beside\n                      timeout",
	).Replace(bothFilters(config))
}

// A domain's rules beside ext_authz: Envoy adds what ext_authz said to the answer last, so
// that its fields replace those of the same name, also on a refusal by the rules. Other
// names keep both (C131).
func TestHeaders_C131_RulesBesideExtAuthz(t *testing.T) {
	t.Parallel()
	theirs := []string{rig.TestRespond + `: RateLimit: "api";r=1;t=1`, rig.TestRespond + `: X-Edge: "api";r=1`}
	w := newWorld(t, nil, besideRules)
	a := newApp(t, w, "hourly: {kind: rate, amount: 9, window: 1h}")
	put := func(amount, settings string) {
		t.Helper()
		document := "domain: beside\n" + settings + "descriptors:\n  - {key: all, rate_limit: {name: rules, unit: year, requests_per_unit: " + amount + "}}\n" +
			"  - {key: looked_at, rate_limit: {name: rules, unit: year, requests_per_unit: " + amount + "}}\n"
		if _, err := w.etcd.Put(t.Context(), "/mete/v1/ratelimits/beside", document); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the rules are in force", func() bool {
			l := (&gateway{world: w}).ask(t, look("beside", "looked_at", "x")).GetStatuses()[0].GetCurrentLimit()
			return l.GetName() == "rules" && strconv.Itoa(int(l.GetRequestsPerUnit())) == amount
		})
	}
	once := func(r *reply, status int, fields map[string]string) {
		t.Helper()
		if r.status != status {
			t.Fatalf("%d %s, want %d", r.status, r.body, status)
		}
		for name, starts := range fields {
			if values := r.header.Values(name); len(values) != 1 || !strings.HasPrefix(values[0], starts) {
				t.Errorf("%d with %s %q, want one that starts with %s", status, name, values, starts)
			}
		}
	}
	put("1", "")
	once(a.send(t, a.key, theirs...), http.StatusOK, map[string]string{"RateLimit": `"hourly";r=8`, "RateLimit-Policy": `"hourly";q=9`})
	r := a.send(t, a.key, theirs...)
	once(r, http.StatusTooManyRequests, map[string]string{"RateLimit": `"hourly";r=7`, "RateLimit-Policy": `"hourly";q=9`, "Retry-After": "", "Content-Type": "application/json"})
	if !strings.Contains(r.body, `"name":"rules"`) {
		t.Errorf("body %s, want the limit that refuses", r.body)
	}
	put("2", "mete: {headers: {ratelimit_name: X-Edge, policy_name: X-Edge-Policy}}\n")
	once(a.send(t, a.key), http.StatusOK, map[string]string{"RateLimit": `"hourly";r=6`, "X-Edge": `"rules";r=0`, "X-Edge-Policy": `"rules";q=2`})
	once(a.send(t, a.key), http.StatusTooManyRequests, map[string]string{"RateLimit": `"hourly";r=5`, "X-Edge": `"rules";r=0`, "X-Edge-Policy": `"rules";q=2`})
}
