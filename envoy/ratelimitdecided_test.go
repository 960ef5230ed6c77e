package envoy_test

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	accounts "github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// decider is the real one, over accounts in memory.
func decider(tb testing.TB, docs string) *authz.Decider {
	tb.Helper()
	keeper := accounts.NewKeeper(accounts.KeeperConfig{Store: storetest.Unguarded(&storetest.Memory{}), Now: time.Now}, "r1")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = keeper.Run(ctx) }()
	tb.Cleanup(func() { cancel(); <-done })
	d := authz.New(authz.Config{Keeper: keeper, Now: time.Now})
	d.SetSnapshot(catalogOf(tb, docs).Snapshot())
	d.SetSeals(authz.SealKey{ID: 1}, nil)
	return d
}

// asking runs calls through codec and handler, all but HTTP/2.
func asking(tb testing.TB, d envoy.Decider) func(in []byte) *ratelimitv3.RateLimitResponse {
	tb.Helper()
	s := unserved(tb, envoy.Options{Decider: d, Settler: &settler{}, Now: time.Now})
	codec := envoy.NewCodec(s)
	return func(in []byte) *ratelimitv3.RateLimitResponse {
		tb.Helper()
		out, err := envoy.Handler(s, "limit")(nil, tb.Context(), func(v any) error { return codec.Unmarshal(buffers(in), v) }, nil)
		if err != nil {
			tb.Fatal(err)
		}
		wire, err := codec.Marshal(out)
		if err != nil {
			tb.Fatal(err)
		}
		defer wire.Free()
		return parse(tb, bytes.Clone(wire.Materialize()), &ratelimitv3.RateLimitResponse{})
	}
}

const boundDocuments = `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: UTC
  envoy: {domain: edge}
  units: {tokens: {}}
  identity: {tenant: [{api_key: x-api-key}], classes: [{name: machines, when: {credential_prefix: [m_]}}]}
  defaults: {plan: free}
---
apiVersion: mete/v1
kind: Plan
metadata: {name: free}
spec:
  limits:
    per_minute: {kind: rate, amount: 5, window: 1m}
    tokens: {kind: quota, unit: tokens, amount: 100, when_used_up: {grace: 10%}, reset: {calendar: month}}
    by_machines: {kind: quota, amount: 1, classes: [machines], reset: {calendar: month}}
---
domain: edge
descriptors:
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 3}}
  - {key: month, rate_limit: {unit: month, requests_per_unit: 4}}
`

// The real decider behind the wire: an app's descriptors and the domain's own, all or
// nothing, with classes, units and the grace of a soft limit.
func TestDecided_C4_C030_R17_S39_BoundDomain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ask := asking(t, decider(t, boundDocuments))
		for _, tt := range []struct {
			in   *ratelimitv3.RateLimitRequest
			want string
			left string // of each status
		}{
			{limitRequest("edge", 0, descriptor("tenant", "a"), descriptor("ip", "1"), descriptor("month", "x")), "OK OK OK OK", "4 2 3"},
			{limitRequest("edge", 3, descriptor("tenant", "a"), descriptor("ip", "1")), "OVER_LIMIT OK OVER_LIMIT", "4 2"},
			{limitRequest("edge", 5, descriptor("tenant", "a"), descriptor("month", "x")), "OVER_LIMIT OVER_LIMIT OVER_LIMIT", "4 3"},
			{limitRequest("edge", 0, withHits(descriptor("tenant", "a"), 4), withHits(descriptor("month", "x"), 3)), "OK OK OK", "0 0"},
			{limitRequest("edge", 0, descriptor("tenant", "a"), descriptor("month", "y")), "OVER_LIMIT OVER_LIMIT OK", "0 4"},
			{limitRequest("edge", 0, descriptor("tenant", "b", "units", "2")), "OK OK", "3"},
			{limitRequest("edge", 0, descriptor("tenant", "b", "units", "9")), "OVER_LIMIT OVER_LIMIT", "3"},
			{limitRequest("edge", 0, descriptor("tenant", "c", "class", "machines")), "OK OK", "0"},
			{limitRequest("edge", 0, descriptor("tenant", "c", "class", "machines")), "OVER_LIMIT OVER_LIMIT", "0"},
			{limitRequest("edge", 0, descriptor("tenant", "c", "class", "people")), "OK OK", "3"},
			{limitRequest("edge", 0, descriptor("tenant", "d", "units", "requests=0,tokens=100")), "OK OK", "0"},
			{limitRequest("edge", 0, descriptor("tenant", "d", "units", "requests=0,tokens=10")), "OK OK", "0"},
			{limitRequest("edge", 0, descriptor("tenant", "d", "units", "requests=0,tokens=1")), "OVER_LIMIT OVER_LIMIT", "0"},
			{limitRequest("edge", 0, withHits(descriptor("tenant", "e"), math.MaxUint64), withHits(descriptor("ip", "9"), math.MaxUint64)), "OVER_LIMIT OVER_LIMIT OVER_LIMIT", "5 3"},
		} {
			r := ask(mustMarshal(t, tt.in))
			var left []string
			for _, st := range r.GetStatuses() {
				left = append(left, fmt.Sprint(st.GetLimitRemaining()))
			}
			if got := codesOf(r); got != tt.want || strings.Join(left, " ") != tt.left {
				t.Errorf("%v:\n%s, %s left, want %s, %s", tt.in, got, strings.Join(left, " "), tt.want, tt.left)
			}
		}
	})
}

