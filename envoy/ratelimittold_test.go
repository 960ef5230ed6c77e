package envoy_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// headers are all headers of an answer, each of which must be there once.
func headers(tb testing.TB, r *ratelimitv3.RateLimitResponse) map[string]string {
	tb.Helper()
	all := map[string]string{}
	for _, h := range r.GetResponseHeadersToAdd() {
		if _, again := all[h.GetKey()]; again {
			tb.Errorf("%s is there twice", h.GetKey())
		}
		if strings.ContainsAny(h.GetValue(), "\r\n\x00") || len(h.GetRawValue()) > 0 {
			tb.Errorf("%q", h)
		}
		all[h.GetKey()] = h.GetValue()
	}
	if len(r.GetRequestHeadersToAdd()) > 0 {
		tb.Errorf("the upstream gets %v", r.GetRequestHeadersToAdd())
	}
	return all
}

// Headers of an admission come from the service (real-configs 31), as the domain says.
func TestCountedHeaders_P72_C131_OnAdmission(t *testing.T) {
	t.Parallel()
	in := limitRequest("edge", 0, descriptor("ip", "1"), descriptor("user", "ann"), descriptor("client", "billing"))
	both := map[string]string{
		"ratelimit-policy": `"per_minute";q=3;w=60, "per_user";q=10`, "ratelimit": `"per_minute";r=2;t=2, "per_user";r=9;t=2`,
	}
	for settings, want := range map[string]map[string]string{
		"":                                     both,
		"mete: {headers: {ratelimit: always}}": both,
		"mete: {headers: {ratelimit: never}}":  {},
		"mete: {headers: {ratelimit: denied}}": {},
		"mete: {headers: {ratelimit: near}}":   {},
		"mete: {shadow_mode: true}":            {},
		"mete: {headers: {ratelimit: never, x_ratelimit: delta}}":     {"x-ratelimit-limit": "3", "x-ratelimit-remaining": "2", "x-ratelimit-reset": "2"},
		"mete: {headers: {ratelimit_name: left, policy_name: right}}": {"right": both["ratelimit-policy"], "left": both["ratelimit"]},
	} {
		r := limit(t, tallying(t, edgeRules+settings+"\n", nil), in)
		if got := headers(t, r); codesOf(r) != "OK OK OK OK" || !reflect.DeepEqual(got, want) || len(r.GetRawBody()) != 0 {
			t.Errorf("%q: %v, want %v", settings, got, want)
		}
	}
	// Beside an app's descriptor they are the domain's alone: of the app ext_authz tells.
	r := limit(t, tallying(t, edgeRules, map[string]int64{"a": 3}), limitRequest("edge", 0, descriptor("tenant", "a"), descriptor("ip", "1")))
	if got := headers(t, r); codesOf(r) != "OK OK OK" || got["ratelimit"] != `"per_minute";r=2;t=2` {
		t.Errorf("%v", r)
	}
}

// A rule on trial is none of the clients' business.
func TestCountedHeaders_P1_HidesShadows(t *testing.T) {
	t.Parallel()
	c := tallying(t, `
domain: edge
descriptors:
  - {key: ip, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: user, rate_limit: {name: per_user, unit: minute, requests_per_unit: 10}}
`, nil)
	r := limit(t, c, limitRequest("edge", 0, descriptor("ip", "1"), descriptor("user", "ann")))
	if got := headers(t, r)["ratelimit"]; got != `"per_user";r=9;t=2` || r.GetStatuses()[0].GetCurrentLimit() == nil {
		t.Errorf("%v", r)
	}
}

