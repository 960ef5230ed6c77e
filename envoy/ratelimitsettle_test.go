package envoy_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	rlsdesc "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

func refunding(d *rlsdesc.RateLimitDescriptor) *rlsdesc.RateLimitDescriptor {
	d.IsNegativeHits = true
	return d
}

// P15: an admission by RLS carries the same metadata as one by ext_authz, over all of
// its descriptors (S39). A refusal carries none, since it would come back with the end
// of the refused request.
func TestLimitMetadata_P15_S39(t *testing.T) {
	t.Parallel()
	d := always(authz.Allowed)
	d.token = "R-9"
	d.answer = func(_ context.Context, req *authz.Request, dec *authz.Decision) {
		dec.Outcome, dec.App, dec.Worst = authz.Grace, app(), -1
		dec.ID, dec.Tenant, dec.Route = decisionID, "org:acme", "upload"
		if req.Tenant == "b" {
			dec.ID = authz.ID{7}
		}
		if req.Tenant == "refused" {
			dec.Outcome = authz.QuotaExceeded
		}
	}
	r := limit(t, d, limitRequest("edge", 0, descriptor("other", "x"), descriptor("tenant", "a"), descriptor("tenant", "b")))
	want := map[string]any{
		"v": "1", "decision": decisionID.String(), "outcome": "grace", "app": "shop", "tenant": "org:acme", "route": "upload", "reservation": "R-9",
	}
	if got := r.GetDynamicMetadata().AsMap(); fmt.Sprint(got) != fmt.Sprint(want) || len(r.GetStatuses()) != 3 {
		t.Errorf("%v, want metadata %v", r, want)
	}
	if len(d.seals) != 1 || !slices.Equal(d.seals[0], []authz.ID{decisionID, {7}}) {
		t.Errorf("sealed %v", d.seals)
	}
	r = limit(t, d, limitRequest("edge", 0, descriptor("tenant", "a"), descriptor("tenant", "refused")))
	if r.GetOverallCode() != overLimit || r.GetDynamicMetadata() != nil || len(d.seals) != 1 {
		t.Errorf("a refusal: %v, sealed %v", r, d.seals)
	}
	// Nobody was decided on, or nothing was charged: there is nothing to settle.
	if r = limit(t, d, limitRequest("edge", 0, descriptor("other", "x"))); r.GetDynamicMetadata() != nil {
		t.Errorf("nobody: %v", r)
	}
	unknown := &script{answer: func(_ context.Context, _ *authz.Request, dec *authz.Decision) {
		dec.Outcome, dec.Worst = authz.NoApp, -1
	}}
	if r = limit(t, unknown, limitRequest("edge", 0, descriptor("tenant", "a"))); r.GetDynamicMetadata() != nil {
		t.Errorf("an unknown domain: %v", r)
	}
	d.token = ""
	if r = limit(t, d, limitRequest("edge", 0, descriptor("tenant", "a"))); r.GetDynamicMetadata().AsMap()["reservation"] != nil || r.GetDynamicMetadata().AsMap()["app"] != "shop" {
		t.Errorf("nothing reserved: %v", r)
	}
}

// A process that has just begun knows no key yet: what came too early waits.
func TestLimitSettles_P15_A26_WaitsUntilItCanBeSettled(t *testing.T) {
	t.Parallel()
	set := &settler{}
	settling := make(chan struct{})
	_, conn := start(t, envoy.Options{Decider: always(authz.Allowed), Settler: set, Settling: settling})
	done := make(chan error, 1)
	go func() {
		_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(),
			limitRequest("edge", 0, withHits(descriptor("reservation", "R-1"), 7)))
		done <- err
	}()
	select {
	case err := <-done:
		t.Fatalf("answered %v before anything can be settled", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(settling)
	if err := <-done; err != nil || len(set.tokens()) != 1 {
		t.Errorf("%v, settled %q", err, set.tokens())
	}
}

// P15, P64: a descriptor with a reservation says what was used, or what of it is given
// back; it asks for nothing and is never refused.
func TestLimitSettles_P15_P64_P65(t *testing.T) {
	t.Parallel()
	set := &settler{}
	c := counting(map[string]int64{"a": 5})
	s, conn := start(t, envoy.Options{Decider: c, Settler: set})
	r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 3,
		withHits(descriptor("reservation", "R-1"), 731),
		descriptor("tenant", "a"),
		refunding(withHits(descriptor("reservation", "R-2", "unit", "tokens"), 0)),
		withHits(descriptor("tenant", "a", "unit", "tokens", "reservation", "R-3"), math.MaxUint64),
	))
	if err != nil || r.GetOverallCode() != ok || len(r.GetStatuses()) != 4 {
		t.Fatalf("%v, %v", r, err)
	}
	for i, st := range r.GetStatuses() {
		if st.GetCode() != ok || i != 1 && st.GetCurrentLimit() != nil {
			t.Errorf("status %d: %v", i, st)
		}
	}
	want := []settlement{
		{token: "R-1", n: 731},
		{token: "R-2", unit: "tokens", n: 0, giveBack: true},
		{token: "R-3", unit: "tokens", n: plan.MaxAmount},
	}
	if got := set.settled(); !slices.Equal(got, want) {
		t.Errorf("settled %+v, want %+v", got, want)
	}
	if c.left["a"] != 2 || len(c.requests()) != 1 {
		t.Errorf("left %v, decided %+v", c.left, c.requests())
	}
	if st := s.Stats(); st.Settlements[authz.SettledLess] != 3 || st.Unnumbered+st.Unreserved != 0 || st.Descriptors[authz.Allowed] != 1 {
		t.Errorf("%+v", st)
	}
}

