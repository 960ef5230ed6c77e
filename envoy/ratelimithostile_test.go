package envoy_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// deciding makes the app's descriptors come out as their tenants say.
func deciding(c *tally) {
	c.answer = func(_ context.Context, req *authz.Request, d *authz.Decision) {
		outcomes := map[string]authz.Outcome{"admitted": authz.Allowed, "refused": authz.QuotaExceeded, "away": authz.Unavailable, "early": authz.NotReady}
		d.Outcome, d.App, d.Worst, d.Tenant = outcomes[req.Tenant], app(), -1, strings.Clone(req.Tenant)
		if !d.Outcome.Admits() {
			l := rate("per_minute", 3, time.Minute)
			d.Limits = append(d.Limits, authz.LimitState{Limit: l, Leaf: true, Asked: 1, Refused: true, Reset: 7 * time.Second, Window: time.Minute})
			d.Worst, d.RetryAfter = 0, 7*time.Second
		}
	}
}

// C117: where one descriptor refuses the request is refused, though another could not be
// decided: an error would make Envoy let it through. Without a refusal it is an error.
func TestCounted_C117_ARefusalStandsBesideWhatIsAway(t *testing.T) {
	t.Parallel()
	away := func(c *tally, o authz.Outcome) {
		c.counts = func(_ context.Context, _ []authz.DescriptorAsk, _ bool, n *authz.Count) {
			n.Outcome, n.Domain, n.Why = o, c.domain, "etcd is away"
		}
	}
	for _, tt := range []struct {
		says    string
		rules   authz.Outcome // of all of the domain's; 0: they count
		tenants []string
		hits    uint32
		want    string // "": an error
	}{
		{"the app refuses, the rules are away", authz.Unavailable, []string{"refused"}, 1, "OVER_LIMIT OVER_LIMIT OK"},
		{"the app refuses, no rules have been read", authz.NotReady, []string{"refused"}, 1, "OVER_LIMIT OVER_LIMIT OK"},
		{"one tenant refuses, one before is away", 0, []string{"away", "refused"}, 1, "OVER_LIMIT OK OVER_LIMIT OK"},
		{"one tenant refuses, one behind is away", 0, []string{"refused", "admitted", "away"}, 1, "OVER_LIMIT OVER_LIMIT OK OK OK"},
		{"the rules refuse, the app is away", 0, []string{"away"}, 4, "OVER_LIMIT OK OVER_LIMIT"},
		{"the rules refuse, the app is not ready", 0, []string{"early", "admitted"}, 4, "OVER_LIMIT OK OK OVER_LIMIT"},
		{"the app is away", 0, []string{"admitted", "away"}, 1, ""},
		{"both are away", authz.Unavailable, []string{"away"}, 1, ""},
		{"the rules are away", authz.Unavailable, []string{"admitted"}, 1, ""},
	} {
		c := tallying(t, edgeRules, map[string]int64{})
		if deciding(c); tt.rules != 0 {
			away(c, tt.rules)
		}
		charges := !slices.ContainsFunc(tt.tenants, func(name string) bool { return name != "admitted" })
		counts := c.counts
		c.counts = func(ctx context.Context, asks []authz.DescriptorAsk, onlyLook bool, n *authz.Count) {
			if onlyLook == charges {
				t.Errorf("%s: the rules only look: %t", tt.says, onlyLook)
			}
			counts(ctx, asks, onlyLook, n)
		}
		in := limitRequest("edge", tt.hits)
		for _, name := range tt.tenants {
			in.Descriptors = append(in.Descriptors, descriptor("tenant", name))
		}
		in.Descriptors = append(in.Descriptors, descriptor("ip", "1"))
		_, conn := start(t, envoy.Options{Decider: &reallyCounting{c}})
		r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), in)
		switch {
		case tt.want == "" && status.Code(err) != codes.Unavailable:
			t.Errorf("%s: %v, %v, want UNAVAILABLE", tt.says, r, err)
		case tt.want != "" && (err != nil || codesOf(r) != tt.want || header(r, "retry-after") == "" || len(r.GetRawBody()) == 0):
			t.Errorf("%s: %v, %v, want %s", tt.says, r, err, tt.want)
		}
		if c.used["edge?ip=1"] != 0 {
			t.Errorf("%s: used %v", tt.says, c.used)
		}
		for _, name := range tt.tenants {
			if name == "admitted" && c.givenBack() != 1 {
				t.Errorf("%s: given back %d", tt.says, c.givenBack())
			}
		}
	}
}

// reallyCounting is a tally whose app is scripted.
type reallyCounting struct{ *tally }

func (c *reallyCounting) Decide(ctx context.Context, now time.Time, req *authz.Request, d *authz.Decision) {
	c.script.Decide(ctx, now, req, d)
}

func (c *reallyCounting) GiveBack(now time.Time, d *authz.Decision) { c.script.GiveBack(now, d) }