// Limits of one name are told apart by their counters; a counter is told once, as it is
// in the end, and of very many some, the refusing one among them.
func TestCountedHeaders_C131_EachCounterOnce(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, nil)
	options := envoy.Options{Decider: c, PartitionSecret: []byte("secret")}
	_, conn := start(t, options)
	client := ratelimitv3.NewRateLimitServiceClient(conn)
	ask := func(in *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitResponse {
		t.Helper()
		r, err := client.ShouldRateLimit(t.Context(), in)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := ask(limitRequest("edge", 0, descriptor("ip", "1"), descriptor("ip", "1"), descriptor("ip", "2")))
	state := headers(t, r)["ratelimit"]
	wellFormed(t, state)
	parts := strings.Split(state, ", ")
	if codesOf(r) != "OK OK OK OK" || len(parts) != 2 || !strings.HasPrefix(parts[0], `"per_minute";r=1;t=2;pk=:`) || !strings.HasPrefix(parts[1], `"per_minute";r=2;t=2;pk=:`) || parts[0][len(`"per_minute";r=1`):] == parts[1][len(`"per_minute";r=1`):] {
		t.Errorf("%q", state)
	}
	many := limitRequest("edge", 0)
	for i := range 100 {
		many.Descriptors = append(many.Descriptors, descriptor("ip", fmt.Sprint(i)))
	}
	many.Descriptors[99] = withHits(many.GetDescriptors()[99], 4)
	r = ask(many)
	state = headers(t, r)["ratelimit"]
	if n := strings.Count(state, "per_minute"); r.GetOverallCode() != overLimit || n != 32 || len(r.GetStatuses()) != 100 || !strings.Contains(string(r.GetRawBody()), `"asked":4`) {
		t.Errorf("%d limits of %s, body %s", n, state, r.GetRawBody())
	}
}

const keyRules = `
domain: edge
mete: {refusal: {body: full}}
descriptors:
  - key: api_key
    rate_limit: {unit: minute, requests_per_unit: 2}
  - key: quota
    rate_limit: {name: monthly, unit: month, requests_per_unit: 1}
`

// A refusal has headers and a body as the domain says. What Envoy has read from the
// request may be an API key, so the answer does not say it.
func TestCountedRefusal_P13_C44_AnswersLikeAnApp(t *testing.T) {
	t.Parallel()
	c := tallying(t, keyRules, nil)
	var told []string
	_, conn := start(t, envoy.Options{Decider: c, OnRefused: func(_ context.Context, req *authz.Request, d *authz.Decision) {
		told = append(told, fmt.Sprintf("%s %s %+v", req.Domain, d.Outcome.Word(), d.Limits[d.Worst].Tenant))
	}})
	in := limitRequest("edge", 3, descriptor("api_key", "mk_secret"), descriptor("content_type", "text/plain", "accept", "application/problem+json"))
	r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), in)
	if err != nil || codesOf(r) != "OVER_LIMIT OVER_LIMIT OK" {
		t.Fatalf("%v, %v", r, err)
	}
	want := map[string]string{
		"content-type": "application/problem+json", "cache-control": "no-store", "retry-after": "2",
		"ratelimit": `"per_minute";r=2;t=2`, "ratelimit-policy": `"per_minute";q=2;w=60`,
	}
	if got := headers(t, r); !reflect.DeepEqual(got, want) {
		t.Errorf("headers %v\nwant    %v", got, want)
	}
	var body map[string]any
	if err := json.Unmarshal(r.GetRawBody(), &body); err != nil || body["status"] != 429.0 || body["error"] != "rate_limited" || body["retry_after"] != 2.0 {
		t.Errorf("%v, body %s", err, r.GetRawBody())
	}
	if got := body["detail"]; got != "The per_minute rate limit of edge is reached: 2 requests in 1 minute. Try again in 2 seconds." {
		t.Errorf("says %v", got)
	}
	if strings.Contains(r.String(), "secret") || strings.Join(told, "") != "edge rate_limited edge" {
		t.Errorf("told %q and %v", told, r)
	}
}

// Each form of a body, and gRPC's, chosen by what any descriptor says.
func TestCountedRefusal_C44_Negotiates(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ settings, contentType, want, starts string }{
		{"", "", "application/json", `{"type":`},
		{"mete: {refusal: {body: short}}\n", "", "application/json", `{"error":"rate_limited","retry_after":2}`},
		{"mete: {refusal: {body: template, template: 'slow down, ${limit}', content_type: text/plain}}\n", "", "text/plain", "slow down, per_minute"},
		{"", "application/grpc", "", "The per_minute rate limit of edge is reached"},
	} {
		in := limitRequest("edge", 4, descriptor("ip", "1"))
		if tt.contentType != "" {
			in.Descriptors = append(in.Descriptors, descriptor("content_type", tt.contentType))
		}
		r := limit(t, tallying(t, edgeRules+tt.settings, nil), in)
		got := headers(t, r)
		if got["content-type"] != tt.want || !strings.HasPrefix(string(r.GetRawBody()), tt.starts) || got["x-envoy-ratelimited"] != "" {
			t.Errorf("%+v: %v, body %s", tt, got, r.GetRawBody())
		}
		if tt.contentType == "" {
			continue
		}
		if got["grpc-status"] != "8" || got["grpc-retry-pushback-ms"] != "1500" || got["grpc-status-details-bin"] == "" {
			t.Errorf("gRPC: %v", got)
		}
	}
}

