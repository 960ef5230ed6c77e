package envoy_test

import (
	"context"
	"slices"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

// C154: what the API is told cannot be forged by underscores for hyphens, which CGI and
// WSGI servers take for one: all spellings of mete's own headers are removed, and of the
// headers that the app trusts the one with underscores alone and those that came.
func TestAdmitted_C154_Underscores(t *testing.T) {
	t.Parallel()
	d := always(authz.Allowed)
	d.answer = func(_ context.Context, _ *authz.Request, dec *authz.Decision) {
		a := app()
		a.Identity.Tenant = []plan.Source{{Kind: plan.SourceRequestHeader, Name: "x-customer-org-id"}, {Kind: plan.SourceRequestHeader, Name: "org"}}
		dec.Outcome, dec.App, dec.Worst, dec.Tenant = authz.Allowed, a, -1, "org:acme"
	}
	_, conn := start(t, envoy.Options{Decider: d})
	r, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: "GET", Path: "/", Headers: map[string]string{"x_customer-org_id": "org:evil", "x_other_name": "fine"},
		}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	removed := r.GetOkResponse().GetHeadersToRemove()
	for _, name := range []string{
		"x_mete_tenant", "x_mete-tenant", "x-mete_tenant", "x_mete_principal", "x_mete-class", "x_mete_class", "x-quota_decision", "x_quota_state",
		"x_customer_org_id", "x_customer-org_id",
	} {
		if !slices.Contains(removed, name) {
			t.Errorf("%s is not removed: %v", name, removed)
		}
	}
	for _, name := range []string{"x_other_name", "x-mete-tenant", "org"} {
		if slices.Contains(removed, name) {
			t.Errorf("%s is removed", name)
		}
	}
}
