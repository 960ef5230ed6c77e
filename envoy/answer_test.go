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
	spb "google.golang.org/genproto/googleapis/rpc/status"

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
		"x-quota-state": "ok",
	} {
		if got := headerOf(t, ok.GetHeaders(), name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if want := []string{"x-mete-principal", "x-user"}; !slices.Equal(hyphened(ok.GetHeadersToRemove()), want) {
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
		"class": "people", "route": "upload", "reservation": "R-1",
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
	if want := []string{"x-mete-tenant", "x-mete-principal", "x-mete-class", "x-org"}; !slices.Equal(hyphened(ok.GetHeadersToRemove()), want) {
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
		b := envoy.Check(d, noon, url, grpc, envoy.PartitionKeys("k"), sealing("R-1"))
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

// hyphened are the names without those with underscores, which are always removed.
func hyphened(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return strings.Contains(name, "_") })
}