// A counter that a request names twice is told as it is in the end; a limit of Envoy's
// stands alone, also where there is nothing to match or the rule is on trial.
func TestDecided_P10_P14_C131_Twice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ask := asking(t, decider(t, "domain: edge\ndescriptors:\n  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 3}}\n  - {key: trial, shadow_mode: true, rate_limit: {unit: minute, requests_per_unit: 3}}\n"))
		r := ask(mustMarshal(t, limitRequest("edge", 0, descriptor("ip", "1"), descriptor("ip", "1"))))
		if st := r.GetStatuses(); codesOf(r) != "OK OK OK" || st[0].GetLimitRemaining() != 2 || st[1].GetLimitRemaining() != 1 || header(r, "ratelimit") != `"per_minute";r=1;t=40` {
			t.Errorf("%v", r)
		}
		r = ask(mustMarshal(t, limitRequest("edge", 0, descriptor("ip", "1"), descriptor("ip", "1"))))
		if codesOf(r) != "OVER_LIMIT OK OVER_LIMIT" || header(r, "ratelimit") == "" || !strings.Contains(string(r.GetRawBody()), `"limitName":"per_minute"`) {
			t.Errorf("%v", r)
		}
		bare := mustMarshal(t, limitRequest("edge", 0, overriding(descriptor(), 1, typev3.RateLimitUnit_MINUTE, 0), descriptor()))
		if r = ask(bare); codesOf(r) != "OK OK OK" || r.GetStatuses()[0].GetCurrentLimit().GetRequestsPerUnit() != 1 {
			t.Errorf("%v", r)
		}
		if r = ask(bare); codesOf(r) != "OVER_LIMIT OVER_LIMIT OK" {
			t.Errorf("%v", r)
		}
		r = ask(mustMarshal(t, limitRequest("edge", 4, descriptor("trial", "1"))))
		if codesOf(r) != "OK OK" || len(r.GetResponseHeadersToAdd()) != 0 || r.GetStatuses()[0].GetLimitRemaining() != 0 || r.GetStatuses()[0].GetCurrentLimit() == nil {
			t.Errorf("%v", r)
		}
		r = ask(mustMarshal(t, limitRequest("edge", 0, overriding(descriptor("trial", "1"), 5, typev3.RateLimitUnit_MINUTE, 0))))
		if codesOf(r) != "OK OK" || !strings.Contains(header(r, "ratelimit"), `r=4`) {
			t.Errorf("%v", r)
		}
	})
}

// C051, C052 and C127 over the wire: overrides side by side, a calendar month, and the
// wait of a minute's bucket, rounded up.
func TestDecided_C051_C052_C127_Windows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ask := asking(t, decider(t, boundDocuments))
		low := mustMarshal(t, limitRequest("edge", 5, overriding(descriptor("ip", "1"), 5, typev3.RateLimitUnit_MINUTE, 0)))
		high := mustMarshal(t, limitRequest("edge", 5, overriding(descriptor("ip", "1"), 500, typev3.RateLimitUnit_MINUTE, 0)))
		for i, in := range [][]byte{low, low, high, low, high} {
			want := []string{"OK OK", "OVER_LIMIT OVER_LIMIT", "OK OK", "OVER_LIMIT OVER_LIMIT", "OK OK"}[i]
			if got := codesOf(ask(in)); got != want {
				t.Errorf("call %d: %s, want %s", i, got, want)
			}
		}
		time.Sleep(time.Until(time.Date(2026, time.December, 31, 23, 57, 59, 1e6, time.UTC)))
		month := mustMarshal(t, limitRequest("edge", 4, descriptor("month", "z")))
		ask(month)
		r := ask(month)
		if got := r.GetStatuses()[0].GetDurationUntilReset().AsDuration(); codesOf(r) != "OVER_LIMIT OVER_LIMIT" || got != 121*time.Second || header(r, "retry-after") != "121" {
			t.Errorf("until January %v, %v", got, headers(t, r))
		}
		time.Sleep(121 * time.Second)
		if got := codesOf(ask(month)); got != "OK OK" {
			t.Errorf("in January %s", got)
		}
		minute := mustMarshal(t, limitRequest("edge", 3, descriptor("ip", "2")))
		ask(minute)
		time.Sleep(999 * time.Millisecond)
		if r = ask(minute); header(r, "retry-after") != "60" || r.GetStatuses()[0].GetDurationUntilReset().AsDuration() != time.Minute {
			t.Errorf("59.001 s to go: %v", r)
		}
	})
}

