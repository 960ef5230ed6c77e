package envoy_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

// always44 are the members that the body of every refusal has, of the full form and
// of the envelope.
var always44 = map[plan.BodyForm][]string{
	plan.BodyFull:     {"type", "title", "status", "detail", "instance", "error", "success", "code", "message"},
	plan.BodyEnvelope: {"success", "code", "message"},
	plan.BodyShort:    {"error"},
}

// refusals are one refusal of each kind.
func refusals(t *testing.T, a *plan.App) map[string]*authz.Decision {
	t.Helper()
	hiding := monthly(t)
	l := *hiding.Limit
	l.Disclose, hiding.Leaf, hiding.Limit = plan.DiscloseNames, false, &l
	return map[string]*authz.Decision{
		"rate":            refusal(authz.RateLimited, a, 0, perSecond()),
		"quota":           refusal(authz.QuotaExceeded, a, 0, monthly(t)),
		"hidden ancestor": refusal(authz.QuotaExceeded, a, 0, hiding),
		"too large":       refusal(authz.RequestTooLarge, a, 0, monthly(t)),
		"unavailable":     refusal(authz.Unavailable, a, -1),
		"unauthenticated": refusal(authz.Unauthenticated, a, -1),
		"unknown":         refusal(authz.TenantUnknown, a, -1),
	}
}

// Every refusal has the same shape, whatever refused and by whichever way the
// question came (C44).
func TestRefusal_C44_SameShape(t *testing.T) {
	t.Parallel()
	for form, members := range always44 {
		a := app()
		a.Refusal.Body = form
		for name, d := range refusals(t, a) {
			text := check(t, d).GetDeniedResponse().GetBody()
			var body map[string]any
			if err := json.Unmarshal([]byte(text), &body); err != nil {
				t.Fatalf("%s: %v in %s", name, err, text)
			}
			for _, member := range members {
				if _, ok := body[member]; !ok {
					t.Errorf("%s: no %s in %s", name, member, text)
				}
			}
			if _, detailed := body["details"]; detailed != (d.Worst >= 0) && form != plan.BodyShort {
				t.Errorf("%s: details %v, though a limit refused: %v", name, detailed, d.Worst >= 0)
			}
		}
	}
}

// The rate limit service answers with the very body that ext_authz answers with.
func TestRefusal_C44_SameBodyByRLS(t *testing.T) {
	t.Parallel()
	for name, d := range refusals(t, app()) {
		if d.Outcome == authz.Unavailable {
			continue // Envoy's status_on_error speaks then
		}
		s := &script{answer: func(_ context.Context, _ *authz.Request, out *authz.Decision) {
			*out = *d
			out.Limits = slices.Clone(d.Limits)
		}}
		now := func() time.Time { return noon }
		_, conn := start(t, envoy.Options{Decider: s, Now: now})
		r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 0, descriptor("tenant", "org:acme")))
		if err != nil {
			t.Fatal(err)
		}
		asked, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), fullCheck(t))
		if err != nil {
			t.Fatal(err)
		}
		got, want := string(r.GetRawBody()), asked.GetDeniedResponse().GetBody()
		if status := asked.GetDeniedResponse().GetStatus().GetCode(); status != 429 {
			// The filter sends 429, so that is what the body says.
			kind := fmt.Sprintf(`"title":%q,"status":%d`, map[int]string{401: "Unauthorized", 403: "Forbidden"}[int(status)], status)
			want = strings.Replace(want, kind, `"title":"Too Many Requests","status":429`, 1)
		}
		if got != want {
			t.Errorf("%s: the bodies differ\n     RLS %s\next_authz %s", name, got, want)
		}
		headers := map[string]string{}
		for _, h := range r.GetResponseHeadersToAdd() {
			headers[h.GetKey()] = h.GetValue()
		}
		headers["x-envoy-ratelimited"] = "" // Envoy's own filter adds it
		if _, asks := headers["www-authenticate"]; asks {
			t.Errorf("%s: a 429 asks for a credential", name)
		}
		headers["www-authenticate"] = ""
		for _, h := range asked.GetDeniedResponse().GetHeaders() {
			if got, ok := headers[h.GetHeader().GetKey()]; !ok || got != h.GetHeader().GetValue() && got != "" {
				t.Errorf("%s: RLS says %s: %q, want %q; it has %q", name, h.GetHeader().GetKey(), got, h.GetHeader().GetValue(), slices.Sorted(maps.Keys(headers)))
			}
		}
	}
}

