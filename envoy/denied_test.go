package envoy_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

// Each outcome has its own answer, and none is empty (C117, A60).
func TestDeniedStatuses(t *testing.T) {
	for o, want := range map[authz.Outcome]struct {
		http int
		word string
		grpc codes.Code
	}{
		authz.RateLimited:     {429, "rate_limited", codes.ResourceExhausted},
		authz.QuotaExceeded:   {429, "quota_exceeded", codes.ResourceExhausted},
		authz.RequestTooLarge: {429, "request_too_large", codes.ResourceExhausted},
		authz.Unauthenticated: {401, "unauthenticated", codes.Unauthenticated},
		authz.TenantUnknown:   {403, "tenant_unknown", codes.PermissionDenied},
		authz.Unavailable:     {503, "quota_unavailable", codes.Unavailable},
	} {
		d := refusal(o, app(), -1)
		r := check(t, d)
		if c := r.GetStatus().GetCode(); c != 7 && c != 8 {
			t.Errorf("%v: status %d", o, c)
		}
		no := r.GetDeniedResponse()
		if int(no.GetStatus().GetCode()) != want.http {
			t.Errorf("%v: HTTP %d, want %d", o, no.GetStatus().GetCode(), want.http)
		}
		var body map[string]any
		if err := json.Unmarshal([]byte(no.GetBody()), &body); err != nil {
			t.Fatalf("%v: %v in %s", o, err, no.GetBody())
		}
		if body["error"] != want.word || body["status"] != float64(want.http) {
			t.Errorf("%v: body %v", o, body)
		}
		if headerOf(t, no.GetHeaders(), "cache-control") != "no-store" || headerOf(t, no.GetHeaders(), "content-type") != "application/json" {
			t.Errorf("%v: headers %v", o, no.GetHeaders())
		}
		if hasHeader(no.GetHeaders(), "www-authenticate") != (want.http == 401) {
			t.Errorf("%v: www-authenticate", o)
		}
		if hasHeader(no.GetHeaders(), "x-envoy-ratelimited") != (want.http == 429 || want.http == 503) {
			t.Errorf("%v: x-envoy-ratelimited", o)
		}
		if got := grpcStatus(t, d); got.Code() != want.grpc {
			t.Errorf("%v: gRPC %v, want %v", o, got.Code(), want.grpc)
		}
	}
}

