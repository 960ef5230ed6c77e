package envoy_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"github.com/rs/zerolog"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

const edgeRules = `
domain: edge
descriptors:
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: user, rate_limit: {name: per_user, unit: day, unit_multiplier: 2, requests_per_unit: 10}}
  - {key: client, value: billing, rate_limit: {unlimited: true}}
  - {key: big, rate_limit: {unit: second, requests_per_unit: 4294967295}}
  - {key: tenant, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: bare}
`

// codesOf is the overall code and that of each status.
func codesOf(r *ratelimitv3.RateLimitResponse) string {
	words := []string{r.GetOverallCode().String()}
	for _, st := range r.GetStatuses() {
		words = append(words, st.GetCode().String())
	}
	return strings.Join(words, " ")
}

// C030, P13: whatever a descriptor names, all are charged or none.
func TestCounted_P13_C030_C046_EachDescriptor(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, nil)
	r := limit(t, c, limitRequest("edge", 2, descriptor("ip", "1"), withHits(descriptor("user", "ann"), 7), descriptor("client", "billing"), descriptor("bare", "x"), descriptor("nothing", "x"), descriptor()))
	if codesOf(r) != "OK OK OK OK OK OK OK" {
		t.Fatalf("%v", r)
	}
	st := r.GetStatuses()
	if l := st[0].GetCurrentLimit(); l.GetName() != "" || l.GetRequestsPerUnit() != 3 || l.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_MINUTE || l.GetUnitMultiplier() != nil {
		t.Errorf("a limit that nobody named: %v", l)
	}
	if st[0].GetLimitRemaining() != 1 || st[0].GetDurationUntilReset().AsDuration() != 2*time.Second {
		t.Errorf("status %v, want 1 left and whole seconds, rounded up", st[0])
	}
	if l := st[1].GetCurrentLimit(); l.GetName() != "per_user" || l.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_DAY || l.GetUnitMultiplier().GetValue() != 2 || st[1].GetLimitRemaining() != 3 {
		t.Errorf("a limit of two days: %v", st[1])
	}
	if st[2].GetLimitRemaining() != math.MaxUint32 || st[2].GetCurrentLimit() != nil || st[2].GetDurationUntilReset() != nil {
		t.Errorf("unlimited: %v", st[2])
	}
	for _, i := range []int{3, 4, 5} {
		if st[i].GetCurrentLimit() != nil || st[i].GetLimitRemaining() != 0 || st[i].GetDurationUntilReset() != nil {
			t.Errorf("status %d without a limit: %v", i, st[i])
		}
	}
	r = limit(t, c, limitRequest("edge", 0, withHits(descriptor("user", "ann"), 3), withHits(descriptor("ip", "1"), 2)))
	if codesOf(r) != "OVER_LIMIT OK OVER_LIMIT" || c.used["edge?user=ann"] != 7 || c.used["edge?ip=1"] != 2 {
		t.Errorf("%v, used %v", r, c.used)
	}
	if r = limit(t, c, limitRequest("edge", 3, withHits(descriptor("ip", "1"), 0))); codesOf(r) != "OK OK" || r.GetStatuses()[0].GetLimitRemaining() != 1 {
		t.Errorf("0 hits only look: %v", r)
	}
	if r = limit(t, c, limitRequest("edge", 0, descriptor("ip", "1"))); codesOf(r) != "OK OK" || r.GetStatuses()[0].GetLimitRemaining() != 0 {
		t.Errorf("0 of the request is 1: %v", r)
	}
	if r = limit(t, c, limitRequest("edge", 0, withHits(descriptor("ip", "1"), 0))); codesOf(r) != "OVER_LIMIT OVER_LIMIT" {
		t.Errorf("a look at nothing: %v", r)
	}
}

// 2^64-1 hits are over the limit, which is an answer: an error lets the request through.
func TestCounted_C027_AllTheHitsThereAre(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, nil)
	if r := limit(t, c, limitRequest("edge", 0, withHits(descriptor("big", "1"), math.MaxUint64))); codesOf(r) != "OVER_LIMIT OVER_LIMIT" {
		t.Errorf("%v", r)
	}
	r := limit(t, c, limitRequest("edge", math.MaxUint32, descriptor("big", "1")))
	if l := r.GetStatuses()[0].GetCurrentLimit(); codesOf(r) != "OK OK" || l.GetRequestsPerUnit() != math.MaxUint32 || r.GetStatuses()[0].GetLimitRemaining() != 0 {
		t.Errorf("%v", r)
	}
}