const describedRules = `
domain: edge
descriptors:
  - key: ip
    rate_limit: {name: per_ip, unit: minute, requests_per_unit: 3}
    metadata: {pool: slow, weight: 1.5, tags: [a, true, null], deep: {x: 1}}
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 10}}
  - {key: bare, metadata: {note: none}}
`

// P15: metadata of the rules that matched, in their order, whatever the answer.
func TestCountedMetadata_P15(t *testing.T) {
	t.Parallel()
	described := []any{
		map[string]any{"pool": "slow", "weight": 1.5, "tags": []any{"a", true, nil}, "deep": map[string]any{"x": 1.0}}, map[string]any{"note": "none"},
	}
	c := tallying(t, describedRules, map[string]int64{"a": 9})
	c.token = "R-7"
	r := limit(t, c, limitRequest("edge", 2, descriptor("ip", "1"), descriptor("user", "ann"), descriptor("bare", "x")))
	want := map[string]any{"domain": "edge", "descriptors": described, "limit": "per_ip", "remaining": 1.0}
	if got := r.GetDynamicMetadata().AsMap(); codesOf(r) != "OK OK OK OK" || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	r = limit(t, c, limitRequest("edge", 2, descriptor("ip", "1"), descriptor("bare", "x")))
	if got := r.GetDynamicMetadata().AsMap(); r.GetOverallCode() != overLimit || !reflect.DeepEqual(got, want) {
		t.Errorf("over: %v, want %v", got, want)
	}
	// One struct with what an app's decision leaves.
	r = limit(t, c, limitRequest("edge", 0, descriptor("tenant", "a"), descriptor("bare", "x")))
	got := r.GetDynamicMetadata().AsMap()
	if got["reservation"] != "R-7" || got["tenant"] != "a" || got["outcome"] != "allowed" || got["domain"] != "edge" || !reflect.DeepEqual(got["descriptors"], described[1:]) || got["limit"] != nil {
		t.Errorf("both: %v", got)
	}
	// What refuses must leave no reservation, be it the app or a rule.
	r = limit(t, c, limitRequest("edge", 2, descriptor("tenant", "a"), descriptor("ip", "1")))
	if got = r.GetDynamicMetadata().AsMap(); r.GetOverallCode() != overLimit || got["reservation"] != nil || got["domain"] != "edge" {
		t.Errorf("both, over: %v", got)
	}
	for _, in := range []*ratelimitv3.RateLimitRequest{limitRequest("edge", 0, descriptor("user", "ann")), limitRequest("edge", 20, descriptor("user", "ann"))} {
		if r = limit(t, c, in); r.GetDynamicMetadata() != nil {
			t.Errorf("nothing to tell: %v", r)
		}
	}
}

// The details of a gRPC refusal name the domain's limit.
func TestCountedRefusal_C44_GRPCDetails(t *testing.T) {
	t.Parallel()
	c := tallying(t, keyRules, nil)
	in := limitRequest("edge", 0, descriptor("quota", "x"), descriptor("content_type", "application/grpc"))
	limit(t, c, in)
	c.counts = func(ctx context.Context, asks []authz.DescriptorAsk, onlyLook bool, n *authz.Count) {
		c.tally(ctx, asks, onlyLook, n)
		n.Outcome = authz.QuotaExceeded
		st := &n.Items[0].State
		st.Used, st.ResetsAt, st.Reset = 1, noon.Add(time.Hour), time.Hour
		n.RetryAfter = time.Hour
	}
	r := limit(t, c, in)
	details := statusDetails(t, headers(t, r)["grpc-status-details-bin"])
	found := 0
	for _, d := range details.Details() {
		switch d := d.(type) {
		case *errdetails.QuotaFailure:
			v := d.GetViolations()
			if len(v) == 1 && v[0].GetSubject() == "edge" && v[0].GetQuotaId() == "monthly" && v[0].GetQuotaValue() == 1 {
				found++
			}
		case *errdetails.RetryInfo:
			if d.GetRetryDelay().AsDuration() == time.Hour {
				found++
			}
		}
	}
	if found != 2 || header(r, "retry-after") != "3600" || header(r, "grpc-retry-pushback-ms") != "-1" {
		t.Errorf("%v, details %v", r, details)
	}
}

// statusDetails reads grpc-status-details-bin.
func statusDetails(tb testing.TB, value string) *status.Status {
	tb.Helper()
	raw, err := base64.RawStdEncoding.DecodeString(value)
	if err != nil {
		tb.Fatal(err)
	}
	return status.FromProto(parse(tb, raw, &spb.Status{}))
}
