package envoy_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

func perSecond() authz.LimitState {
	return authz.LimitState{
		Limit: rate("per_second", 10, time.Second), Tenant: "org:acme", Leaf: true, Asked: 1,
		Reset: 100 * time.Millisecond, Window: time.Second,
	}
}

// The bodies that the source documents fix (R9, A3, C46) and the template (R21).
func TestDeniedBodies(t *testing.T) {
	q := monthly(t)
	for name, tt := range map[string]struct {
		refusal     plan.Refusal
		outcome     authz.Outcome
		limit       authz.LimitState
		contentType string
		want        string
	}{
		"R9 rate":               {plan.Refusal{Body: plan.BodyShort}, authz.RateLimited, perSecond(), "application/json", `{"error":"rate_limited","retry_after":1}`},
		"A3 quota":              {plan.Refusal{Body: plan.BodyShort}, authz.QuotaExceeded, q, "application/json", `{"error":"quota_exceeded","retry_after":1857600}`},
		"too large has no wait": {plan.Refusal{Body: plan.BodyShort}, authz.RequestTooLarge, q, "application/json", `{"error":"request_too_large"}`},
		"C46 envelope": {
			plan.Refusal{Body: plan.BodyEnvelope},
			authz.QuotaExceeded, q, "application/json",
			`{"success":false,"code":"QUOTA_EXCEEDED","message":"monthly quota reached (1,000/1,000); resets 2027-01-01",` +
				`"details":{"quotaType":"monthly","limit":1000,"used":1000,"resetAt":"2026-12-31T23:00:00.000Z",` +
				`"quota":{"type":"monthly","limit":1000,"used":1000,"remaining":0,"resetAt":"2026-12-31T23:00:00.000Z"}}}`,
		},
		"C47 envelope of a rate": {
			plan.Refusal{Body: plan.BodyEnvelope},
			authz.RateLimited, perSecond(), "application/json",
			`{"success":false,"code":"RATE_LIMITED","message":"per_second rate limit exceeded; retry in 1s","details":{"limitName":"per_second","limit":10}}`,
		},
		"R21 template": {
			plan.Refusal{Body: plan.BodyTemplate, ContentType: "text/x-own", Template: `${error}|${code}|${message}|${limit}|${node}|${amount}|${used}|${remaining}|${resets_at}|${retry_after}|${decision}|${upgrade_url}|${what}|$|${`},
			authz.QuotaExceeded, q, "text/x-own",
			"quota_exceeded|QUOTA_EXCEEDED|monthly quota reached (1,000/1,000); resets 2027-01-01|monthly|org:acme|1000|1000|0|2026-12-31T23:00:00.000Z|1857600|" +
				decisionID.String() + "||${what}|$|${",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := app()
			a.Refusal = tt.refusal
			no := check(t, refusal(tt.outcome, a, 0, tt.limit)).GetDeniedResponse()
			if no.GetBody() != tt.want {
				t.Errorf("body\n got %s\nwant %s", no.GetBody(), tt.want)
			}
			if got := headerOf(t, no.GetHeaders(), "content-type"); got != tt.contentType {
				t.Errorf("content-type %q, want %q", got, tt.contentType)
			}
			if tt.outcome == authz.RequestTooLarge && hasHeader(no.GetHeaders(), "retry-after") {
				t.Error("Retry-After though waiting cannot help")
			}
		})
	}
}

func TestTemplateEscapes(t *testing.T) {
	a := app()
	a.Refusal = plan.Refusal{Body: plan.BodyTemplate, Template: `{"n":"${node}"}`}
	l := perSecond()
	l.Tenant = "a\"\\\r\n\x00</script>\xff"
	body := check(t, refusal(authz.RateLimited, a, 0, l)).GetDeniedResponse().GetBody()
	var v struct{ N string }
	if err := json.Unmarshal([]byte(body), &v); err != nil || v.N != "a\"\\\r\n\x00</script>\uFFFD" {
		t.Errorf("%s: %q, %v", body, v.N, err)
	}
	if strings.Contains(body, "<") {
		t.Errorf("%s has markup", body)
	}
}