// In a domain that no app is bound to "tenant" is a key like any other.
func TestCounted_P10_TenantIsAKey(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, nil)
	in := limitRequest("edge", 0, descriptor("tenant", "a"))
	if a, b := codesOf(limit(t, c, in)), codesOf(limit(t, c, in)); a != "OK OK" || b != "OVER_LIMIT OVER_LIMIT" || len(c.requests()) != 0 {
		t.Errorf("%s, then %s; decided %+v", a, b, c.requests())
	}
}

// Both in one request: the app's descriptors and the domain's, all or nothing.
func TestCounted_C030_BothWays(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, map[string]int64{"a": 5, "b": 1})
	r := limit(t, c, limitRequest("edge", 0, descriptor("ip", "1"), descriptor("tenant", "a"), descriptor("user", "ann")))
	if codesOf(r) != "OK OK OK OK" || c.left["a"] != 4 || c.used["edge?ip=1"] != 1 || c.used["edge?user=ann"] != 1 || c.used["edge?tenant=a"] != 0 {
		t.Fatalf("%v, left %v, used %v", r, c.left, c.used)
	}
	st := r.GetStatuses()
	if st[0].GetCurrentLimit().GetRequestsPerUnit() != 3 || st[1].GetCurrentLimit().GetName() != "daily" || st[2].GetCurrentLimit().GetName() != "per_user" {
		t.Errorf("statuses in another order: %v", st)
	}
	// The app refuses: the rules are looked at, so that their statuses are true.
	r = limit(t, c, limitRequest("edge", 2, descriptor("ip", "1"), descriptor("tenant", "b"), descriptor("tenant", "a")))
	if codesOf(r) != "OVER_LIMIT OK OVER_LIMIT OK" || c.left["a"] != 4 || c.left["b"] != 1 || c.used["edge?ip=1"] != 1 {
		t.Errorf("the app refuses: %v, left %v, used %v", r, c.left, c.used)
	}
	if st := r.GetStatuses(); st[0].GetLimitRemaining() != 2 || st[1].GetLimitRemaining() != 1 || st[2].GetLimitRemaining() != 4 {
		t.Errorf("left: %v", st)
	}
	if !strings.Contains(string(r.GetRawBody()), `"quotaType":"daily"`) {
		t.Errorf("body %s", r.GetRawBody())
	}
	// The rules refuse: what the app was charged goes back.
	r = limit(t, c, limitRequest("edge", 3, descriptor("tenant", "a"), descriptor("ip", "1")))
	if codesOf(r) != "OVER_LIMIT OK OVER_LIMIT" || c.left["a"] != 4 || c.used["edge?ip=1"] != 1 || c.countsBack != 0 {
		t.Errorf("the rules refuse: %v, left %v, used %v", r, c.left, c.used)
	}
	if r.GetStatuses()[0].GetLimitRemaining() != 4 || !strings.Contains(string(r.GetRawBody()), `"limitName":"per_minute"`) {
		t.Errorf("%v", r)
	}
}

// Whose wait is longer words the answer, so that a retry after it has a chance (C128).
func TestCounted_C127_TheLongestWait(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		app, rules time.Duration
		want, says string
	}{
		{1100 * time.Millisecond, 59001 * time.Millisecond, "60", "per_minute"},
		{5001 * time.Millisecond, time.Millisecond, "6", "monthly"},
		{0, time.Hour, "", "monthly"},
		{time.Hour, 0, "", "per_minute"},
	} {
		c := tallying(t, edgeRules, map[string]int64{})
		c.answer = nil
		d := &script{domain: c.domain}
		d.answer = func(_ context.Context, _ *authz.Request, dec *authz.Decision) {
			*dec = *refusal(authz.QuotaExceeded, app(), 0, monthly(t))
			dec.RetryAfter = tt.app
		}
		d.counts = func(ctx context.Context, asks []authz.DescriptorAsk, onlyLook bool, n *authz.Count) {
			if !onlyLook {
				t.Error("charges although the app refuses")
			}
			c.tally(ctx, asks, onlyLook, n)
			n.RetryAfter = tt.rules
		}
		r := limit(t, d, limitRequest("edge", 4, descriptor("tenant", "a"), descriptor("ip", "1")))
		if got := header(r, "retry-after"); got != tt.want || !strings.Contains(header(r, "ratelimit"), tt.says) {
			t.Errorf("%v and %v: retry-after %q, ratelimit %q", tt.app, tt.rules, got, header(r, "ratelimit"))
		}
	}
}

