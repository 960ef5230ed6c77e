package envoy_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

const (
	ok        = ratelimitv3.RateLimitResponse_OK
	overLimit = ratelimitv3.RateLimitResponse_OVER_LIMIT
)

// counting is a decider with a number of units for each tenant, which really
// charges and gives back.
func counting(left map[string]int64) *counter {
	return &counter{left: left, taken: map[authz.ID]int64{}}
}

type counter struct {
	script

	left  map[string]int64
	taken map[authz.ID]int64
}

func (c *counter) Decide(ctx context.Context, now time.Time, req *authz.Request, d *authz.Decision) {
	c.answer = func(_ context.Context, req *authz.Request, d *authz.Decision) {
		tenant := strings.Clone(req.Tenant)
		n := max(req.Hits, 1)
		if req.CheckOnly {
			n = 0
		}
		st := authz.LimitState{
			Limit: quota("daily", 10, plan.DefaultUnit, plan.CalendarDay), Tenant: tenant, Leaf: true, Asked: max(req.Hits, 1), Looked: req.CheckOnly,
			Reset: 1500 * time.Millisecond, Window: 24 * time.Hour,
		}
		d.App, d.Tenant, d.Worst = app(), tenant, -1
		if c.left[tenant] < max(n, 1) {
			d.Outcome, d.Worst, d.RetryAfter, st.Refused = authz.QuotaExceeded, 0, st.Reset, true
		} else {
			d.Outcome = authz.Allowed
			c.left[tenant] -= n
			c.taken[d.ID] = n
		}
		st.Left = c.left[tenant]
		st.Used = st.Limit.Amount - st.Left
		d.Limits = append(d.Limits, st)
	}
	c.script.Decide(ctx, now, req, d)
}

func (c *counter) GiveBack(_ time.Time, d *authz.Decision) {
	c.left[d.Tenant] += c.taken[d.ID]
	delete(c.taken, d.ID)
}

