package envoy_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// grpcStatus is what a gRPC caller makes of the refusal, as Envoy hands it on.
func grpcStatus(tb testing.TB, d *authz.Decision) *status.Status {
	tb.Helper()
	no := parse(tb, envoy.Check(d, noon, "", true, nil, sealing("R-1")), &authv3.CheckResponse{}).GetDeniedResponse()
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
		b := envoy.Check(refusal(o, app(), 0, l), noon, "", true, nil, sealing("R-1"))
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
		r := parse(t, envoy.Check(d, noon, "", true, nil, sealing("R-1")), &authv3.CheckResponse{}).GetDeniedResponse()
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