// C127: who waits for the reset of a status waits a second at least.
func TestCounted_C127_WaitsASecond(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, nil)
	c.counts = func(ctx context.Context, asks []authz.DescriptorAsk, onlyLook bool, n *authz.Count) {
		c.tally(ctx, asks, onlyLook, n)
		n.Items[0].State.Reset = 0
	}
	r := limit(t, c, limitRequest("edge", 4, descriptor("ip", "1")))
	if got := r.GetStatuses()[0].GetDurationUntilReset().AsDuration(); codesOf(r) != "OVER_LIMIT OVER_LIMIT" || got != time.Second {
		t.Errorf("%v", r)
	}
}

// What an operator may try out or leave out is no refusal, and its status says so.
func TestCounted_P1_P4_P5_C126_Statuses(t *testing.T) {
	t.Parallel()
	limited := rate("per_minute", 3, time.Minute)
	full := authz.LimitState{Limit: limited, Asked: 1, Reset: -1, Looked: true}
	for name, tt := range map[string]struct {
		item      authz.Counted
		refused   bool
		code      ratelimitv3.RateLimitResponse_Code
		remaining uint32
		limited   bool
	}{
		"shadowed":               {authz.Counted{Shadowed: true, State: authz.LimitState{Limit: limited, Left: 2, Asked: 7}}, false, ok, 0, true},
		"shadowed, refused":      {authz.Counted{Shadowed: true, State: authz.LimitState{Limit: limited, Left: 2, Asked: 7}}, true, ok, 0, true},
		"replaced":               {authz.Counted{Replaced: true}, false, ok, 0, false},
		"quota rule over":        {authz.Counted{State: authz.LimitState{Limit: limited, Left: 2, Asked: 7, Looked: true}}, false, ok, 0, true},
		"quota rule over, alone": {authz.Counted{Over: true, State: full}, false, ok, 0, true},
		"over":                   {authz.Counted{Over: true, State: authz.LimitState{Limit: limited, Left: 2, Asked: 7, Looked: true}}, true, overLimit, 2, true},
		"looked at":              {authz.Counted{State: authz.LimitState{Limit: limited, Left: 2, Asked: 1, Looked: true}}, false, ok, 2, true},
	} {
		d := &script{unbound: true, domain: domainOf(t, edgeRules)}
		d.counts = func(_ context.Context, _ []authz.DescriptorAsk, _ bool, n *authz.Count) {
			n.Domain, n.Outcome, n.Items = d.domain, authz.Allowed, append(n.Items, tt.item)
			if tt.refused {
				n.Outcome, n.Worst = authz.RateLimited, 1
				n.Items = append(n.Items, authz.Counted{Over: true, State: full})
			}
		}
		r := limit(t, d, limitRequest("edge", 7, descriptor("ip", "1"), descriptor("ip", "2")))
		if st := r.GetStatuses()[0]; st.GetCode() != tt.code || st.GetLimitRemaining() != tt.remaining || (st.GetCurrentLimit() != nil) != tt.limited {
			t.Errorf("%s: %v", name, st)
		}
		if (r.GetOverallCode() == overLimit) != tt.refused {
			t.Errorf("%s: %v", name, r.GetOverallCode())
		}
	}
}