// Without a number of its own a settlement settles nothing: 1, or the request's number,
// would be made up. Neither does an empty reservation, which a route's default_value
// may be; above all it is no request of the tenant beside it.
func TestLimitSettles_P15_NothingToSettle(t *testing.T) {
	t.Parallel()
	set := &settler{}
	d := always(authz.QuotaExceeded)
	s, conn := start(t, envoy.Options{Decider: d, Settler: set})
	r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 7,
		descriptor("reservation", "R-1"),
		refunding(withHits(descriptor("tenant", "a", "reservation", ""), 5)),
		refunding(descriptor("reservation", "R-2")),
	))
	if err != nil || r.GetOverallCode() != ok || len(r.GetStatuses()) != 3 || r.GetDynamicMetadata() != nil {
		t.Errorf("%v, %v", r, err)
	}
	if st := s.Stats(); len(set.settled()) != 0 || len(d.requests()) != 0 || st.Unnumbered != 2 || st.Unreserved != 1 {
		t.Errorf("settled %+v, %+v", set.settled(), st)
	}
}

// A settlement beside a request that is refused is settled all the same, and so is one
// whose caller does not wait: Envoy sends neither again.
func TestLimitSettles_P15_BesideRefusals(t *testing.T) {
	t.Parallel()
	set := &settler{}
	ctx, cancel := context.WithCancel(t.Context())
	d := &script{answer: func(_ context.Context, _ *authz.Request, dec *authz.Decision) {
		dec.Outcome, dec.App, dec.Worst = authz.QuotaExceeded, app(), -1
	}}
	_, conn := start(t, envoy.Options{Decider: d, Settler: set})
	client := ratelimitv3.NewRateLimitServiceClient(conn)
	in := limitRequest("edge", 0, descriptor("tenant", "a"), withHits(descriptor("reservation", "R-1"), 2))
	if r, err := client.ShouldRateLimit(ctx, in); err != nil || r.GetOverallCode() != overLimit || r.GetStatuses()[1].GetCode() != ok {
		t.Errorf("%v, %v", r, err)
	}
	if got := set.tokens(); !slices.Equal(got, []string{"R-1"}) {
		t.Errorf("settled %q", got)
	}
	cancel()
	s := unserved(t, envoy.Options{Decider: d, Settler: set})
	handler, codec := envoy.Handler(s, "limit"), envoy.NewCodec(s)
	data := wireOf(t, limitRequest("edge", 0, withHits(descriptor("reservation", "R-2"), 2)))
	if _, err := handler(nil, ctx, func(v any) error { return codec.Unmarshal(data, v) }, nil); status.Code(err) != codes.Canceled {
		t.Errorf("%v", err)
	}
	if got := set.tokens(); !slices.Equal(got, []string{"R-1", "R-2"}) {
		t.Errorf("settled %q", got)
	}
}

// A refund that names no reservation would mint units.
func TestLimitSettles_P15_RefundWithoutReservation(t *testing.T) {
	t.Parallel()
	set := &settler{}
	_, conn := start(t, envoy.Options{Decider: always(authz.Allowed), Settler: set})
	_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 0,
		withHits(descriptor("reservation", "R-1"), 1), refunding(withHits(descriptor("tenant", "a"), 5))))
	if status.Code(err) != codes.InvalidArgument || len(set.settled()) != 0 {
		t.Errorf("%v, settled %+v", err, set.settled())
	}
}
