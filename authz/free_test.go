package authz_test

import (
	"testing"
	"testing/synctest"

	"github.com/meteproject/mete/authz"
)

// consoleDocs are the budgets of a console: calls of people, calls of automation with a
// soft cap, and generations on top of either; with its free and never refused routes.
const consoleDocs = `
apiVersion: mete/v1
kind: App
metadata: {name: console}
spec:
  time_zone: UTC
  units: {ai: {}, syncs: {}}
  identity:
    tenant: [{api_key: x-api-key}, {jwt_claim: org_id}, {peer_spiffe_id: "spiffe://example.org/*"}]
    principal: [{jwt_claim: sub}, {peer_spiffe_id: "spiffe://example.org/*"}]
    classes:
      - {name: service, when: {peer_spiffe_id: "spiffe://example.org/ns/*/sa/*"}, meter: false, check: false, reason: service to service is free}
      - {name: impersonation, when: {jwt_claim_present: act}, meter: false, check: false, reason: support must reach an exhausted org}
      - {name: automation, when: {credential_prefix: [sa_, pat_]}}
      - {name: people}
---
apiVersion: mete/v1
kind: Routes
metadata: {name: console}
spec:
  app: console
  rules:
    - {name: sign_in, match: {path_prefix: /auth}, meter: false, check: false, reason: an org that is locked out must be able to sign in}
    - {name: quotas, match: {methods: [GET], path: /quotas}, meter: false, check: false, reason: reading your own quota is free}
    - {name: profile, match: {methods: [GET], path: /user/profile}, meter: false, check: false, reason: every page asks for it}
    - {name: unread, match: {methods: [GET], path: /messages/unread/count}, meter: false, check: false, reason: polled every 30 s}
    - {name: seats, match: {methods: [GET], path: "/organization/{id}/seat-usage"}, meter: false, check: false, reason: read beside the quota}
    - {name: ingest, match: {methods: [POST], path: /reports/events}, check: false, reason: telemetry can not be sent again}
    - {name: scim, match: {path_prefix: /scim/v2}, weight: 0, units: {syncs: {reserve: 1}}}
    - {name: generate, match: {methods: [POST], path_prefix: /ask}, units: {ai: {reserve: 1}}}
    - {name: ticket, match: {methods: [POST], path: /never}, meter: false, check: false, reason: named by Envoy routes alone}
`

func newConsole(t *testing.T) *desk {
	t.Helper()
	return newDesk(t, consoleDocs+planDoc("developer", `people: {kind: quota, amount: 3, classes: [people], reset: {calendar: day}}
automation: {kind: quota, amount: 20, classes: [automation], when_used_up: {grace: 10%}, reset: {calendar: day}}
ai: {kind: quota, amount: 2, unit: ai, reset: {calendar: day}}
syncs: {kind: rate, amount: 2, window: 1m, unit: syncs}`)+tenantDoc("org:a", "{plan: developer}")+
		credentialDoc("sa_1", `{tenant: "org:a", principal: "sa:1"}`))
}

// call is a request with the verified claims of somebody, nil: of nobody.
func call(method, path string, of claims) authz.Request {
	req := authz.Request{Method: method, Path: path}
	if of != nil {
		req.Metadata = of
	}
	return req
}

const jwt = "envoy.filters.http.jwt_authn:payload."

func person() claims { return claims{jwt + "org_id": "org:a", jwt + "sub": "u_1"} }

// machine is a request with a service account's key.
func machine(method, path string) authz.Request {
	return authz.Request{Method: method, Path: path, Headers: []authz.Field{{Name: "x-api-key", Value: "sa_1"}}}
}

// exhaust uses up what people have.
func (k *desk) exhaust() {
	k.t.Helper()
	for range 3 {
		k.must(call("GET", "/pipelines", person()), authz.Allowed)
	}
	k.must(call("GET", "/pipelines", person()), authz.QuotaExceeded)
}

