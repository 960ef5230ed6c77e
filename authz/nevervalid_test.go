package authz_test

import (
	"testing"
	"testing/synctest"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// C004: on_unavailable decides for an app that was never valid, but nobody is let on of
// whom it is not known who they are (issue 12, C5).
func TestDecide_C004_AnAppThatWasNeverValid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("envoy: {hosts: [api.example.com]}"))
		for name, text := range map[string]string{
			"denies": "spec: {envoy: {domain: denies}, defaults: {on_unavailable: deny}}", "allows": "spec: {envoy: {domain: allows}}", "unread": "{",
		} {
			k.catalog.PutBroken(plan.KindApp, name, 7, "app "+name+" has never been valid", []byte(text))
		}
		k.publish()
		for _, tt := range []struct {
			req  authz.Request
			want authz.Outcome
		}{
			{authz.Request{Domain: "denies", Tenant: "org:a"}, authz.Unavailable},
			{authz.Request{Domain: "allows", Tenant: "org:a"}, authz.UnavailableAllowed},
			{authz.Request{Domain: "unread", Tenant: "org:a"}, authz.NoApp},
			{authz.Request{App: "denies", Path: "/"}, authz.Unavailable},
			{authz.Request{App: "allows", Path: "/"}, authz.NotReady},
			{authz.Request{App: "unread", Path: "/"}, authz.NotReady},
			{authz.Request{Host: "other.example.com", Path: "/"}, authz.NoApp},
		} {
			dec := k.must(tt.req, tt.want)
			if tt.want != authz.NoApp && dec.Why == "" {
				t.Errorf("%+v: no reason", tt.req)
			}
			if (tt.want == authz.Unavailable || tt.want == authz.UnavailableAllowed) && (dec.App == nil || dec.App.NeverValid != dec.Why) {
				t.Errorf("%+v: app %+v", tt.req, dec.App)
			}
		}
		if bound, rules := k.d.Domain("denies"); bound == nil || rules != nil {
			t.Errorf("the domain is bound to %+v, with rules %+v", bound, rules)
		}
		// Where no app at all is in force, every host is theirs, and the strictest decides.
		k.remove(plan.KindApp, "api")
		k.must(authz.Request{Host: "other.example.com", Path: "/"}, authz.Unavailable)
	})
}