const benchmarkRules = `
domain: edge
descriptors:
  - {key: ip, rate_limit: {unit: minute, requests_per_unit: 4294967295}}
  - key: org
    descriptors:
      - {key: route, rate_limit: {name: per_route, unit: second, requests_per_unit: 4294967295}}
  - {key: month, rate_limit: {name: monthly, unit: month, requests_per_unit: 4294967295}}
  - {key: probe, value: status, rate_limit: {unlimited: true}}
`

// BenchmarkRateLimitCounted is all that mete does for a call by descriptors but HTTP/2:
// decode, count by the real decider, encode, headers included.
func BenchmarkRateLimitCounted(b *testing.B) {
	for _, n := range []int{1, 4} {
		b.Run("descriptors="+strconv.Itoa(n), func(b *testing.B) { benchmarkCall(b, decider(b, benchmarkRules), "limit", countedRequest(b, n)) })
	}
}

func countedRequest(tb testing.TB, n int) []byte {
	tb.Helper()
	in := limitRequest("edge", 0, descriptor("org", "acme", "route", "export"), descriptor("ip", "203.0.113.7"), descriptor("month", "acme"), descriptor("probe", "status"))
	in.Descriptors = in.GetDescriptors()[:n]
	return mustMarshal(tb, in)
}

// Descriptors that are counted allocate as little as those that an app decides.
func TestDecided_AllocatesNothing(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("pools drop things at random under the race detector")
	}
	for _, n := range []int{1, 4} {
		r := testing.Benchmark(func(b *testing.B) {
			b.Helper()
			benchmarkCall(b, decider(b, benchmarkRules), "limit", countedRequest(b, n))
		})
		if got := r.AllocsPerOp(); got > 2 {
			t.Errorf("%d descriptors: %d allocations a call, want 2 at most", n, got)
		}
	}
}

const pooledDocuments = `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec: {time_zone: UTC, envoy: {domain: edge}, identity: {tenant: [{api_key: x-api-key}]}, defaults: {plan: free}}
---
apiVersion: mete/v1
kind: Plan
metadata: {name: free}
spec: {limits: {monthly: {kind: quota, amount: 100, reset: {calendar: month}}}}
---
domain: edge
descriptors:
  - {key: free, quota_mode: true, rate_limit: {name: free_pool, unit: minute, requests_per_unit: 2}}
  - {key: paid, quota_mode: true, rate_limit: {name: paid_pool, unit: minute, requests_per_unit: 4}}
  - {key: user, rate_limit: {unit: minute, requests_per_unit: 50}}
`

// In quota mode the answer tells which pools are over, by the indices of the request's
// descriptors, whether that refuses or not.
func TestDecided_P5_P15_WhichPoolIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ask := asking(t, decider(t, pooledDocuments))
		in := mustMarshal(t, limitRequest("edge", 0, descriptor("user", "ann"), descriptor("tenant", "a"), descriptor("free", "x"), descriptor("paid", "x")))
		for i, want := range []any{nil, nil, []any{2.0}, []any{2.0}, []any{2.0, 3.0}} {
			r := ask(in)
			got := r.GetDynamicMetadata().AsMap()
			if got["quotaModeEnabled"] != true || !reflect.DeepEqual(got["quotaModeViolations"], want) || got["domain"] != "edge" || got["descriptors"] != nil {
				t.Errorf("call %d: %v, want violations %v", i, got, want)
			}
			if refused := r.GetOverallCode() == ratelimitv3.RateLimitResponse_OVER_LIMIT; refused != (i == 4) {
				t.Errorf("call %d: %v", i, r.GetOverallCode())
			}
		}
		other := ask(mustMarshal(t, limitRequest("edge", 0, descriptor("user", "ann"))))
		if other.GetDynamicMetadata() != nil {
			t.Errorf("without pools: %v", other.GetDynamicMetadata())
		}
	})
}