func TestClasses_C1_C4_C5_OneBudgetEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConsole(t)
		k.exhaust() // hard: nothing past the amount
		for i := range 22 {
			want := authz.Allowed
			if i >= 20 {
				want = authz.Grace
			}
			dec := k.must(machine("GET", "/plugins"), want)
			if len(dec.Limits) != 1 || dec.Limits[0].Limit.Name != "automation" {
				t.Fatalf("charged to %s, want automation alone", show(dec))
			}
		}
		k.must(machine("GET", "/plugins"), authz.QuotaExceeded)
		k.must(call("GET", "/pipelines", person()), authz.QuotaExceeded)
	})
}

func TestRoutes_C6_ASecondBudgetBesideTheCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConsole(t)
		ask := call("POST", "/ask/plugin", person())
		dec := k.must(ask, authz.Allowed)
		if limit(t, dec, "people").Left != 2 || limit(t, dec, "ai").Left != 1 {
			t.Errorf("want one of each taken: %s", show(dec))
		}
		k.must(machine("POST", "/ask"), authz.Allowed)
		if dec := k.must(ask, authz.QuotaExceeded); !limit(t, dec, "ai").Refused || limit(t, dec, "people").Refused {
			t.Errorf("want ai to refuse: %s", show(dec))
		}
		if left := limit(t, k.must(call("GET", "/x", person()), authz.Allowed), "people").Left; left != 1 {
			t.Errorf("%d calls left, want 1: a refused generation took one", left)
		}
	})
}

func TestClasses_C7_ServicesAreFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConsole(t)
		k.exhaust()
		for _, of := range []claims{person(), nil} { // with a user's token, or in its own name
			req := call("POST", "/ask", of)
			req.Peer = "spiffe://example.org/ns/default/sa/pipeline"
			dec := k.must(req, authz.Exempt)
			if dec.Class != "service" || len(dec.Limits) != 0 {
				t.Errorf("class %q, %s", dec.Class, show(dec))
			}
		}
		stranger := call("GET", "/x", person())
		stranger.Peer = "spiffe://example.com/ns/default/sa/pipeline"
		k.must(stranger, authz.QuotaExceeded)
	})
}

func TestClasses_C12_C13_C17_ImpersonationNeitherSpendsNorIsRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConsole(t)
		staff := person()
		staff[jwt+"act"] = "{}" // an object, as RFC 8693 has it
		for range 5 {
			dec := k.must(call("POST", "/ask", staff), authz.Exempt)
			if dec.Class != "impersonation" || dec.Principal != "u_1" || dec.Tenant != "org:a" {
				t.Fatalf("class %q, principal %q, tenant %q: no trail", dec.Class, dec.Principal, dec.Tenant)
			}
		}
		k.exhaust()
		k.must(call("GET", "/pipelines", staff), authz.Exempt)
	})
}

func TestRoutes_C38_C39_WhoSignsInIsNobodyYet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConsole(t)
		k.exhaust()
		badKey := machine("POST", "/auth/login")
		badKey.Headers[0].Value = "sa_unknown"
		for name, req := range map[string]authz.Request{
			"nobody": call("POST", "/auth/login", nil), "unknown key": badKey,
		} {
			dec := k.ask(req)
			if dec.Outcome != authz.Exempt || dec.Tenant != "" || dec.Principal != "" || dec.Class != "" || dec.Why != "" || dec.Route != "sign_in" {
				t.Errorf("%s: %q, tenant %q, principal %q, class %q, route %q, why %q",
					name, dec.Outcome.Word(), dec.Tenant, dec.Principal, dec.Class, dec.Route, dec.Why)
			}
		}
		if dec := k.must(call("POST", "/auth/refresh", person()), authz.Exempt); dec.Tenant != "org:a" || dec.Principal != "u_1" {
			t.Errorf("a valid caller is tenant %q, principal %q", dec.Tenant, dec.Principal)
		}
		badKey.Path = "/pipelines" // everywhere else a caller is known or refused
		k.must(badKey, authz.Unauthenticated)
		for _, path := range []string{"/pipelines", "/authority", "/auth/../pipelines", "/reports/events", "/scim/v2/Users"} {
			if dec := k.must(call("POST", path, nil), authz.Unauthenticated); len(dec.Limits) != 0 {
				t.Errorf("%s: a refusal before the caller is verified tells of limits", path)
			}
		}
	})
}