// P14, S31, C051: an override is handed on with its unit and multiplier, and told.
func TestCounted_P14_S31_C051_Overrides(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, nil)
	low := limitRequest("edge", 5, overriding(descriptor("path", "/x"), 5, typev3.RateLimitUnit_MINUTE, 0))
	high := limitRequest("edge", 5, overriding(descriptor("path", "/x"), 500, typev3.RateLimitUnit_MINUTE, 10))
	for i, want := range []string{"OK OK", "OVER_LIMIT OVER_LIMIT"} {
		if got := codesOf(limit(t, c, low)); got != want {
			t.Errorf("5 a minute, time %d: %s", i+1, got)
		}
	}
	r := limit(t, c, high)
	if l := r.GetStatuses()[0].GetCurrentLimit(); codesOf(r) != "OK OK" || l.GetRequestsPerUnit() != 500 || l.GetUnit() != ratelimitv3.RateLimitResponse_RateLimit_MINUTE || l.GetUnitMultiplier().GetValue() != 10 {
		t.Errorf("500 in ten minutes: %v", r)
	}
	if got := codesOf(limit(t, c, low)); got != "OVER_LIMIT OVER_LIMIT" {
		t.Errorf("5 a minute again: %s", got)
	}
	if got := codesOf(limit(t, c, limitRequest("edge", 0, overriding(descriptor("client", "billing"), 0, typev3.RateLimitUnit_DAY, 0)))); got != "OVER_LIMIT OVER_LIMIT" {
		t.Errorf("0 a day: %s", got)
	}
	for unit, want := range map[typev3.RateLimitUnit]ratelimitv3.RateLimitResponse_RateLimit_Unit{
		1: ratelimitv3.RateLimitResponse_RateLimit_SECOND, 2: ratelimitv3.RateLimitResponse_RateLimit_MINUTE, 3: ratelimitv3.RateLimitResponse_RateLimit_HOUR,
		4: ratelimitv3.RateLimitResponse_RateLimit_DAY, 5: ratelimitv3.RateLimitResponse_RateLimit_MONTH, 6: ratelimitv3.RateLimitResponse_RateLimit_YEAR,
		7: ratelimitv3.RateLimitResponse_RateLimit_WEEK,
	} {
		r := limit(t, c, limitRequest("edge", 0, overriding(descriptor("u", "1"), 9, unit, 1)))
		if l := r.GetStatuses()[0].GetCurrentLimit(); l.GetUnit() != want || l.GetUnitMultiplier() != nil {
			t.Errorf("unit %d: %v, want %v", unit, l, want)
		}
	}
}

// A unit that is none crashes envoyproxy/ratelimit, and Envoy does send it (C156). The
// rule holds then; without one the descriptor is over the limit. It is counted, logged
// once a minute, and never an error, which would let the request through.
func TestCounted_C156_WhatCannotBeRead(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range envoy.MaxEntries + 1 {
		many = append(many, fmt.Sprint("k", i), "v")
	}
	wrong := func(unit typev3.RateLimitUnit, multiplier uint32) func(string) *ratelimitcommonv3.RateLimitDescriptor {
		return func(key string) *ratelimitcommonv3.RateLimitDescriptor {
			return overriding(descriptor(key, "2"), 5, unit, multiplier)
		}
	}
	for _, tt := range []struct {
		says   string
		make   func(key string) *ratelimitcommonv3.RateLimitDescriptor
		logged string
		byRule string // the answer where the key has a rule
	}{
		{"unit UNKNOWN", wrong(typev3.RateLimitUnit_UNKNOWN, 0), "descriptors[1].limit.unit: 0 is not a unit", "OK OK OK"},
		{"unit 9", wrong(9, 0), "descriptors[1].limit.unit: 9 is not a unit", "OK OK OK"},
		{"unit -1", wrong(-1, 0), "descriptors[1].limit.unit: -1 is not a unit", "OK OK OK"},
		{"101 years", wrong(typev3.RateLimitUnit_YEAR, 101), "descriptors[1].limit.unit_multiplier: 101 makes too long a window", "OK OK OK"},
		{"too many minutes", wrong(typev3.RateLimitUnit_MINUTE, math.MaxUint32), "unit_multiplier: 4294967295 makes", "OK OK OK"},
		{"a long value", func(key string) *ratelimitcommonv3.RateLimitDescriptor {
			return descriptor(key, strings.Repeat("x", envoy.MaxText+1))
		}, "descriptors[1].entries: more than 64", "OK OK OK"},
		{
			"many entries", func(key string) *ratelimitcommonv3.RateLimitDescriptor { return descriptor(append(many, key, "2")...) },
			"descriptors[1].entries: more than 64", "OVER_LIMIT OK OVER_LIMIT",
		},
	} {
		t.Run(tt.says, func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			c := tallying(t, edgeRules, nil)
			s, conn := start(t, envoy.Options{Decider: &c.script, Log: zerolog.New(&log)})
			ask := func(key string) string {
				r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 0, descriptor("ip", "1"), tt.make(key)))
				if err != nil {
					t.Fatal(err)
				}
				return codesOf(r)
			}
			if got := ask("ip"); got != tt.byRule {
				t.Errorf("with a rule: %s, want %s", got, tt.byRule)
			}
			if got := ask("unconfigured"); got != "OVER_LIMIT OK OVER_LIMIT" {
				t.Errorf("without a rule: %s", got)
			}
			if st := s.Stats(); st.UnreadableDescriptors != 2 || st.Malformed != 0 {
				t.Errorf("%+v", st)
			}
			if strings.Count(log.String(), "\n") != 1 || !strings.Contains(log.String(), tt.logged) || strings.Contains(log.String(), "xxx") {
				t.Errorf("logged %s, want one line with %q", log.String(), tt.logged)
			}
		})
	}
}