// A whole refusal, byte for byte, with the quota among its details (C46).
func TestDeniedFull(t *testing.T) {
	a := app()
	a.Headers.XQuota = true
	d := refusal(authz.QuotaExceeded, a, 0, monthly(t))
	d.UpgradeURL = "https://app.example.com/billing"
	r := parse(t, envoy.Check(d, noon, "text/html, Application/Problem+JSON;q=0.9", false, nil, sealing("R-1")), &authv3.CheckResponse{})
	no := r.GetDeniedResponse()
	for name, want := range map[string]string{
		"content-type": "application/problem+json", "cache-control": "no-store", "retry-after": "1857600",
		"ratelimit-policy": `"monthly";q=1000;w=2678400`, "ratelimit": `"monthly";r=0;t=1857600`,
		"x-quota-limit": "1000", "x-quota-used": "1000", "x-quota-remaining": "0", "x-quota-reset": "2026-12-31T23:00:00.000Z",
		"x-envoy-ratelimited": "true",
	} {
		if got := headerOf(t, no.GetHeaders(), name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	overwrites(t, no.GetHeaders())
	want := `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,` +
		`"detail":"The monthly quota of org:acme is used up: 1,000 of 1,000 requests. It resets on 1 January 2027 at 00:00 (Europe/Berlin).",` +
		`"instance":"urn:mete:decision:` + decisionID.String() + `",` +
		`"violated-policies":["monthly"],` +
		`"error":"quota_exceeded","retry_after":1857600,` +
		`"success":false,"code":"QUOTA_EXCEEDED","message":"monthly quota reached (1,000/1,000); resets 2027-01-01",` +
		`"details":{"quotaType":"monthly","limit":1000,"used":1000,"resetAt":"2026-12-31T23:00:00.000Z","upgradeUrl":"https://app.example.com/billing",` +
		`"quota":{"type":"monthly","limit":1000,"used":1000,"remaining":0,"resetAt":"2026-12-31T23:00:00.000Z"}},` +
		`"limits":[{"name":"monthly","kind":"quota","unit":"requests","scope":"org:acme","limit":1000,"used":1000,` +
		`"reserved":0,"remaining":0,"asked":1,"resets_at_ms":1798758000000}]}`
	if no.GetBody() != want {
		t.Errorf("body\n got %s\nwant %s", no.GetBody(), want)
	}
	if m := r.GetDynamicMetadata().AsMap(); m["reservation"] != nil || m["limit"] != "monthly" || m["node"] != "org:acme" {
		t.Errorf("metadata of a refusal: %v", m)
	}
}

// Figures of an ancestor that discloses names alone are nowhere (C35).
func TestDeniedHidden(t *testing.T) {
	l := monthly(t)
	l.Leaf, l.Tenant, l.Used, l.Left = false, "org:parent", 77777, 0
	hiding := *l.Limit
	hiding.Disclose, hiding.Amount = plan.DiscloseNames, 77778
	l.Limit = &hiding
	for _, form := range []plan.BodyForm{plan.BodyFull, plan.BodyEnvelope, plan.BodyShort, plan.BodyOpenAI, plan.BodyTemplate} {
		a := app()
		a.Refusal = plan.Refusal{Body: form, Template: "${amount}${used}${remaining}${message}"}
		a.Headers.XQuota, a.Headers.XRateLimit = true, plan.XDelta
		for _, grpc := range []bool{false, true} {
			b := envoy.Check(refusal(authz.QuotaExceeded, a, 0, l), noon, "", grpc, nil, sealing("R-1"))
			r := parse(t, b, &authv3.CheckResponse{})
			text := strings.ReplaceAll(r.String(), ",", "")
			if d := headerOf(t, r.GetDeniedResponse().GetHeaders(), "grpc-status-details-bin"); d != "" {
				raw, err := base64.RawStdEncoding.DecodeString(d)
				if err != nil {
					t.Fatal(err)
				}
				text += parse(t, raw, &spb.Status{}).String()
			}
			if strings.Contains(text, "7777") {
				t.Errorf("form %v, gRPC %v tells figures: %s", form, grpc, text)
			}
		}
	}
}

// Every violated limit is told, the one with the longest wait first.
func TestDeniedSeveral(t *testing.T) {
	never := perSecond()
	never.Limit, never.Reset, never.Refused = rate("never", 1, time.Second), -1, true
	second, q, room := perSecond(), monthly(t), perSecond()
	second.Refused = true
	room.Limit = rate("room", 5, time.Second)
	d := refusal(authz.QuotaExceeded, app(), 2, second, room, q, never)
	var body struct {
		Violated []string `json:"violated-policies"`
		Limits   []struct{ Name string }
	}
	if err := json.Unmarshal([]byte(check(t, d).GetDeniedResponse().GetBody()), &body); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(body.Violated); got != "[monthly never per_second]" {
		t.Errorf("violated %s", got)
	}
	if got := fmt.Sprint(body.Limits); got != "[{monthly} {never} {per_second}]" {
		t.Errorf("limits %s", got)
	}
}

// C127, C128: the wait is rounded up, at least 1, and jitter only adds.
func TestRetryAfter(t *testing.T) {
	for wait, want := range map[time.Duration]string{
		50 * time.Millisecond: "1", 59001 * time.Millisecond: "60", time.Millisecond: "1", time.Nanosecond: "1", 2 * time.Second: "2", 0: "",
	} {
		l := perSecond()
		l.Reset = wait
		if got := headerOf(t, check(t, refusal(authz.RateLimited, app(), 0, l)).GetDeniedResponse().GetHeaders(), "retry-after"); got != want {
			t.Errorf("wait %v: Retry-After %q, want %q", wait, got, want)
		}
	}
	a := app()
	a.Headers.RetryJitter = 10 * time.Second
	for range 100 {
		l := perSecond()
		l.Reset = 5 * time.Second
		var n int
		if _, err := fmt.Sscan(headerOf(t, check(t, refusal(authz.RateLimited, a, 0, l)).GetDeniedResponse().GetHeaders(), "retry-after"), &n); err != nil || n < 5 || n > 15 {
			t.Fatalf("Retry-After %d, %v, want 5 to 15", n, err)
		}
	}
}
