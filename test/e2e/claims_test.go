package e2e_test

import (
	"crypto/ed25519"
	"net/http"
	"strings"
	"testing"
)

// Claims of a real JWT filter: names as they are get a shape, and what is not a name is
// helped by no header (issue 12, B3, B5, B7).
func TestClaims_C035_AsTheFilterLeavesThem(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(config string) string { return config })
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	config := realConfig(t, "30-filter-ext-authz.yaml")
	g := &gateway{world: w, domain: "claims"}
	g.listener = g.start(t, composed(jwtFilter(public)+"\n"+listed(config), ""))
	caller := func(org any) string {
		claims := map[string]any{"iss": "test"}
		if org != "-" {
			claims["https://example.com/org"] = org
		}
		return "Authorization: Bearer " + signed(t, private, claims)
	}
	a := &app{world: w, name: "claims"}
	a.put(t, map[string]string{
		"apps/claims": document("App", "claims", "  time_zone: UTC\n  identity: {tenant: [{jwt_claim: 'https://example.com/org', as: 'org:{}'}, {request_header: x-owner}]}\n"+
			"  defaults: {plan: claims}"),
		"plans/claims": document("Plan", "claims", "  limits:\n    hourly: {kind: rate, amount: 1000, window: 1h}"),
	})
	eventually(t, "the plan is in force", func() bool {
		return g.get(t, "/", caller("probe")).header.Get("Ratelimit-Policy") != ""
	})
	for _, tt := range []struct {
		org    any
		tenant string // "": refused
		detail string
	}{
		{"globex", "org:globex", ""},
		{"auth0|5f7c8ec7c33c6c004bbafe82", "org:auth0|5f7c8ec7c33c6c004bbafe82", ""},
		{42, "org:42", ""},
		{"42", "org:42", ""},
		{"-", "victim", ""},
		{1.5, "", "is not a name"},
		{[]string{"globex"}, "", "is not a name"},
		{map[string]any{}, "", "is not a name"},
		{int64(1 << 53), "", "is not a name"},
		{"a,b", "", "is not a name"},
		{nil, "", "says that there is none"},
		{"", "", "says that there is none"},
	} {
		r := g.get(t, "/", caller(tt.org), "X-Owner: victim")
		if tt.tenant == "" {
			if r.status != http.StatusUnauthorized || len(r.seen) != 0 || !strings.Contains(r.body, "The claim https://example.com/org in the metadata of envoy.filters.http.jwt_authn "+tt.detail) {
				t.Errorf("claim %v: got %d %s", tt.org, r.status, r.body)
			}
			continue
		}
		if r.status != http.StatusOK || len(r.seen) != 1 || r.seen[0].Header.Get("X-Mete-Tenant") != tt.tenant {
			t.Errorf("claim %v: got %d %s, want tenant %s", tt.org, r.status, r.body, tt.tenant)
		}
	}
}

// The shipped configuration with a JWT filter where it says: claims reach mete, a token
// without the claim is told what was looked for and where, and without the line on
// namespaces nobody would be let in (issue 12, B7).
func TestClaims_C035_BehindTheShippedConfiguration(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	const filters, namespaces = "                http_filters:\n", "                      metadata_context_namespaces: [envoy.filters.http.jwt_authn]\n"
	w := newWorld(t, nil, func(config string) string {
		if strings.Count(config, filters) != 1 || strings.Count(config, namespaces) != 1 {
			t.Error("the example has another form")
		}
		return strings.Replace(config, filters, filters+inside(18, jwtFilter(public))+"\n", 1)
	})
	a := &app{world: w, name: "jwt", host: "jwt.test"}
	a.put(t, map[string]string{
		"apps/jwt": document("App", "jwt", "  time_zone: UTC\n  envoy: {hosts: [jwt.test]}\n  identity: {tenant: [{jwt_claim: org, as: 'org:{}'}, {request_header: x-owner}], principal: [{jwt_claim: sub}]}\n"+
			"  defaults: {plan: jwt}"),
		"plans/jwt": document("Plan", "jwt", "  limits:\n    hourly: {kind: rate, amount: 2, window: 1h}"),
	})
	ask := func(claims map[string]any) *reply {
		claims["iss"] = "test"
		return a.sendTo(t, w.ingress.Listener("ingress"), "Authorization: Bearer "+signed(t, private, claims))
	}
	eventually(t, "the plan is in force", func() bool { return ask(map[string]any{"org": "probe"}).header.Get("Ratelimit-Policy") != "" })
	for _, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests} {
		r := ask(map[string]any{"org": "globex", "sub": "ada"})
		if r.status != want || want == http.StatusOK && (r.seen[0].Header.Get("X-Mete-Tenant") != "org:globex" || r.seen[0].Header.Get("X-Mete-Principal") != "ada") {
			t.Errorf("got %d %s, want %d; the API saw %+v", r.status, r.body, want, r.seen)
		}
	}
	if r := ask(map[string]any{"org": "initech"}); r.status != http.StatusOK {
		t.Errorf("another tenant: %d %s", r.status, r.body)
	}
	const where = "no claim org in the metadata of envoy.filters.http.jwt_authn"
	if r := ask(map[string]any{"sub": "ada"}); r.status != http.StatusUnauthorized || !strings.Contains(r.body, where) || len(r.seen) != 0 {
		t.Errorf("without the claim: %d %s", r.status, r.body)
	}
	if r := a.sendTo(t, w.ingress.Listener("ingress"), "Authorization: Bearer "+signed(t, private, map[string]any{"iss": "another", "org": "globex"})); r.status != http.StatusUnauthorized || len(r.seen) != 0 {
		t.Errorf("a token of somebody else: %d %s", r.status, r.body)
	}

	blind, err := w.startEnvoy(t.Context(), "envoy.yaml", 9901, 10000, func(config string) string {
		return strings.NewReplacer(filters, filters+inside(18, jwtFilter(public))+"\n", namespaces, "").Replace(config)
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = blind.Stop() }()
	r := a.sendTo(t, blind.Listener("ingress"), "Authorization: Bearer "+signed(t, private, map[string]any{"iss": "test", "org": "hooli"}))
	if r.status != http.StatusUnauthorized || !strings.Contains(r.body, where) {
		t.Errorf("without the line on namespaces: %d %s", r.status, r.body)
	}
}
