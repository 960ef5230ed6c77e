package envoy_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// The SDKs of OpenAI read an object error, and show its message.
func TestDenied_C44_OpenAI(t *testing.T) {
	t.Parallel()
	a := app()
	a.Refusal.Body = plan.BodyOpenAI
	tokens := perSecond()
	tokens.Limit = rate("tpm", 100, time.Minute)
	tokens.Limit.Unit = "tokens"
	all := refusals(t, a)
	all["tokens"] = refusal(authz.RateLimited, a, 0, tokens)
	for name, want := range map[string]string{
		"rate":            "requests rate_limit_exceeded",
		"tokens":          "tokens rate_limit_exceeded",
		"quota":           "insufficient_quota insufficient_quota",
		"hidden ancestor": "insufficient_quota insufficient_quota",
		"too large":       "invalid_request_error request_too_large",
		"unavailable":     "server_error quota_unavailable",
		"unauthenticated": "invalid_request_error invalid_api_key",
		"unknown":         "invalid_request_error tenant_unknown",
	} {
		no := check(t, all[name]).GetDeniedResponse()
		var body struct {
			Error struct {
				Message, Type, Code string
				Param               *string
			}
			Instance string
		}
		if err := json.Unmarshal([]byte(no.GetBody()), &body); err != nil {
			t.Fatalf("%s: %v in %s", name, err, no.GetBody())
		}
		if got := fmt.Sprint(body.Error.Type, " ", body.Error.Code); got != want || body.Error.Message == "" || body.Error.Param != nil {
			t.Errorf("%s: %s", name, no.GetBody())
		}
		if got := headerOf(t, no.GetHeaders(), "content-type"); got != "application/json" || body.Instance != "urn:mete:decision:"+decisionID.String() {
			t.Errorf("%s: %s, %s", name, got, body.Instance)
		}
	}
	want := `{"error":{"message":"The monthly quota of org:acme is used up: 1,000 of 1,000 requests. It resets on 1 January 2027 at 00:00 (Europe/Berlin).",` +
		`"type":"insufficient_quota","param":null,"code":"insufficient_quota"},"instance":"urn:mete:decision:` + decisionID.String() + `"}`
	if got := check(t, all["quota"]).GetDeniedResponse().GetBody(); got != want {
		t.Errorf("body\n got %s\nwant %s", got, want)
	}
}

// An app may bound what clients are told to wait; what RateLimit and the body say of the
// window stays true, and jitter never passes the bound.
func TestRetryAfter_C127_AtMost(t *testing.T) {
	t.Parallel()
	a := app()
	a.Refusal.Body = plan.BodyFull
	a.Headers.RateLimit = plan.Always
	a.Headers.RetryMost = time.Hour
	no := check(t, refusal(authz.QuotaExceeded, a, 0, monthly(t))).GetDeniedResponse()
	var body struct {
		RetryAfter int64 `json:"retry_after"`
		Details    struct{ ResetAt string }
	}
	if err := json.Unmarshal([]byte(no.GetBody()), &body); err != nil {
		t.Fatal(err)
	}
	if got := headerOf(t, no.GetHeaders(), "retry-after"); got != "3600" || body.RetryAfter != 3600 || body.Details.ResetAt != "2026-12-31T23:00:00.000Z" {
		t.Errorf("Retry-After %s, %s", got, no.GetBody())
	}
	if got := headerOf(t, no.GetHeaders(), "ratelimit"); got != `"monthly";r=0;t=1857600` {
		t.Errorf("RateLimit %s", got)
	}
	a.Headers.RetryJitter = 10 * time.Second
	seen := map[int]bool{}
	for range 300 {
		var n int
		if _, err := fmt.Sscan(headerOf(t, check(t, refusal(authz.QuotaExceeded, a, 0, monthly(t))).GetDeniedResponse().GetHeaders(), "retry-after"), &n); err != nil || n < 3590 || n > 3600 {
			t.Fatalf("Retry-After %d, %v, want 3590 to 3600", n, err)
		}
		seen[n] = true
	}
	if len(seen) < 3 {
		t.Errorf("jitter has made %d values", len(seen))
	}
	if got := headerOf(t, check(t, refusal(authz.RateLimited, a, 0, perSecond())).GetDeniedResponse().GetHeaders(), "retry-after"); len(got) > 2 {
		t.Errorf("a short wait became %s", got)
	}
}