// Where overrides are ignored, and where nothing limits the domain, a wrong one changes
// nothing.
func TestCounted_C156_WrongWhereItIsIgnored(t *testing.T) {
	t.Parallel()
	for _, d := range []*script{&tallying(t, edgeRules+"mete: {overrides: ignore}\n", nil).script, {unbound: true}} {
		s, conn := start(t, envoy.Options{Decider: d})
		r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(),
			limitRequest("edge", 0, descriptor("ip", "1"), overriding(descriptor("none", "2"), 5, typev3.RateLimitUnit_UNKNOWN, 0)))
		if err != nil || codesOf(r) != "OK OK OK" || s.Stats().UnreadableDescriptors != 0 {
			t.Errorf("%v, %v", r, err)
		}
	}
}

// Refunds of a counter, by is_negative_hits.
func TestCounted_P13_Refunds(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, map[string]int64{})
	limit(t, c, limitRequest("edge", 3, descriptor("ip", "1")))
	r := limit(t, c, limitRequest("edge", 0, refunding(withHits(descriptor("ip", "1"), 2))))
	if codesOf(r) != "OK OK" || c.used["edge?ip=1"] != 1 || r.GetStatuses()[0].GetLimitRemaining() != 2 {
		t.Errorf("%v, used %v", r, c.used)
	}
	if limit(t, c, limitRequest("edge", 0, refunding(descriptor("ip", "1")))); c.used["edge?ip=1"] != 0 {
		t.Errorf("a refund without a number is of 1; used %v", c.used)
	}
	// Where an app decides, or nothing is counted, a refund must name its request.
	for name, d := range map[string]*script{"by tenant": &c.script, "no rules": always(authz.Allowed)} {
		set := &settler{}
		s, conn := start(t, envoy.Options{Decider: d, Settler: set})
		in := limitRequest("edge", 0, withHits(descriptor("reservation", "R"), 1), refunding(descriptor("tenant", "a")))
		if name == "no rules" {
			in.Descriptors[1] = refunding(descriptor("ip", "1"))
		}
		_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), in)
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "descriptors[1].is_negative_hits: a refund must name its request") || len(set.settled()) != 0 || s.Stats().Malformed != 1 {
			t.Errorf("%s: %v, settled %v", name, err, set.settled())
		}
	}
}

// C117: what cannot be counted is a gRPC error, and what the app was charged goes back.
func TestCounted_C117_Errors(t *testing.T) {
	t.Parallel()
	for o, want := range map[authz.Outcome]codes.Code{
		authz.Unavailable: codes.Unavailable, authz.NotReady: codes.Unavailable, authz.Undecided: codes.Internal, authz.TenantUnknown: codes.Internal,
	} {
		d := always(authz.Allowed)
		d.counts = func(_ context.Context, _ []authz.DescriptorAsk, _ bool, n *authz.Count) {
			n.Outcome, n.Why = o, "because \xff"
		}
		s, conn := start(t, envoy.Options{Decider: d})
		r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 0, descriptor("tenant", "a"), descriptor("ip", "1")))
		if status.Code(err) != want || r != nil || !strings.Contains(err.Error(), "because") || d.givenBack() != 1 || d.countsBack != 1 {
			t.Errorf("%v: %v, %v, given back %d and %d", o, r, err, d.givenBack(), d.countsBack)
		}
		if s.Stats().Counted[o] != 1 {
			t.Errorf("%v: %+v", o, s.Stats())
		}
	}
}

