package differential_test

import (
	"strings"
	"testing"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
)

// The other service answers with statuses and no more.
func refusedReads(t *testing.T) {
	for settings, want := range map[string]string{
		"": "content-type cache-control retry-after ratelimit-policy ratelimit",
		`{refusal: {body: template, template: "", content_type: text/plain}, headers: {ratelimit: never}}`: "content-type cache-control retry-after",
	} {
		s := newSides(t, settings, &rule{key: "org", limit: per(0, hour)}, &rule{key: "ip", limit: per(1, minute)})
		ask := func() *rls.RateLimitResponse {
			out, err := s.here.client.ShouldRateLimit(t.Context(), one("ip", "a").wire())
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		ask()
		out := ask()
		var names []string
		for _, h := range out.GetResponseHeadersToAdd() {
			names = append(names, h.GetKey())
		}
		if got := strings.Join(names, " "); got != want || (len(out.GetRawBody()) > 0) != (settings == "") || out.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT {
			t.Errorf("%s: %v with %q and body %q, want %q", settings, out.GetOverallCode(), got, out.GetRawBody(), want)
		}
	}
}

// What is as large as it may be is counted.
func bounds(t *testing.T) {
	s := newSides(t, "", &rule{key: "org", limit: per(1, hour)})
	for _, tt := range []struct {
		descriptors, entries, length int
		want                         rls.RateLimitResponse_Code
	}{
		{1000, 1, 1, rls.RateLimitResponse_OK},
		{1001, 1, 1, rls.RateLimitResponse_OVER_LIMIT},
		{1, 64, 1, rls.RateLimitResponse_OK},
		{1, 65, 1, rls.RateLimitResponse_OVER_LIMIT},
		{1, 1, 64 << 10, rls.RateLimitResponse_OK},
		{1, 1, 64<<10 + 1, rls.RateLimitResponse_OVER_LIMIT},
	} {
		d := &ratelimitcommonv3.RateLimitDescriptor{}
		for range tt.entries {
			d.Entries = append(d.Entries, &ratelimitcommonv3.RateLimitDescriptor_Entry{Key: "none", Value: strings.Repeat("x", tt.length)})
		}
		in := &rls.RateLimitRequest{Domain: "edge"}
		for range tt.descriptors {
			in.Descriptors = append(in.Descriptors, d)
		}
		if out, err := s.here.client.ShouldRateLimit(t.Context(), in); err != nil || len(out.GetStatuses()) != tt.descriptors || out.GetOverallCode() != tt.want {
			t.Errorf("%+v: %s, %d statuses, %v", tt, out.GetOverallCode(), len(out.GetStatuses()), err)
		}
	}
}