func TestSentences(t *testing.T) {
	over := monthly(t)
	over.Left, over.Asked, over.Used = 2, 5, 998
	minute := perSecond()
	minute.Limit, minute.Window, minute.Reset = rate("per_minute", 3000, time.Minute), time.Minute, 61*time.Second
	gpus := authz.LimitState{Limit: quota("gpus", 100, "gpus", 0), Tenant: "project:p", Leaf: true, Asked: 8, Left: 4, Reset: -1}
	gpus.Limit.Kind = plan.Allocation
	theirs := monthly(t)
	theirs.Leaf = false
	hiding := *theirs.Limit
	hiding.Disclose = plan.DiscloseNames
	theirs.Limit = &hiding
	big := perSecond()
	big.Asked = 5000
	waiting := monthly(t)
	waiting.Left, waiting.Asked, waiting.Used, waiting.Reserved, waiting.Returns = 200, 400, 800, 750, 2*time.Second
	waits := refusal(authz.QuotaExceeded, app(), 0, waiting)
	waits.RetryAfter = waiting.Wait()
	for want, d := range map[string]*authz.Decision{
		"The per_second rate limit of org:acme is reached: 10 requests in 1 second. Try again in 1 second.":                                                            refusal(authz.RateLimited, app(), 0, perSecond()),
		"The per_minute rate limit of org:acme is reached: 3,000 requests in 1 minute. Try again in 61 seconds.":                                                       refusal(authz.RateLimited, app(), 0, minute),
		"The monthly quota of org:acme has 2 of 1,000 requests left, and the request asks for 5. It resets on 1 January 2027 at 00:00 (Europe/Berlin).":                refusal(authz.QuotaExceeded, app(), 0, over),
		"The monthly quota of org:acme has 200 of 1,000 requests left while running requests have reserved 750, and the request asks for 400. Try again in 2 seconds.": waits,
		"The gpus allocation of project:p has 4 of 100 gpus left, and the request asks for 8.":                                                                         refusal(authz.QuotaExceeded, app(), 0, gpus),
		"The monthly quota of org:acme is used up. It resets on 1 January 2027 at 00:00 (Europe/Berlin).":                                                              refusal(authz.QuotaExceeded, app(), 0, theirs),
		"The request asks for 5,000 requests, more than the whole per_second rate limit of org:acme: 10.":                                                              refusal(authz.RequestTooLarge, app(), 0, big),
		"The monthly quota of org:acme cannot be checked at the moment.":                                                                                               refusal(authz.Unavailable, app(), 0, monthly(t)),
		"The quota cannot be checked at the moment.":                                                                                                                   refusal(authz.Unavailable, nil, -1),
		"The API key in x-api-key is not known.":                                                                                                                       refusedFor("the API key in x-api-key is not known"),
		"The request carries no valid credential.":                                                                                                                     refusal(authz.Unauthenticated, app(), -1),
		"The caller may not use this API.":                                                                                                                             refusal(authz.TenantUnknown, app(), -1),
	} {
		var body struct{ Detail string }
		text := check(t, d).GetDeniedResponse().GetBody()
		if err := json.Unmarshal([]byte(text), &body); err != nil || body.Detail != want {
			t.Errorf("%v\n got %q\nwant %q", err, body.Detail, want)
		}
	}
}

// The two forms of a reset in a body are the same instant, rounded up.
func TestResetForms(t *testing.T) {
	l := monthly(t)
	l.ResetsAt = time.UnixMilli(1798758000000).Add(1)
	body := check(t, refusal(authz.QuotaExceeded, app(), 0, l)).GetDeniedResponse().GetBody()
	if !strings.Contains(body, `"resetAt":"2026-12-31T23:00:00.001Z"`) || !strings.Contains(body, `"resets_at_ms":1798758000001`) {
		t.Error(body)
	}
}

// refusedFor is a refusal of a caller for a reason.
func refusedFor(why string) *authz.Decision {
	d := refusal(authz.Unauthenticated, app(), -1)
	d.Why = why
	return d
}

// What running requests have reserved is beside what is used, and not in it.
func TestDenied_A41_Reserved(t *testing.T) {
	t.Parallel()
	l := monthly(t)
	l.Left, l.Asked, l.Used, l.Reserved, l.Returns = 200, 400, 800, 750, 2*time.Second
	body := check(t, refusal(authz.QuotaExceeded, app(), 0, l)).GetDeniedResponse().GetBody()
	if want := `"limit":1000,"used":50,"reserved":750,"remaining":200,"asked":400`; !strings.Contains(body, want) {
		t.Errorf("%s is not in %s", want, body)
	}
	l.Used, l.Reserved = 200, 900 // the quota was cleared while requests ran
	body = check(t, refusal(authz.QuotaExceeded, app(), 0, l)).GetDeniedResponse().GetBody()
	if want := `"used":0,"reserved":200,`; !strings.Contains(body, want) {
		t.Errorf("after a clear: %s is not in %s", want, body)
	}
}