func limit(t *testing.T, d envoy.Decider, in *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitResponse {
	t.Helper()
	_, conn := start(t, envoy.Options{Decider: d})
	r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// C046, each row on a limit with 2 left and with 0 left.
func TestHitsAddend(t *testing.T) {
	for name, tt := range map[string]struct {
		in        *ratelimitv3.RateLimitRequest
		with2     ratelimitv3.RateLimitResponse_Code
		leftAfter int64
		with0     ratelimitv3.RateLimitResponse_Code
	}{
		"absent or 0 is 1":              {limitRequest("edge", 0, descriptor("tenant", "a")), ok, 1, overLimit},
		"request level":                 {limitRequest("edge", 2, descriptor("tenant", "a")), ok, 0, overLimit},
		"request level 3, unset":        {limitRequest("edge", 3, descriptor("tenant", "a")), overLimit, 2, overLimit},
		"request level 3, descriptor 0": {limitRequest("edge", 3, withHits(descriptor("tenant", "a"), 0)), ok, 2, overLimit},
		"request level 3, descriptor 7": {limitRequest("edge", 3, withHits(descriptor("tenant", "a"), 7)), overLimit, 2, overLimit},
		"request level 3, descriptor 1": {limitRequest("edge", 3, withHits(descriptor("tenant", "a"), 1)), ok, 1, overLimit},
	} {
		t.Run(name, func(t *testing.T) {
			for _, left := range []int64{2, 0} {
				c := counting(map[string]int64{"a": left})
				r := limit(t, c, tt.in)
				want, after := tt.with2, tt.leftAfter
				if left == 0 {
					want, after = tt.with0, 0
				}
				if r.GetOverallCode() != want || r.GetStatuses()[0].GetCode() != want || c.left["a"] != after {
					t.Errorf("%d left: %v, %d left after, want %v, %d", left, r, c.left["a"], want, after)
				}
			}
		})
	}
	c := counting(map[string]int64{"a": 2})
	limit(t, c, limitRequest("edge", 3, withHits(descriptor("tenant", "a"), 0)))
	if got := c.requests(); !got[0].CheckOnly {
		t.Errorf("a descriptor of 0 hits decided as %+v", got[0])
	}
}

// When one descriptor is refused the others take nothing.
func TestDescriptorsAllOrNothing(t *testing.T) {
	c := counting(map[string]int64{"a": 5, "b": 0, "c": 5})
	r := limit(t, c, limitRequest("edge", 2, descriptor("tenant", "a"), descriptor("tenant", "b"), descriptor("other", "x"), descriptor("tenant", "c")))
	if r.GetOverallCode() != overLimit || len(r.GetStatuses()) != 4 {
		t.Fatalf("%v", r)
	}
	for i, want := range []ratelimitv3.RateLimitResponse_Code{ok, overLimit, ok, ok} {
		if got := r.GetStatuses()[i].GetCode(); got != want {
			t.Errorf("status %d is %v, want %v", i, got, want)
		}
	}
	if c.left["a"] != 5 || c.left["b"] != 0 || c.left["c"] != 5 {
		t.Errorf("left %v", c.left)
	}
	if got := r.GetStatuses()[0].GetLimitRemaining(); got != 5 {
		t.Errorf("tells %d remaining after giving back, want 5", got)
	}
	// What took the last unit gives it back, too; a check has nothing to give back.
	r = limit(t, c, limitRequest("edge", 1, withHits(descriptor("tenant", "a"), 5), descriptor("tenant", "b"), withHits(descriptor("tenant", "c"), 0)))
	for i, want := range []uint32{5, 0, 5} {
		if got := r.GetStatuses()[i].GetLimitRemaining(); got != want {
			t.Errorf("status %d tells %d remaining after giving back, want %d", i, got, want)
		}
	}
	r = limit(t, c, limitRequest("edge", 2, descriptor("tenant", "a"), descriptor("tenant", "b"), descriptor("other", "x"), descriptor("tenant", "c")))
	if r.GetStatuses()[2].GetCurrentLimit() != nil {
		t.Errorf("a descriptor without tenant has a limit: %v", r.GetStatuses()[2])
	}
}

func TestDescriptorsAdmitted(t *testing.T) {
	c := counting(map[string]int64{"a": 5})
	r := limit(t, c, limitRequest("edge", 2, descriptor("tenant", "a", "route", "upload"), descriptor("tenant", "a", "method", "GET", "path", "/x")))
	if r.GetOverallCode() != ok || c.left["a"] != 1 || r.GetStatuses()[1].GetLimitRemaining() != 1 {
		t.Errorf("%v, left %v", r, c.left)
	}
	if len(r.GetRawBody()) != 0 || len(r.GetResponseHeadersToAdd()) != 0 || len(r.GetRequestHeadersToAdd()) != 0 {
		t.Errorf("an admission says %v", r)
	}
	got := c.requests()
	if got[0].Domain != "edge" || got[0].Tenant != "a" || got[0].Route != "upload" || got[0].Hits != 2 || got[1].Method != http.MethodGet || got[1].Path != "/x" {
		t.Errorf("decided on %+v", got)
	}
	st := r.GetStatuses()[0]
	if l := st.GetCurrentLimit(); l.GetName() != "daily" || l.GetRequestsPerUnit() != 10 || l.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_DAY {
		t.Errorf("current limit %v", l)
	}
	if got := st.GetDurationUntilReset().AsDuration(); got != 2*time.Second {
		t.Errorf("reset %v, want whole seconds, rounded up", got)
	}
}

func header(r *ratelimitv3.RateLimitResponse, name string) string {
	for _, h := range r.GetResponseHeadersToAdd() {
		if h.GetKey() == name {
			return h.GetValue()
		}
	}
	return ""
}

func TestOverLimitAnswer(t *testing.T) {
	in := limitRequest("edge", 0, descriptor("tenant", "a"))
	r := limit(t, counting(nil), in)
	for name, want := range map[string]string{
		"retry-after": "2", "ratelimit": `"daily";r=0;t=2`, "ratelimit-policy": `"daily";q=10;w=86400`,
		"content-type": "application/json", "cache-control": "no-store", "x-envoy-ratelimited": "", "grpc-status": "",
	} {
		if got := header(r, name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if !strings.Contains(string(r.GetRawBody()), `"error":"quota_exceeded"`) {
		t.Errorf("body %s", r.GetRawBody())
	}
	for _, h := range r.GetResponseHeadersToAdd() {
		if len(h.GetRawValue()) > 0 {
			t.Errorf("%v has a raw value, which Envoy ignores", h)
		}
	}
	in.Descriptors[0] = descriptor("tenant", "a", "content_type", "application/grpc+proto")
	r = limit(t, counting(nil), in)
	if header(r, "grpc-status") != "8" || header(r, "grpc-status-details-bin") == "" || header(r, "content-type") != "" || !strings.HasPrefix(string(r.GetRawBody()), "The daily quota of a") {
		t.Errorf("gRPC: %v", r)
	}
}

// Outcomes other than admission and refusal (C117, C028).
func TestLimitOutcomes(t *testing.T) {
	in := limitRequest("edge", 0, descriptor("tenant", "a"))
	for o, want := range map[authz.Outcome]codes.Code{
		authz.Unavailable: codes.Unavailable, authz.NotReady: codes.Unavailable, authz.Undecided: codes.Internal,
	} {
		_, conn := start(t, envoy.Options{Decider: always(o)})
		if r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), in); status.Code(err) != want || r != nil {
			t.Errorf("%v: %v, %v, want %v", o, r, err, want)
		}
	}
	if r := limit(t, always(authz.NoApp), in); r.GetOverallCode() != ok || r.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Errorf("an unknown domain: %v", r)
	}
	if r := limit(t, always(authz.TenantUnknown), in); r.GetOverallCode() != overLimit {
		t.Errorf("an unknown tenant: %v", r)
	}
	d := always(authz.QuotaExceeded)
	for _, ds := range [][]string{{}, {"other", "x"}, {"tenant", ""}} {
		if r := limit(t, d, limitRequest("edge", 0, descriptor(ds...))); r.GetOverallCode() != ok || len(r.GetStatuses()) != 1 {
			t.Errorf("%q: %v", ds, r)
		}
	}
	if n := len(d.requests()); n != 0 {
		t.Errorf("decided %d times on nobody", n)
	}
}

// A later descriptor that cannot be decided gives back what earlier ones took.
func TestLimitErrorGivesBack(t *testing.T) {
	d := always(authz.Allowed)
	d.answer = func(_ context.Context, req *authz.Request, dec *authz.Decision) {
		dec.Outcome, dec.App, dec.Worst = authz.Allowed, app(), -1
		if req.Tenant == "b" {
			dec.Outcome = authz.Unavailable
		}
	}
	_, conn := start(t, envoy.Options{Decider: d})
	_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 0, descriptor("tenant", "a"), descriptor("tenant", "b")))
	if status.Code(err) != codes.Unavailable || d.givenBack() != 1 {
		t.Errorf("%v, given back %d", err, d.givenBack())
	}
}