// Who is refused for who it is has nothing to wait for, whatever a decision says.
func TestRefusal_NothingToWaitFor(t *testing.T) {
	t.Parallel()
	for _, o := range []authz.Outcome{authz.Unauthenticated, authz.TenantUnknown, authz.RequestTooLarge} {
		d := refusal(o, app(), -1)
		d.RetryAfter = 1857600 * time.Second
		no := check(t, d).GetDeniedResponse()
		var body map[string]any
		if err := json.Unmarshal([]byte(no.GetBody()), &body); err != nil {
			t.Fatal(err)
		}
		if _, waits := body["retry_after"]; waits || hasHeader(no.GetHeaders(), "retry-after") {
			t.Errorf("%s: %v, %s", o.Word(), no.GetHeaders(), no.GetBody())
		}
	}
}

// A quota's 429 can be told from a rate limit's by every form of body, by the
// headers and by the metadata for logs (C47).
func TestRefusal_C47_QuotaOrRate(t *testing.T) {
	t.Parallel()
	for _, form := range []plan.BodyForm{plan.BodyFull, plan.BodyEnvelope, plan.BodyShort} {
		a := app()
		a.Refusal.Body = form
		one := check(t, refusal(authz.RateLimited, a, 0, perSecond()))
		two := check(t, refusal(authz.QuotaExceeded, a, 0, monthly(t)))
		read := func(text string) (key string) {
			var body struct{ Code, Error string }
			if err := json.Unmarshal([]byte(text), &body); err != nil {
				t.Fatal(err)
			}
			return body.Code + " " + body.Error
		}
		rated, used := read(one.GetDeniedResponse().GetBody()), read(two.GetDeniedResponse().GetBody())
		want := map[plan.BodyForm][2]string{
			plan.BodyFull:     {"RATE_LIMITED rate_limited", "QUOTA_EXCEEDED quota_exceeded"},
			plan.BodyEnvelope: {"RATE_LIMITED ", "QUOTA_EXCEEDED "},
			plan.BodyShort:    {" rate_limited", " quota_exceeded"},
		}[form]
		if rated != want[0] || used != want[1] {
			t.Errorf("body %v: %q and %q, want %q", form, rated, used, want)
		}
		if m, n := one.GetDynamicMetadata().AsMap()["outcome"], two.GetDynamicMetadata().AsMap()["outcome"]; m != "rate_limited" || n != "quota_exceeded" {
			t.Errorf("metadata says %v and %v", m, n)
		}
	}
}

// The draft's field names may change: an App can give them others or leave them
// out, limit by limit too. Retry-After stays whatever happens (R8, P72).
func TestFields_R8_P72_RenamedOrHidden(t *testing.T) {
	t.Parallel()
	quiet := *rate("quiet", 5, time.Minute)
	quiet.Advertise = false
	for name, tt := range map[string]struct {
		headers       plan.Headers
		policy, state string // names; "": none
	}{
		"as in the draft": {plan.Headers{RateLimitName: "ratelimit", PolicyName: "ratelimit-policy"}, "ratelimit-policy", "ratelimit"},
		"renamed":         {plan.Headers{RateLimitName: "x-rate", PolicyName: "x-rate-policy"}, "x-rate-policy", "x-rate"},
		"hidden":          {plan.Headers{RateLimit: plan.Never, RateLimitName: "ratelimit", PolicyName: "ratelimit-policy"}, "", ""},
	} {
		a := app()
		a.Headers = tt.headers
		hidden := authz.LimitState{Limit: &quiet, Tenant: "org:acme", Leaf: true, Asked: 1, Left: 4}
		no := check(t, refusal(authz.RateLimited, a, 0, perSecond(), hidden)).GetDeniedResponse().GetHeaders()
		for _, field := range []string{"ratelimit-policy", "ratelimit", "x-rate-policy", "x-rate"} {
			if has, want := hasHeader(no, field), field == tt.policy || field == tt.state; has != want {
				t.Errorf("%s: %s sent %v, want %v", name, field, has, want)
			}
		}
		if tt.state != "" && (headerOf(t, no, tt.state) != `"per_second";r=0;t=1` || headerOf(t, no, tt.policy) != `"per_second";q=10;w=1`) {
			t.Errorf("%s: %v", name, no)
		}
		if headerOf(t, no, "retry-after") != "1" {
			t.Errorf("%s: Retry-After %q, want 1", name, headerOf(t, no, "retry-after"))
		}
	}
}