// A domain that nobody knows limits nothing, and is counted, unless an app is bound to it.
func TestCounted_P10_NoSuchDomain(t *testing.T) {
	t.Parallel()
	for unbound, want := range map[bool]uint64{true: 1, false: 0} {
		d := always(authz.Allowed)
		d.unbound = unbound
		s, conn := start(t, envoy.Options{Decider: d})
		in := limitRequest("elsewhere", 0, descriptor("ip", "1"), descriptor())
		r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), in)
		if err != nil || codesOf(r) != "OK OK OK" || r.GetDynamicMetadata() != nil || len(r.GetResponseHeadersToAdd()) != 0 || s.Stats().Counted[authz.NoApp] != want {
			t.Errorf("%v, %v, counted %v", r, err, s.Stats().Counted)
		}
	}
	// A document that was never valid, where the domain lets requests on.
	d := always(authz.Allowed)
	d.unbound, d.domain = true, domainOf(t, edgeRules)
	d.counts = func(_ context.Context, _ []authz.DescriptorAsk, _ bool, n *authz.Count) {
		n.Outcome, n.Domain, n.Why = authz.UnavailableAllowed, d.domain, "never valid"
	}
	if r := limit(t, d, limitRequest("edge", 0, descriptor("ip", "1"))); codesOf(r) != "OK OK" || r.GetStatuses()[0].GetCurrentLimit() != nil {
		t.Errorf("%v", r)
	}
}

// C118: what was counted for a caller that has gone, or for a call that panics, goes back.
func TestCounted_C118_GoesBack(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, map[string]int64{"a": 5})
	ctx, cancel := context.WithCancel(t.Context())
	c.counts = func(ctx context.Context, asks []authz.DescriptorAsk, onlyLook bool, n *authz.Count) {
		c.tally(ctx, asks, onlyLook, n)
		cancel()
	}
	data := wireOf(t, limitRequest("edge", 2, descriptor("tenant", "a"), descriptor("ip", "1")))
	s := unserved(t, envoy.Options{Decider: c, Settler: &settler{}})
	call := func(ctx context.Context) error {
		_, err := envoy.Handler(s, "limit")(nil, ctx, func(v any) error { return envoy.NewCodec(s).Unmarshal(data, v) }, nil)
		return err
	}
	if err := call(ctx); status.Code(err) != codes.Canceled || c.left["a"] != 5 || c.used["edge?ip=1"] != 0 || s.Stats().Gone != 1 {
		t.Errorf("gone: %v, left %v, used %v", err, c.left, c.used)
	}
	c.counts = func(ctx context.Context, asks []authz.DescriptorAsk, onlyLook bool, n *authz.Count) {
		c.tally(ctx, asks, onlyLook, n)
		panic("broken rule")
	}
	if err := call(t.Context()); status.Code(err) != codes.Internal || c.left["a"] != 5 || c.used["edge?ip=1"] != 0 || s.Stats().Panics != 1 {
		t.Errorf("panicked: %v, left %v, used %v", err, c.left, c.used)
	}
	c.counts = c.tally
	if err := call(t.Context()); err != nil || c.left["a"] != 3 || c.used["edge?ip=1"] != 2 {
		t.Errorf("%v, left %v, used %v", err, c.left, c.used)
	}
}

// Bytes that are not UTF-8 are matched as bytes: stock gRPC refuses the message, and
// Envoy then lets the request through.
func TestCounted_P57_NotUTF8(t *testing.T) {
	t.Parallel()
	c := tallying(t, edgeRules, nil)
	_, conn := start(t, envoy.Options{Decider: c})
	in := bytes.Replace(mustMarshal(t, limitRequest("edge", 3, descriptor("ip", "caf_"))), []byte("caf_"), []byte("caf\xff"), 1)
	for i, want := range []string{"OK OK", "OVER_LIMIT OVER_LIMIT"} {
		out, err := call(t, conn, limitMethod, in)
		if err != nil {
			t.Fatal(err)
		}
		if r := parse(t, out, &ratelimitv3.RateLimitResponse{}); codesOf(r) != want {
			t.Errorf("time %d: %v", i+1, r)
		}
	}
	if c.used["edge?ip=caf%FF"] != 3 {
		t.Errorf("used %v", c.used)
	}
}

