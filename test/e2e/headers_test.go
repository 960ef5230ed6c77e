package e2e_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/meteproject/mete/test/rig"
)

// The fields of the draft can have other names, and a limit can be kept out of them
// (R8, P72); Retry-After is there whatever they are called.
func TestHeaders_R8_P72_RenamedAndHidden(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), `
hourly: {kind: rate, amount: 2, window: 1h}
quiet: {kind: rate, amount: 9, window: 1h, advertise: false}`, "headers: {ratelimit_name: X-Own-Rate, policy_name: X-Own-Policy}")
	for _, r := range []*reply{a.admit(t, 2), a.refuse(t, http.StatusTooManyRequests)} {
		wantHeader(t, r, "X-Own-Policy", `"hourly";q=2;w=3600`)
		if state := r.header.Get("X-Own-Rate"); !strings.HasPrefix(state, `"hourly";r=0;t=`) || strings.Contains(state, "quiet") {
			t.Errorf("X-Own-Rate = %q, want hourly alone", state)
		}
		if r.header.Get("RateLimit") != "" || r.header.Get("RateLimit-Policy") != "" {
			t.Errorf("the draft's names are sent too: %v", r.header)
		}
		if (r.header.Get("Retry-After") != "") != (r.status == http.StatusTooManyRequests) {
			t.Errorf("%d with Retry-After %q", r.status, r.header.Get("Retry-After"))
		}
	}

	hidden := newApp(t, shared(t), "hourly: {kind: rate, amount: 1, window: 1h}", "headers: {ratelimit: never}")
	for _, r := range []*reply{hidden.admit(t, 1), hidden.refuse(t, http.StatusTooManyRequests)} {
		if r.header.Get("RateLimit") != "" || r.header.Get("RateLimit-Policy") != "" {
			t.Errorf("hidden: %v", r.header)
		}
	}
}

// bothFilters puts Envoy's rate limit filter behind ext_authz, asking for the tenant
// that mete has verified.
func bothFilters(config string) string {
	const route = "                        - match: {prefix: /}\n                          route: {cluster: api}\n"
	const router = "                  - name: envoy.filters.http.router\n"
	const filter = `                  - name: envoy.filters.http.ratelimit
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
                      domain: api
                      timeout: 10s
                      failure_mode_deny: true
                      rate_limit_service:
                        transport_api_version: V3
                        grpc_service: {envoy_grpc: {cluster_name: mete}, timeout: 10s}
`
	config = strings.Replace(config, route, strings.Replace(route, "cluster: api",
		"cluster: api, rate_limits: [{actions: [{request_headers: {header_name: x-mete-tenant, descriptor_key: tenant}}]}]", 1), 1)
	return strings.Replace(config, router, filter+router, 1)
}

// A caller reads each field once, and what mete says of the request it made, though
// the API has fields of that name itself and though both filters ask (case C131).
func TestHeaders_C131_OnceEach(t *testing.T) {
	t.Parallel()
	theirs := []string{rig.TestRespond + `: RateLimit: "api";r=1;t=1`, rig.TestRespond + `: RateLimit-Policy: "api";q=1`, rig.TestRespond + ": Retry-After: 7"}
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 3, window: 1h}")
	for _, left := range []string{"2", "1", "0"} {
		r := a.send(t, a.key, theirs...)
		wantHeader(t, r, "RateLimit-Policy", `"hourly";q=3;w=3600`)
		if values := r.header.Values("RateLimit"); len(values) != 1 || !strings.HasPrefix(values[0], `"hourly";r=`+left+";") {
			t.Errorf("RateLimit = %q, want hourly with %s left, once", values, left)
		}
	}
	once := func(r *reply) {
		t.Helper()
		for _, name := range []string{"Retry-After", "RateLimit", "RateLimit-Policy", "Content-Type", "Cache-Control"} {
			if values := r.header.Values(name); len(values) != 1 {
				t.Errorf("%s = %q on a refusal, want one", name, values)
			}
		}
	}
	once(a.refuse(t, http.StatusTooManyRequests, theirs...))

	// With both filters each request is charged twice: once by each.
	both := newApp(t, newWorld(t, nil, bothFilters), "hourly: {kind: rate, amount: 5, window: 1h}", "domain: api")
	for _, left := range []string{"4", "2"} {
		r := both.send(t, both.key, theirs...)
		if values := r.header.Values("RateLimit"); r.status != http.StatusOK || len(values) != 1 || !strings.HasPrefix(values[0], `"hourly";r=`+left+";") {
			t.Errorf("both filters: %d, RateLimit = %q, want hourly with %s left after ext_authz, once", r.status, values, left)
		}
	}
	once(both.refuse(t, http.StatusTooManyRequests, theirs...)) // by the rate limit filter: ext_authz took the last one
	once(both.refuse(t, http.StatusTooManyRequests, theirs...)) // by ext_authz
}