func TestRoutes_C40_DirectorySyncHasItsOwnBucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConsole(t)
		k.exhaust()
		sync := call("POST", "/scim/v2/Users", person())
		for range 2 {
			if dec := k.must(sync, authz.Allowed); len(dec.Limits) != 1 {
				t.Errorf("charged to %s, want syncs alone", show(dec))
			}
		}
		k.must(sync, authz.RateLimited)
	})
}

func TestRoutes_C41_C43_PollingIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConsole(t)
		poll := func() {
			for _, path := range []string{"/quotas", "/user/profile", "/messages/unread/count", "/organization/org:a/seat-usage?x=1"} {
				if dec := k.must(call("GET", path, person()), authz.Exempt); dec.Tenant != "org:a" || len(dec.Limits) != 0 {
					t.Errorf("%s: tenant %q, %s", path, dec.Tenant, show(dec))
				}
			}
		}
		for range 10 {
			poll()
		}
		k.exhaust()
		poll()
		k.must(call("POST", "/user/profile", person()), authz.QuotaExceeded) // free to read, not to write
	})
}

func TestRoutes_C42_IngestIsMeteredAndNeverRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConsole(t)
		for i := range int64(30) {
			dec := k.ask(machine("POST", "/reports/events"))
			if s := limit(t, dec, "automation"); !dec.Outcome.Admits() || s.Used != i+1 {
				t.Fatalf("number %d: %q, used %d", i+1, dec.Outcome.Word(), s.Used)
			}
		}
		k.must(machine("GET", "/plugins"), authz.QuotaExceeded) // its use counts for everything else
	})
}

func TestRoutes_C37_AnEnvoyRouteNamesTheRule(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newConsole(t)
		named := func(rule, method, path string) authz.Request {
			req := call(method, path, person())
			req.Extensions = []authz.Field{{Name: "mete-route", Value: rule}}
			return req
		}
		if dec := k.must(named("ticket", "GET", "/pipelines"), authz.Exempt); dec.Route != "ticket" {
			t.Errorf("route %q", dec.Route)
		}
		dec := k.must(named("generate", "GET", "/user/profile"), authz.Allowed) // and not as its path says
		if dec.Route != "generate" || limit(t, dec, "ai").Left != 1 {
			t.Errorf("route %q, %s", dec.Route, show(dec))
		}
		nobody := named("ticket", "POST", "/x")
		nobody.Metadata = nil
		k.must(nobody, authz.Exempt)
		if n := k.d.Stats().UnknownRoutes["console"]; n != 0 {
			t.Errorf("%d unknown routes", n)
		}
		for i, path := range []string{"/user/profile", "/ask"} { // by its path, then, and counted
			dec := k.ask(named("tickets", "GET", path))
			if want := []string{"profile", ""}[i]; dec.Route != want || !dec.Outcome.Admits() {
				t.Errorf("%s: route %q, %q", path, dec.Route, dec.Outcome.Word())
			}
		}
		if n := k.d.Stats().UnknownRoutes["console"]; n != 2 {
			t.Errorf("%d unknown routes, want 2", n)
		}
		k.must(named("", "GET", "/user/profile"), authz.Exempt)
		if n := k.d.Stats().UnknownRoutes["console"]; n != 2 {
			t.Error("an empty name is counted")
		}
	})
}

// A rule for a host matches requests of that host, whatever the case of its letters.
func TestRoutes_A36_C37_ByHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("100", ""))+tenantDoc("org:a", "{plan: free}")+`
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec: {app: api, rules: [{name: heavy, match: {hosts: ["heavy.example.com"]}, weight: 5}]}
`)
		for host, want := range map[string]int64{"heavy.example.com": 5, "Heavy.Example.com:443": 5, "example.com": 1, "": 1} {
			req := from("org:a")
			req.Host = host
			if asked := limit(t, k.must(req, authz.Allowed), "monthly").Asked; asked != want {
				t.Errorf("host %q costs %d, want %d", host, asked, want)
			}
		}
	})
}
