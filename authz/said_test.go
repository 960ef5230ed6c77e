package authz_test

import (
	"testing"
	"testing/synctest"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

const saidDocs = `
apiVersion: mete/v1
kind: App
metadata: {name: said}
spec:
  time_zone: UTC
  envoy: {domain: edge}
  units: {tokens: {}}
  identity:
    tenant: [{api_key: x-api-key}]
    classes:
      - {name: machines, when: {credential_prefix: [m_]}}
      - {name: support, when: {credential_prefix: [s_]}, meter: false, check: false, still_spends: [tokens], reason: support must reach an exhausted org}
      - {name: people}
  defaults: {plan: free}
---
apiVersion: mete/v1
kind: Routes
metadata: {name: said}
spec:
  app: said
  rules:
    - {name: generate, match: {path_prefix: /generate}, weight: 2, units: {tokens: {reserve: 30}}}
`

func saidDesk(t *testing.T) *desk {
	t.Helper()
	return newDesk(t, saidDocs+planDoc("free", `calls: {kind: rate, amount: 10, window: 1m}
machines: {kind: quota, amount: 1, classes: [machines], reset: {calendar: day}}
tokens: {kind: quota, amount: 100, unit: tokens, reset: {calendar: month}}`))
}

func saying(tenant, class string, units ...authz.UnitAmount) authz.Request {
	return authz.Request{Domain: "edge", Tenant: tenant, Class: class, Units: units}
}

// A caller that says its class is of that class; one that the app lacks is none, so that
// the class is found out as ever.
func TestDecide_Class_AsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := saidDesk(t)
		for class, want := range map[string]string{"machines": "machines", "people": "people", "robots": "people", "": "people"} {
			if dec := k.must(saying("org:"+class, class), authz.Allowed); dec.Class != want {
				t.Errorf("said %q, is %q", class, dec.Class)
			}
		}
		k.must(saying("org:machines", "machines"), authz.QuotaExceeded)
		k.must(saying("org:machines", "people"), authz.Allowed)
	})
}

// Units that a request says are what it reserves, in place of what its route says, and
// whatever its hits are; what it does not say is as the route says.
func TestDecide_Units_AsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := saidDesk(t)
		tokens := func(n int64) authz.UnitAmount { return authz.UnitAmount{Unit: "tokens", Amount: n} }
		requests := func(n int64) authz.UnitAmount { return authz.UnitAmount{Unit: plan.DefaultUnit, Amount: n} }
		left := func(tokens, calls int64, req authz.Request) {
			t.Helper()
			dec := k.must(req, authz.Allowed)
			if got := limit(t, dec, "tokens").Left; got != tokens {
				t.Errorf("%+v: %d tokens left, want %d", req, got, tokens)
			}
			if calls >= 0 && limit(t, dec, "calls").Left != calls {
				t.Errorf("%+v: %d calls left, want %d", req, limit(t, dec, "calls").Left, calls)
			}
		}
		with := func(req authz.Request, hits int64) authz.Request {
			req.Path, req.Hits = "/generate", hits
			return req
		}
		left(70, 8, with(saying("org:a", ""), 1))
		left(50, 6, with(saying("org:a", "", tokens(20)), 1))
		left(45, 2, with(saying("org:a", "", tokens(5)), 2))
		left(15, 1, with(saying("org:a", "", requests(1)), 1))
		left(5, -1, with(saying("org:a", "", requests(0), tokens(10)), 1))
		k.must(with(saying("org:a", "", requests(0), tokens(6)), 1), authz.QuotaExceeded)
		left(80, -1, saying("org:b", "", requests(0), tokens(20)))
		if dec := k.must(saying("org:c", "", tokens(0)), authz.Allowed); len(dec.Limits) != 1 {
			t.Errorf("0 tokens concern %d limits", len(dec.Limits))
		}
		// A free class spends what it still spends.
		k.must(saying("org:d", "support"), authz.Exempt)
		dec := k.must(saying("org:d", "support", tokens(40), requests(9)), authz.Allowed)
		if len(dec.Limits) != 1 || limit(t, dec, "tokens").Left != 60 {
			t.Errorf("%+v", dec.Limits)
		}
		k.must(saying("org:d", "support", requests(9)), authz.Exempt)
	})
}