// C027, C156, over the wire: of more descriptors than there may be none is counted, and
// the request is refused.
func TestLimitBounds(t *testing.T) {
	d := always(authz.Allowed)
	_, conn := start(t, envoy.Options{Decider: d})
	client := ratelimitv3.NewRateLimitServiceClient(conn)
	in := limitRequest("edge", 0)
	for range envoy.MaxDescriptors {
		in.Descriptors = append(in.Descriptors, descriptor("tenant", "a"))
	}
	r, err := client.ShouldRateLimit(t.Context(), in)
	if err != nil || len(r.GetStatuses()) != envoy.MaxDescriptors {
		t.Errorf("%d statuses, %v", len(r.GetStatuses()), err)
	}
	before := len(d.requests())
	in.Descriptors = append(in.Descriptors, descriptor("tenant", "a"))
	r, err = client.ShouldRateLimit(t.Context(), in)
	if err != nil || r.GetOverallCode() != ratelimitv3.RateLimitResponse_OVER_LIMIT || len(r.GetStatuses()) != envoy.MaxDescriptors+1 {
		t.Errorf("one more than the bound: %s, %d statuses, %v", r.GetOverallCode(), len(r.GetStatuses()), err)
	}
	if n := len(d.requests()); n != before {
		t.Errorf("counted %d beyond the bounds", n-before)
	}
	// What is long is decided like anything else (case C156).
	long := strings.Repeat("x", 1<<20)
	if _, err := client.ShouldRateLimit(t.Context(), limitRequest("edge", 0, descriptor("tenant", long))); err != nil {
		t.Errorf("%v", err)
	}
	if all := d.requests(); all[len(all)-1].Tenant != long {
		t.Error("a long name is cut")
	}
}

// Envoy's numbers have 32 bits; units are told only where they are exact.
func TestStatusUnits(t *testing.T) {
	big := rate("big", 5_000_000_000, time.Hour)
	odd := rate("odd", 5, 90*time.Second)
	unlimited := rate("unlimited", 0, time.Second)
	unlimited.Unlimited = true
	for _, tt := range []struct {
		limit  *plan.EffectiveLimit
		window time.Duration
		unit   ratelimitv3.RateLimitResponse_RateLimit_Unit
		per    uint32
		left   uint32
	}{
		{big, time.Hour, ratelimitv3.RateLimitResponse_RateLimit_HOUR, 4294967295, 4294967295},
		{odd, 90 * time.Second, ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, 5, 4294967295},
		{rate("s", 5, time.Second), time.Second, ratelimitv3.RateLimitResponse_RateLimit_SECOND, 5, 4294967295},
		{rate("m", 5, time.Minute), time.Minute, ratelimitv3.RateLimitResponse_RateLimit_MINUTE, 5, 4294967295},
		{quota("month", 5, "u", plan.CalendarMonth), 2678400 * time.Second, ratelimitv3.RateLimitResponse_RateLimit_MONTH, 5, 4294967295},
		{quota("billing", 5, "u", plan.CalendarBilling), 24 * time.Hour, ratelimitv3.RateLimitResponse_RateLimit_UNKNOWN, 5, 4294967295},
		{quota("tiles", 5, "u", plan.Every), 7 * 24 * time.Hour, ratelimitv3.RateLimitResponse_RateLimit_WEEK, 5, 4294967295},
		{unlimited, time.Second, 0, 0, 4294967295},
	} {
		d := always(authz.Allowed)
		d.answer = func(_ context.Context, _ *authz.Request, dec *authz.Decision) {
			dec.Outcome, dec.App, dec.Worst = authz.Allowed, app(), -1
			dec.Limits = append(dec.Limits, authz.LimitState{Limit: tt.limit, Left: 6_000_000_000, Reset: -1, Window: tt.window, Leaf: true})
		}
		st := limit(t, d, limitRequest("edge", 0, descriptor("tenant", "a"))).GetStatuses()[0]
		l := st.GetCurrentLimit()
		if l.GetUnit() != tt.unit || l.GetRequestsPerUnit() != tt.per || st.GetLimitRemaining() != tt.left || st.GetDurationUntilReset() != nil {
			t.Errorf("%s: %v", tt.limit.Name, st)
		}
		if tt.limit.Unlimited && l != nil {
			t.Errorf("an unlimited limit is told: %v", l)
		}
	}
}
