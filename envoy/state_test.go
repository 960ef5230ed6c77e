package envoy_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

// P66: each admission tells the upstream, and Envoy's routes, how the quota is; what a
// client has forged never arrives, an app that takes it for an identity or not.
func TestState_P66(t *testing.T) {
	t.Parallel()
	a := app()
	a.Identity.Tenant = []plan.Source{{Kind: plan.SourceRequestHeader, Name: "x-quota-state"}}
	for o, want := range map[authz.Outcome]string{
		authz.Allowed: "ok", authz.Grace: "grace", authz.CountedOver: "over", authz.UnavailableAllowed: "unchecked", authz.Exempt: "exempt",
	} {
		for _, tenant := range []string{"org:acme", ""} {
			ok := check(t, &authz.Decision{Outcome: o, App: a, Tenant: tenant, Worst: -1}).GetOkResponse()
			if got := headerOf(t, ok.GetHeaders(), "x-quota-state"); got != want {
				t.Errorf("%v: %q, want %q", o, got, want)
			}
			overwrites(t, ok.GetHeaders())
			if slices.Contains(ok.GetHeadersToRemove(), "x-quota-state") {
				t.Errorf("%v: removed again, since removal comes last", o)
			}
		}
	}
	if check(t, &authz.Decision{Outcome: authz.Exempt, Worst: -1}).GetOkResponse() == nil {
		t.Error("a decision without an app is no admission")
	}
	for _, o := range []authz.Outcome{authz.QuotaExceeded, authz.Unavailable, authz.TenantUnknown} {
		d := refusal(o, app(), 0, monthly(t))
		if hasHeader(check(t, d).GetDeniedResponse().GetHeaders(), "x-quota-state") {
			t.Errorf("%v: a refusal has a state", o)
		}
	}
}

// P15: the reservation is a text that Envoy can carry, whatever is in it.
func TestReservation_P15_IsAlwaysText(t *testing.T) {
	t.Parallel()
	d := &authz.Decision{Outcome: authz.Allowed, App: app(), Tenant: "org:acme", Worst: -1}
	for _, token := range []string{sampleToken, strings.Repeat("x", 20000), "caf\xe9"} {
		r := parse(t, envoy.Check(d, noon, "", false, nil, sealing(token)), &authv3.CheckResponse{})
		got := r.GetDynamicMetadata().AsMap()["reservation"]
		if got != strings.ToValidUTF8(token, "\ufffd") && utf8.ValidString(token) {
			t.Errorf("%.20q is sent as %.20q", token, got)
		}
	}
	r := parse(t, envoy.Check(d, noon, "", false, nil, sealing("")), &authv3.CheckResponse{})
	if _, ok := r.GetDynamicMetadata().AsMap()["reservation"]; ok {
		t.Error("nothing is reserved, but it is sent")
	}
}
