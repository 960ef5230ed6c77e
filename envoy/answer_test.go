package envoy_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

func TestAdmitted(t *testing.T) {
	a := app()
	a.Identity = plan.Identity{
		Tenant:    []plan.Source{{Kind: plan.SourceAPIKey, Name: "x-api-key"}, {Kind: plan.SourceRequestHeader, Name: "x-org"}, {Kind: plan.SourceRequestHeader, Name: ":path"}},
		Principal: []plan.Source{{Kind: plan.SourceRequestHeader, Name: "x-user"}, {Kind: plan.SourceRequestHeader, Name: "x-org"}},
	}
	d := &authz.Decision{ID: decisionID, Outcome: authz.Allowed, App: a, Tenant: "org:acme", Class: "people", Route: "upload", Limits: free(t), Worst: -1}
	for i := range d.Limits {
		d.Limits[i].Asked, d.Limits[i].Tenant = 2, "org:acme"
	}
	r := check(t, d)
	if r.GetStatus() == nil || r.GetStatus().GetCode() != 0 || r.GetOkResponse() == nil {
		t.Fatalf("not an admission: %v", r)
	}
	ok := r.GetOkResponse()
	for name, want := range map[string]string{
		"x-mete-tenant": "org:acme", "x-mete-class": "people", "x-org": "org:acme", "x-quota-decision": decisionID.String(),
	} {
		if got := headerOf(t, ok.GetHeaders(), name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if want := []string{"x-mete-principal", "x-user"}; !slices.Equal(ok.GetHeadersToRemove(), want) {
		t.Errorf("removes %q, want %q", ok.GetHeadersToRemove(), want)
	}
	overwrites(t, ok.GetHeaders())
	overwrites(t, ok.GetResponseHeadersToAdd())
	if got, want := headerOf(t, ok.GetResponseHeadersToAdd(), "ratelimit"), `"per_second";r=9;t=1, "per_minute";r=299;t=1, "monthly";r=588;t=1857600`; got != want {
		t.Errorf("ratelimit %s, want %s", got, want)
	}
	if hasHeader(ok.GetResponseHeadersToAdd(), "retry-after") {
		t.Error("Retry-After on an admission")
	}
	meta := r.GetDynamicMetadata().AsMap()
	want := map[string]any{
		"v": "1", "decision": decisionID.String(), "outcome": "allowed", "app": "shop", "tenant": "org:acme",
		"class": "people", "route": "upload", "limits": "org:acme|monthly|2|2026-12",
	}
	if fmt.Sprint(meta) != fmt.Sprint(want) {
		t.Errorf("metadata %v, want %v", meta, want)
	}
}

// overwrites checks that each option replaces, in all readings of
// all versions of Envoy (C131).
func overwrites(tb testing.TB, options []*corev3.HeaderValueOption) {
	tb.Helper()
	for _, o := range options {
		//nolint:staticcheck // deprecated, but it is what Envoy 1.40 reads
		if o.GetAppend() == nil || o.GetAppend().GetValue() || o.GetAppendAction() != corev3.HeaderValueOption_OVERWRITE_IF_EXISTS_OR_ADD || o.GetKeepEmptyValue() {
			tb.Errorf("%v does not replace", o)
		}
		if len(o.GetHeader().GetRawValue()) > 0 {
			tb.Errorf("%v has a raw value, which Envoy sends empty", o)
		}
	}
}

// An anonymous caller's forged identity headers never reach the upstream (C028).
func TestAdmittedAnonymous(t *testing.T) {
	a := app()
	a.Identity.Tenant = []plan.Source{{Kind: plan.SourceRequestHeader, Name: "x-org"}}
	ok := check(t, &authz.Decision{Outcome: authz.Exempt, App: a, Worst: -1}).GetOkResponse()
	if want := []string{"x-mete-tenant", "x-mete-principal", "x-mete-class", "x-org"}; !slices.Equal(ok.GetHeadersToRemove(), want) {
		t.Errorf("removes %q, want %q", ok.GetHeadersToRemove(), want)
	}
	if len(ok.GetResponseHeadersToAdd()) != 0 {
		t.Errorf("adds %v", ok.GetResponseHeadersToAdd())
	}
}

// An identity that cannot be a header value is removed, not changed into another.
func TestAdmittedUncleanIdentity(t *testing.T) {
	for _, tenant := range []string{"a\r\nx-admin: 1", "a\x00", "caf\xe9", "a\x7f", " a", "a\t"} {
		r := check(t, &authz.Decision{Outcome: authz.Allowed, App: app(), Tenant: tenant, Worst: -1})
		if hasHeader(r.GetOkResponse().GetHeaders(), "x-mete-tenant") || !slices.Contains(r.GetOkResponse().GetHeadersToRemove(), "x-mete-tenant") {
			t.Errorf("%q: %v", tenant, r.GetOkResponse())
		}
	}
}

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
	r := parse(t, envoy.Check(d, noon, "text/html, Application/Problem+JSON;q=0.9", false, nil), &authv3.CheckResponse{})
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
	if m := r.GetDynamicMetadata().AsMap(); m["limits"] != nil || m["limit"] != "monthly" || m["node"] != "org:acme" {
		t.Errorf("metadata of a refusal: %v", m)
	}
}

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
	for want, d := range map[string]*authz.Decision{
		"The per_second rate limit of org:acme is reached: 10 requests in 1 second. Try again in 1 second.":                                             refusal(authz.RateLimited, app(), 0, perSecond()),
		"The per_minute rate limit of org:acme is reached: 3,000 requests in 1 minute. Try again in 61 seconds.":                                        refusal(authz.RateLimited, app(), 0, minute),
		"The monthly quota of org:acme has 2 of 1,000 requests left, and the request asks for 5. It resets on 1 January 2027 at 00:00 (Europe/Berlin).": refusal(authz.QuotaExceeded, app(), 0, over),
		"The gpus allocation of project:p has 4 of 100 gpus left, and the request asks for 8.":                                                          refusal(authz.QuotaExceeded, app(), 0, gpus),
		"The monthly quota of org:acme is used up. It resets on 1 January 2027 at 00:00 (Europe/Berlin).":                                               refusal(authz.QuotaExceeded, app(), 0, theirs),
		"The request asks for 5,000 requests, more than the whole per_second rate limit of org:acme: 10.":                                               refusal(authz.RequestTooLarge, app(), 0, big),
		"The monthly quota of org:acme cannot be checked at the moment.":                                                                                refusal(authz.Unavailable, app(), 0, monthly(t)),
		"The quota cannot be checked at the moment.":                                                                                                    refusal(authz.Unavailable, nil, -1),
		"The request carries no valid credential.":                                                                                                      refusal(authz.Unauthenticated, app(), -1),
		"The caller may not use this API.":                                                                                                              refusal(authz.TenantUnknown, app(), -1),
	} {
		var body struct{ Detail string }
		text := check(t, d).GetDeniedResponse().GetBody()
		if err := json.Unmarshal([]byte(text), &body); err != nil || body.Detail != want {
			t.Errorf("%v\n got %q\nwant %q", err, body.Detail, want)
		}
	}
}

