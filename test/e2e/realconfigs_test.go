package e2e_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// Filters of somebody's Envoy, as they are: testdata/real-configs.

// real-configs 30: that very ext_authz filter, behind Envoy's JWT filter. mete's rule
// decides and not the filter; nobody but the token says who calls.
func TestRealConfig30_C035_C117_C118_ExtAuthz(t *testing.T) {
	t.Parallel()
	store := newWorld(t, nil, unchanged)
	w := newReplica(t, store, defaultWaits()...)
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{world: w, domain: "real30"}
	g.listener = g.start(t, composed(jwtFilter(public)+"\n"+listed(realConfig(t, "30-filter-ext-authz.yaml")), ""))
	caller := func(tenant string) string {
		return "Authorization: Bearer " + signed(t, private, map[string]any{"iss": "test", "sub": tenant})
	}
	a := &app{world: w, name: "real30"}
	a.put(t, map[string]string{
		"apps/real30":  document("App", "real30", "  time_zone: UTC\n  identity: {tenant: [{jwt_claim: sub}]}\n  defaults: {plan: real30}"),
		"plans/real30": document("Plan", "real30", "  limits:\n    hourly: {kind: rate, amount: 2, window: 1h}\n    yearly: {kind: quota, amount: 1000, on_unavailable: allow, reset: {calendar: year}}"),
	})
	eventually(t, "the plan is in force", func() bool {
		return g.get(t, "/", caller("org:probe")).header.Get("Ratelimit-Policy") != ""
	})

	r := g.want(t, 2, http.StatusOK, "/", caller("org:a"), "Sub: org:b", "X-Mete-Tenant: org:b")
	if got := r.seen[0].Header.Get("X-Mete-Tenant"); got != "org:a" {
		t.Errorf("the API is told of %q, want the token's org:a", got)
	}
	r = g.want(t, 1, http.StatusTooManyRequests, "/", caller("org:a"), "Sub: org:b", "X-Mete-Tenant: org:b")
	if !strings.Contains(r.body, `"error":"rate_limited"`) || r.header.Get("Retry-After") == "" || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("refused with %v %s", r.header, r.body)
	}
	g.want(t, 1, http.StatusOK, "/", caller("org:b"))

	// The store is down: the plan says allow, within the filter's 400 ms.
	if err := store.mete.Stop(); err != nil {
		t.Fatal(err)
	}
	g.want(t, 2, http.StatusOK, "/", caller("org:c"))

	// mete is killed: the filter's own 503, never a 403.
	if err := w.mete.Kill(); err != nil {
		t.Fatal(err)
	}
	w.mete = nil // there is nothing left to stop
	g.want(t, 2, http.StatusServiceUnavailable, "/", caller("org:b"))
}

// real-configs 33: that very access log in the example's Envoy, whose cluster for the log
// loses nothing. What is logged while mete is away is settled once it is back, and health
// checks neither count nor are logged.
func TestRealConfig33_C135_AccessLog(t *testing.T) {
	t.Parallel()
	accessLog := inside(16, strings.ReplaceAll(realConfig(t, "33-access-log.yaml"), "cluster_name: quota_service", "cluster_name: mete_log"))
	// While it drains Envoy's health check finds out that it goes.
	w := newWorld(t, []string{"--drain-delay", "2s"}, func(config string) string {
		head, rest, ok := strings.Cut(config, "                access_log:\n")
		_, tail, also := strings.Cut(rest, "                route_config:\n")
		filters := "                http_filters:\n"
		if !ok || !also || !strings.Contains(tail, filters) {
			t.Error("the example has another form")
		}
		return head + accessLog + "\n                route_config:\n" + strings.Replace(tail, filters, filters+inside(18, healthCheckFilter)+"\n", 1)
	})
	a := newApp(t, w, "yearly: {kind: quota, amount: 100000, reset: {calendar: year}, lease: {report_every: 1s}}")
	for range 5 { // Envoy answers these itself
		if r := a.get(t, "/health"); r.status != http.StatusOK || len(r.seen) != 0 {
			t.Fatalf("a health check: %d %s, the API saw %d", r.status, r.body, len(r.seen))
		}
	}
	const failed = 20
	for range failed {
		if r := a.get(t, "/status/503"); r.status != http.StatusServiceUnavailable || len(r.seen) != 1 {
			t.Fatalf("got %d %s", r.status, r.body)
		}
	}
	old := w.mete
	if err := old.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := w.startMete(t.Context(), old.DataDir, "--grpc-listen", old.GRPC, "--etcd-listen", old.Etcd); err != nil {
		t.Fatal(err)
	}
	eventually(t, "all failed requests are given back", func() bool { return a.account(t).Used() == 0 })
	eventually(t, "requests go on", func() bool { return a.send(t, a.key).status == http.StatusOK })
	eventually(t, "the one that was served is counted", func() bool { return a.account(t).Used() == 1 })
}

// composed is an Envoy with filters before the router, and more fields of the connection
// manager.
func composed(filters, more string) string {
	return strings.NewReplacer(
		"ROUTES", strings.Repeat(" ", 24)+"- {match: {prefix: /}, route: {cluster: api}}",
		"FILTER", inside(18, filters),
		"                INTERNAL\n", inside(16, more)+"\n").Replace(descriptorsConfig)
}

func inside(indent int, text string) string {
	return strings.Join(indented(strings.Repeat(" ", indent), strings.Split(strings.TrimSpace(text), "\n")), "\n")
}

// listed makes a filter an element of a list.
func listed(filter string) string {
	var lines []string
	for line := range strings.Lines(strings.TrimSpace(filter)) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, strings.TrimRight(line, "\n"))
		}
	}
	return "- " + strings.Join(lines, "\n  ")
}

const healthCheckFilter = `- name: envoy.filters.http.health_check
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck
    pass_through_mode: false
    headers: [{name: ":path", string_match: {exact: /health}}]`

// jwtFilter verifies tokens of one key and leaves their claims to the filters after it.
func jwtFilter(public ed25519.PublicKey) string {
	return fmt.Sprintf(`- name: envoy.filters.http.jwt_authn
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.jwt_authn.v3.JwtAuthentication
    providers:
      test: {issuer: test, payload_in_metadata: payload, local_jwks: {inline_string: '{"keys": [{"kty": "OKP", "crv": "Ed25519", "alg": "EdDSA", "x": "%s"}]}'}}
    rules: [{match: {prefix: /}, requires: {provider_name: test}}]`, base64.RawURLEncoding.EncodeToString(public))
}

// signed returns a JWT with claims.
func signed(t *testing.T, key ed25519.PrivateKey, claims map[string]any) string {
	t.Helper()
	part := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(text)
	}
	text := part(map[string]any{"alg": "EdDSA", "typ": "JWT"}) + "." + part(claims)
	return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
}