// What the descriptors of an app may say beside the tenant: a class, hits, units. Units
// that nobody can read, which callers may have sent, are as if there were none: an error
// would make Envoy let the request through.
func TestLimitUnits_C028_S39(t *testing.T) {
	t.Parallel()
	d := always(authz.Allowed)
	d.units = []plan.Unit{{Name: "tokens"}, {Name: "bytes"}}
	for _, tt := range []struct {
		units     string
		own       int64 // hits of the descriptor; -1: none
		hits      int64
		checkOnly bool
		want      []authz.UnitAmount

		unreadable bool
	}{
		{units: "", own: -1, hits: 3},
		{units: "7", own: -1, hits: 7},
		{units: " 007 ", own: -1, hits: 7},
		{units: "7", own: 2, hits: 2},
		{units: "0", own: -1, checkOnly: true},
		{units: "99999999999999999999999999", own: -1, hits: plan.MaxAmount},
		{units: "tokens=500", own: -1, hits: 3, want: []authz.UnitAmount{{Unit: "tokens", Amount: 500}}},
		{units: "tokens=500, bytes=99999999999999999999, requests=0", own: 2, hits: 2, want: []authz.UnitAmount{{Unit: "tokens", Amount: 500}, {Unit: "bytes", Amount: plan.MaxAmount}, {Unit: "requests"}}},
		{units: "-1", own: -1, hits: 3, unreadable: true},
		{units: "1.5", own: 2, hits: 2, unreadable: true},
		{units: "many", own: -1, hits: 3, unreadable: true},
		{units: "tokens=", own: -1, hits: 3, unreadable: true},
		{units: "tokens=5,", own: -1, hits: 3, unreadable: true},
		{units: "tokens=5,7", own: -1, hits: 3, unreadable: true},
		{units: "tokns=5", own: -1, hits: 3, unreadable: true},
		{units: "tokens=5,tokens=5", own: -1, hits: 3, unreadable: true},
		{units: "+7", own: 0, checkOnly: true, unreadable: true},
	} {
		before := len(d.requests())
		one := descriptor("tenant", "org:a", "class", "people", "units", tt.units)
		if tt.own >= 0 {
			one = withHits(one, uint64(tt.own))
		}
		server, conn := start(t, envoy.Options{Decider: d})
		_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 3, one))
		if err != nil {
			t.Errorf("%q: %v", tt.units, err)
			continue
		}
		got := d.requests()[before]
		if got.Class != "people" || got.Hits != tt.hits || got.CheckOnly != tt.checkOnly || !slices.Equal(got.Units, tt.want) {
			t.Errorf("%q: decided on %+v", tt.units, got)
		}
		if n := server.Stats().UnreadableUnits; n != map[bool]uint64{true: 1}[tt.unreadable] {
			t.Errorf("%q: %d were unreadable", tt.units, n)
		}
	}
}

// Each descriptor is counted as unreadable once, although calls use memory again.
func TestLimitUnits_C028_UnreadableOnce(t *testing.T) {
	t.Parallel()
	s := unserved(t, envoy.Options{Decider: always(authz.Allowed), Settler: &settler{}})
	for _, units := range []string{"many", "5", "5", "5"} {
		data := wireOf(t, limitRequest("edge", 0, descriptor("tenant", "a", "units", units)))
		if _, err := envoy.Handler(s, "limit")(nil, t.Context(), func(v any) error { return envoy.NewCodec(s).Unmarshal(data, v) }, nil); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Stats().UnreadableUnits; n != 1 {
		t.Errorf("%d", n)
	}
}

// A domain with a rule of its own for entries called "reservation" limits them: they are
// nothing of mete's.
func TestCounted_P10_ReservationsOfOnesOwn(t *testing.T) {
	t.Parallel()
	c := tallying(t, "domain: edge\ndescriptors:\n  - {key: reservation, rate_limit: {unit: minute, requests_per_unit: 1}}\n", nil)
	for _, want := range []string{"OK OK OK", "OVER_LIMIT OVER_LIMIT OK"} {
		if r := limit(t, c, limitRequest("edge", 0, descriptor("reservation", "table 7"), descriptor("reservation", "table 8", "guest", "x"))); codesOf(r) != want {
			t.Errorf("%v, want %s", r, want)
		}
	}
}