// Figures of an ancestor that discloses names alone are nowhere (C35).
func TestDeniedHidden(t *testing.T) {
	l := monthly(t)
	l.Leaf, l.Tenant, l.Used, l.Left = false, "org:parent", 77777, 0
	hiding := *l.Limit
	hiding.Disclose, hiding.Amount = plan.DiscloseNames, 77778
	l.Limit = &hiding
	for _, form := range []plan.BodyForm{plan.BodyFull, plan.BodyEnvelope, plan.BodyShort, plan.BodyTemplate} {
		a := app()
		a.Refusal = plan.Refusal{Body: form, Template: "${amount}${used}${remaining}${message}"}
		a.Headers.XQuota, a.Headers.XRateLimit = true, plan.XDelta
		for _, grpc := range []bool{false, true} {
			b := envoy.Check(refusal(authz.QuotaExceeded, a, 0, l), noon, "", grpc, nil)
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

// grpcStatus is what a gRPC caller makes of the refusal, as Envoy hands it on.
func grpcStatus(tb testing.TB, d *authz.Decision) *status.Status {
	tb.Helper()
	no := parse(tb, envoy.Check(d, noon, "", true, nil), &authv3.CheckResponse{}).GetDeniedResponse()
	if hasHeader(no.GetHeaders(), "content-type") {
		tb.Error("a gRPC refusal has a content type of its own")
	}
	raw, err := base64.RawStdEncoding.DecodeString(headerOf(tb, no.GetHeaders(), "grpc-status-details-bin"))
	if err != nil {
		tb.Fatal(err)
	}
	st := parse(tb, raw, &spb.Status{})
	if got := headerOf(tb, no.GetHeaders(), "grpc-status"); got != fmt.Sprint(st.GetCode()) {
		tb.Errorf("grpc-status %s but code %d in the details: grpc-go reports INTERNAL", got, st.GetCode())
	}
	if no.GetBody() != st.GetMessage() {
		tb.Errorf("body %q, message %q", no.GetBody(), st.GetMessage())
	}
	return status.FromProto(st)
}

// C123: RESOURCE_EXHAUSTED with its details, and a pushback against retries.
func TestDeniedGRPC(t *testing.T) {
	a := app()
	a.Hosts = []string{"*.example.com", "api.example.com"}
	l := monthly(t)
	l.Plan = "free"
	d := refusal(authz.QuotaExceeded, a, 0, l)
	d.UpgradeURL = "https://app.example.com/billing"
	st := grpcStatus(t, d)
	if st.Code() != codes.ResourceExhausted || len(st.Details()) != 4 {
		t.Fatalf("%v with %d details", st, len(st.Details()))
	}
	const sentence = "The monthly quota of org:acme is used up: 1,000 of 1,000 requests. It resets on 1 January 2027 at 00:00 (Europe/Berlin)."
	for i, want := range []proto.Message{
		&errdetails.ErrorInfo{Reason: "QUOTA_EXCEEDED", Domain: "api.example.com", Metadata: map[string]string{
			"decision": decisionID.String(), "policy": "monthly", "scope": "org:acme", "limit": "1000", "used": "1000", "resets_at": "2026-12-31T23:00:00.000Z",
		}},
		&errdetails.QuotaFailure{Violations: []*errdetails.QuotaFailure_Violation{{
			Subject: "org:acme", Description: sentence, ApiService: "shop", QuotaMetric: "requests", QuotaId: "monthly",
			QuotaDimensions: map[string]string{"scope": "org:acme", "plan": "free"}, QuotaValue: 1000,
		}}},
		nil,
		&errdetails.Help{Links: []*errdetails.Help_Link{{Description: "Raise the limit", Url: d.UpgradeURL}}},
	} {
		if got, ok := st.Details()[i].(proto.Message); !ok || want != nil && !proto.Equal(got, want) {
			t.Errorf("detail %d\n got %v\nwant %v", i, got, want)
		}
	}
	if r, ok := st.Details()[2].(*errdetails.RetryInfo); !ok || r.GetRetryDelay().AsDuration() != 1857600*time.Second {
		t.Errorf("retry info %v", st.Details()[2])
	}
	pushback := func(l authz.LimitState, o authz.Outcome) string {
		b := envoy.Check(refusal(o, app(), 0, l), noon, "", true, nil)
		return headerOf(t, parse(t, b, &authv3.CheckResponse{}).GetDeniedResponse().GetHeaders(), "grpc-retry-pushback-ms")
	}
	if got := pushback(l, authz.QuotaExceeded); got != "-1" {
		t.Errorf("pushback of a month is %s, want -1", got)
	}
	if got := pushback(perSecond(), authz.RateLimited); got != "100" {
		t.Errorf("pushback of 100 ms is %s", got)
	}
	if got := pushback(perSecond(), authz.RequestTooLarge); got != "-1" {
		t.Errorf("pushback of a request that never fits is %s", got)
	}
}

// The details stay under what small peers take.
func TestDeniedGRPCIsBounded(t *testing.T) {
	var limits []authz.LimitState
	for i := range 50 {
		l := monthly(t)
		l.Tenant, l.Refused = strings.Repeat("é", 300)+fmt.Sprint(i), true
		limits = append(limits, l)
	}
	for name, tt := range map[string]struct {
		tenant, url string
		details     int
	}{
		"many":       {"org:acme", "https://example.com/more", 4},
		"long names": {strings.Repeat("é", 128), "https://example.com/more", 4},
		"not UTF-8":  {strings.Repeat("\xffa", 128), "https://example.com/more", 4},
		"long link":  {strings.Repeat("\xffa", 128), "https://example.com/" + strings.Repeat("x", 1980), 3},
	} {
		for i := range limits {
			limits[i].Tenant = tt.tenant
		}
		d := refusal(authz.QuotaExceeded, app(), 0, limits...)
		d.UpgradeURL = tt.url
		r := parse(t, envoy.Check(d, noon, "", true, nil), &authv3.CheckResponse{}).GetDeniedResponse()
		size := len("grpc-message") + 32
		for _, ch := range []byte(r.GetBody()) {
			if size++; ch < ' ' || ch > '~' || ch == '%' {
				size += 2 // Envoy writes it as %XX
			}
		}
		for _, h := range r.GetHeaders() {
			size += len(h.GetHeader().GetKey()) + len(h.GetHeader().GetValue()) + 32
		}
		if size > 8<<10 {
			t.Errorf("%s: %d bytes of metadata, want 8 KiB at most", name, size)
		}
		raw, err := base64.RawStdEncoding.DecodeString(headerOf(t, r.GetHeaders(), "grpc-status-details-bin"))
		if err != nil {
			t.Fatal(err)
		}
		st := parse(t, raw, &spb.Status{})
		if len(st.GetMessage()) > 200 || len(st.GetDetails()) != tt.details {
			t.Errorf("%s: message of %d bytes, %d details, want %d", name, len(st.GetMessage()), len(st.GetDetails()), tt.details)
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

func TestNegotiation(t *testing.T) {
	for ct, want := range map[string]bool{
		"application/grpc": true, "application/grpc+proto": true, "Application/GRPC": true, "application/grpc; charset=x": true,
		"application/grpc-web": false, "application/grpc-web+proto": false, "application/json": false, "": false,
	} {
		if envoy.IsGRPC(ct) != want {
			t.Errorf("IsGRPC(%q) = %v", ct, !want)
		}
	}
	for accept, want := range map[string]bool{
		"application/problem+json": true, "text/html, application/problem+json;q=0.5": true, "APPLICATION/PROBLEM+JSON": true,
		"application/problem+json;charset=utf-8;q=0": false, "application/problem+json;\tQ=0.000": false, "application/problem+json;q=0.05": true,
		"application/problem+json;q=0": false, "application/problem+json; q=0.0": false, "application/json": false, "*/*": false, "": false,
	} {
		if envoy.WantsProblem(accept) != want {
			t.Errorf("WantsProblem(%q) = %v", accept, !want)
		}
	}
}

func TestSmallWords(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 999999999999999: "999,999,999,999,999"} {
		if got := envoy.Thousands(n); got != want {
			t.Errorf("Thousands(%d) = %s", n, got)
		}
	}
	for d, want := range map[time.Duration]string{time.Second: "1 second", 90 * time.Second: "90 seconds", time.Hour: "1 hour", 48 * time.Hour: "2 days", 250 * time.Millisecond: "250 milliseconds", 1500: "1.5µs"} {
		if got := envoy.Span(d); got != want {
			t.Errorf("Span(%v) = %s, want %s", d, got, want)
		}
	}
	// What was only looked at is not charged, and must not be settled.
	if got := envoy.Charges([]authz.LimitState{{Limit: quota("a", 1, "u", plan.CalendarDay), Tenant: "x", Asked: 3, Looked: true}}); got != "" {
		t.Errorf("charges %s of a look", got)
	}
	if got, want := envoy.Charges([]authz.LimitState{{Limit: quota("a|b", 1, "u", plan.CalendarDay), Tenant: "x;y%", Asked: 3, WindowID: "w"}}), "x%3By%25|a%7Cb|3|w"; got != want {
		t.Errorf("charges %s, want %s", got, want)
	}
}

// FuzzAnswer: whatever is in a decision, Envoy can read the answer, no header holds
// a control character, and the body is JSON.
func FuzzAnswer(f *testing.F) {
	f.Add("org:acme", "monthly", "requests", "https://x", uint8(authz.QuotaExceeded), int64(5), int64(1), int64(1e9), uint8(0), true)
	f.Add("a\r\nb: c", "\x00", "\xff", "\n", uint8(authz.Allowed), int64(-1), int64(1)<<62, int64(-1), uint8(3), false)
	f.Fuzz(func(t *testing.T, tenant, name, unit, url string, outcome uint8, amount, left, wait int64, form uint8, grpc bool) {
		o := authz.Outcome(outcome) % (authz.NotReady + 1)
		l := quota(name, amount, unit, plan.CalendarMonth)
		l.Kind = plan.LimitKind(form/8%3 + 1)
		a := app()
		a.Name = "shop"
		a.Headers.XQuota, a.Headers.XRateLimit = true, plan.XEpoch
		a.Identity.Tenant = []plan.Source{{Kind: plan.SourceRequestHeader, Name: "x-org"}}
		a.Refusal = plan.Refusal{Body: plan.BodyForm(form % 4), Template: `{"a":"${message}${node}${limit}${upgrade_url}"}`}
		st := authz.LimitState{Limit: l, Tenant: tenant, Asked: left, Left: left, Used: amount, Reset: time.Duration(wait), ResetsAt: noon.Add(time.Duration(wait % 1e15)), WindowID: name, Leaf: form&4 == 0}
		d := refusal(o, a, 0, st)
		d.Tenant, d.Principal, d.Class, d.Route, d.UpgradeURL = tenant, name, unit, url, url
		b := envoy.Check(d, noon, url, grpc, envoy.PartitionKeys("k"))
		if len(b) == 0 {
			t.Fatal("an empty answer allows")
		}
		r := parse(t, b, &authv3.CheckResponse{})
		if (r.GetStatus().GetCode() == 0) != o.Admits() || (r.GetOkResponse() != nil) != o.Admits() || (r.GetDeniedResponse() != nil) == o.Admits() {
			t.Fatalf("%v answered by %v", o, r)
		}
		for _, hs := range [][]*corev3.HeaderValueOption{r.GetOkResponse().GetHeaders(), r.GetOkResponse().GetResponseHeadersToAdd(), r.GetDeniedResponse().GetHeaders()} {
			overwrites(t, hs)
			for _, h := range hs {
				if strings.ContainsFunc(h.GetHeader().GetValue(), func(c rune) bool { return c < 0x20 && c != '\t' || c == 0x7f }) {
					t.Errorf("%s has a control character: %q", h.GetHeader().GetKey(), h.GetHeader().GetValue())
				}
			}
		}
		if body := r.GetDeniedResponse().GetBody(); !o.Admits() && !grpc && !json.Valid([]byte(body)) {
			t.Errorf("not JSON: %s", body)
		}
		if !o.Admits() && grpc {
			raw, err := base64.RawStdEncoding.DecodeString(headerOf(t, r.GetDeniedResponse().GetHeaders(), "grpc-status-details-bin"))
			if err != nil {
				t.Fatal(err)
			}
			for _, detail := range parse(t, raw, &spb.Status{}).GetDetails() {
				if _, err := detail.UnmarshalNew(); err != nil {
					t.Errorf("detail %s: %v", detail.GetTypeUrl(), err)
				}
			}
		}
	})
}