// Envoy makes headers of the names in statuses as they are: a line feed in a document
// would be another header.
func TestCounted_P11_NamesInStatuses(t *testing.T) {
	t.Parallel()
	for written, want := range map[string]string{
		`"a\r\nx-inject: 1"`: "a??x-inject: 1", `"\u007f\0"`: "??", `"é \"x\""`: `é "x"`, `"` + strings.Repeat("é", 150) + `"`: strings.Repeat("é", 100),
	} {
		rules := "domain: edge\ndescriptors:\n  - {key: ip, rate_limit: {name: " + written + ", unit: minute, requests_per_unit: 1}}\n"
		r := limit(t, tallying(t, rules, nil), limitRequest("edge", 0, descriptor("ip", "1")))
		if got := r.GetStatuses()[0].GetCurrentLimit().GetName(); got != want {
			t.Errorf("%s is told as %q, want %q", written, got, want)
		}
	}
}

// A name as long as documents may have it must not make the headers longer than clients
// take: many gRPC peers end at 8 KiB for all of them. It is cut, and not left out: the
// limit that refuses is in its refusal.
func TestCounted_C44_LongNamesAreCutInHeaders(t *testing.T) {
	t.Parallel()
	for _, length := range []int{200, 201, 50_000} {
		name := strings.Repeat("n", length)
		rules := "domain: edge\nmete: {headers: {x_ratelimit: delta}}\ndescriptors:\n  - {key: ip, rate_limit: {name: " + name + ", unit: minute, requests_per_unit: 1}}\n"
		c := tallying(t, rules, nil)
		for _, hits := range []uint32{1, 2} {
			r := limit(t, c, limitRequest("edge", hits, descriptor("ip", "1"), descriptor("content_type", "application/grpc")))
			size, got := 0, headers(t, r)
			for key, value := range got {
				size += len(key) + len(value)
			}
			if size > 6<<10 || got["ratelimit"] != `"`+name[:min(length, 200)]+`";r=0;t=2` || (got["grpc-status"] != "") != (hits == 2) {
				t.Errorf("a name of %d bytes: %d bytes of headers, ratelimit of %d", length, size, len(got["ratelimit"]))
			}
			if hits == 2 && violations(t, got["grpc-status-details-bin"]) != 1 {
				t.Errorf("a name of %d bytes: details %v", length, statusDetails(t, got["grpc-status-details-bin"]))
			}
		}
	}
}

// A name that a structured field cannot hold is told in escapes.
func TestCounted_C44_NamesOfOtherLetters(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"täglich": "t%C3%A4glich", `a"b\c`: `a\"b\\c`, `ü"`: `%C3%BC\"`} {
		rules := "domain: edge\ndescriptors:\n  - {key: ip, rate_limit: {name: '" + name + "', unit: minute, requests_per_unit: 1}}\n"
		r := limit(t, tallying(t, rules, nil), limitRequest("edge", 2, descriptor("ip", "1")))
		if got := headers(t, r)["ratelimit-policy"]; got != `"`+want+`";q=1;w=60` {
			t.Errorf("%s is told as %s", name, got)
		}
	}
}

// violations is how many limits the details of a gRPC status name.
func violations(tb testing.TB, value string) (n int) {
	tb.Helper()
	for _, d := range statusDetails(tb, value).Details() {
		if failure, ok := d.(*errdetails.QuotaFailure); ok {
			n += len(failure.GetViolations())
		}
	}
	return n
}

// A message in a field that is there twice is merged, as protobuf does it: the second one
// adds what it says.
func TestReadRateLimit_P57_FieldsThatAreThereTwice(t *testing.T) {
	t.Parallel()
	lead := mustMarshal(t, limitRequest("edge", 3))
	for says, d := range map[string]string{
		"hits, then nothing":       "\x1a\x02\x08\x05\x1a\x00",
		"hits, then others":        "\x1a\x02\x08\x05\x1a\x02\x08\x07",
		"amount, then unit":        "\x12\x02\x08\x05\x12\x02\x10\x03",
		"multiplier, then nothing": "\x12\x08\x08\x05\x10\x03\x1a\x02\x08\x04\x12\x02\x1a\x00",
		"negative, then not":       "\x20\x01\x20\x00",
		"a key twice":              "\x0a\x06\x0a\x01a\x0a\x01b\x0a\x03\x12\x01v",
	} {
		wire := append(append(append([]byte(nil), lead...), 0x12, byte(len(d))), d...)
		var m ratelimitv3.RateLimitRequest
		if err := proto.Unmarshal(wire, &m); err != nil {
			t.Fatal(err)
		}
		_, _, items, err := envoy.ReadRateLimit(wire)
		if want := describedByStock(m.GetDescriptors()[0]); err != nil || len(items) != 1 || items[0] != want {
			t.Errorf("%s: %+v, %v\nwant %+v", says, items, err, want)
		}
	}
}
