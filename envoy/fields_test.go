package envoy_test

import (
	"encoding/base64"
	"testing"
	"time"

	"github.com/dunglas/httpsfv"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

func free(tb testing.TB) []authz.LimitState {
	tb.Helper()
	m := monthly(tb)
	m.Used, m.Left = 412, 588
	return []authz.LimitState{
		{Limit: rate("per_second", 10, time.Second), Leaf: true, Left: 9, Reset: 100 * time.Millisecond, Window: time.Second},
		{Limit: rate("per_minute", 300, time.Minute), Leaf: true, Left: 299, Reset: 200 * time.Millisecond, Window: time.Minute},
		m,
	}
}

// A fieldCase is what the fields are for some limits.
type fieldCase struct {
	app           *plan.App
	limits        []authz.LimitState
	policy, state string
}

func session(left int64, reset time.Duration) []authz.LimitState {
	return []authz.LimitState{{
		Limit: quota("session", 10000, "tokens", plan.AfterFirstUse), Leaf: true,
		Left: left, Reset: reset, Window: 5 * time.Hour,
	}}
}

// examples are worked ones of the draft's fields.
func examples(tb testing.TB) map[string]fieldCase {
	tb.Helper()
	soft := quota("automation_calls", 30000, plan.DefaultUnit, plan.Every)
	gpus := quota("gpus", 100, "gpus", 0)
	gpus.Kind = plan.Allocation
	egress := rate("egress", 300000000, time.Minute)
	egress.Unit = "bytes"
	daily := func(amount int64) *plan.EffectiveLimit {
		return quota("daily", amount, plan.DefaultUnit, plan.CalendarDay)
	}
	units := app()
	units.Units = []plan.Unit{{Name: "bytes", Registered: "content-bytes"}, {Name: "tokens"}}
	const day = 24 * time.Hour
	return map[string]fieldCase{
		"free": {
			limits: free(tb),
			policy: `"per_second";q=10;w=1, "per_minute";q=300;w=60, "monthly";q=1000;w=2678400`,
			state:  `"per_second";r=9;t=1, "per_minute";r=299;t=1, "monthly";r=588;t=1857600`,
		},
		"session running":    {limits: session(8500, 17100*time.Second), policy: `"session";q=10000;qu="tokens";w=18000`, state: `"session";r=8500;t=17100`},
		"session not opened": {limits: session(10000, -1), policy: `"session";q=10000;qu="tokens";w=18000`, state: `"session";r=10000`},
		"session used up":    {limits: session(0, 9000*time.Second), policy: `"session";q=10000;qu="tokens";w=18000`, state: `"session";r=0;t=9000`},
		"tree": {
			limits: []authz.LimitState{
				{Limit: daily(10000000), Tenant: "project:p", Leaf: true, Left: 9214003, Reset: 30600 * time.Second, Window: day},
				{Limit: daily(40000000), Tenant: "org:acme", Refused: true, Reset: 30600 * time.Second, Window: day},
			},
			policy: `"daily";q=10000000;w=86400;pk=:QPW1yTYDDllD:, "daily";q=40000000;w=86400;pk=:OpBGadh+gzjF:`,
			state:  `"daily";r=9214003;t=30600;pk=:QPW1yTYDDllD:, "daily";r=0;t=30600;pk=:OpBGadh+gzjF:`,
		},
		"grace, allocation and bytes": {
			app: units,
			limits: []authz.LimitState{
				{Limit: soft, Left: 0, GraceLeft: 1950, Reset: day, Window: 259200 * time.Second},
				{Limit: gpus, Left: 4, Reset: -1},
				{Limit: egress, Left: 5, Reset: 0, Window: time.Minute},
			},
			policy: `"automation_calls";q=30000;w=259200, "gpus";q=100;qu="gpus", "egress";q=300000000;qu="content-bytes";w=60`,
			state:  `"automation_calls";r=0;t=86400;mete-grace=1950, "gpus";r=4, "egress";r=5;t=0`,
		},
	}
}

// The worked examples, and case C130 (R5, R6, R7).
func TestFields(t *testing.T) {
	cases := examples(t)
	second, minute := rate("per_second", 10, time.Second), rate("per_minute", 300, time.Minute)
	cases["C130"] = fieldCase{
		limits: []authz.LimitState{
			{Limit: second, Refused: true, Reset: 100 * time.Millisecond, Window: time.Second},
			{Limit: minute, Left: 212, Reset: 17600 * time.Millisecond, Window: time.Minute},
		},
		policy: `"per_second";q=10;w=1, "per_minute";q=300;w=60`,
		state:  `"per_second";r=0;t=1, "per_minute";r=212;t=18`,
	}
	cases["never negative"] = fieldCase{
		limits: []authz.LimitState{{Limit: second, Left: -7, Reset: time.Second, Window: time.Second}},
		policy: `"per_second";q=10;w=1`,
		state:  `"per_second";r=0;t=1`,
	}
	for name, tt := range cases {
		t.Run(name, func(t *testing.T) {
			a := tt.app
			if a == nil {
				a = app()
			}
			policy, state := envoy.Fields(&authz.Decision{Outcome: authz.Allowed, App: a, Limits: tt.limits, Worst: -1}, knownKeys(t))
			if policy != tt.policy {
				t.Errorf("policy\n got %s\nwant %s", policy, tt.policy)
			}
			if state != tt.state {
				t.Errorf("state\n got %s\nwant %s", state, tt.state)
			}
			wellFormed(t, policy)
			wellFormed(t, state)
		})
	}
}

// knownKeys are the partition keys of the example.
func knownKeys(tb testing.TB) func(string) [9]byte {
	tb.Helper()
	return func(node string) (key [9]byte) {
		text := map[string]string{"project:p": "QPW1yTYDDllD", "org:acme": "OpBGadh+gzjF"}[node]
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			tb.Error(err)
		}
		copy(key[:], b)
		return key
	}
}

// wellFormed checks that a field parses and is written again as it was.
func wellFormed(tb testing.TB, value string) {
	tb.Helper()
	list, err := httpsfv.UnmarshalList([]string{value})
	if err != nil {
		tb.Fatalf("%q does not parse: %v", value, err)
	}
	if again, err := httpsfv.Marshal(list); err != nil || again != value {
		tb.Errorf("%q is written again as %q, %v", value, again, err)
	}
}

// What must not be in the fields: unadvertised and unlimited limits, and figures
// of others.
func TestFieldsLeftOut(t *testing.T) {
	quiet, unlimited, theirs := rate("quiet", 5, time.Second), rate("unlimited", 0, time.Second), rate("theirs", 5, time.Second)
	quiet.Advertise, unlimited.Unlimited, theirs.Disclose = false, true, plan.DiscloseNames
	limits := []authz.LimitState{
		{Limit: quiet, Leaf: true, Left: 1}, {Limit: unlimited, Leaf: true, Left: 1}, {Limit: theirs, Tenant: "org:up", Left: 1},
	}
	a := app()
	a.Headers.XRateLimit, a.Headers.XQuota = plan.XDelta, true
	r := check(t, &authz.Decision{Outcome: authz.Allowed, App: a, Limits: limits, Worst: -1})
	if got := r.GetOkResponse().GetResponseHeadersToAdd(); len(got) != 0 {
		t.Errorf("headers %v, want none", got)
	}
	limits[2].Leaf = true // the caller's own figures are not secret to it
	if _, state := envoy.Fields(&authz.Decision{App: a, Limits: limits}, nil); state != `"theirs";r=1;t=0` {
		t.Errorf("state %s", state)
	}
}

// Without a secret only the nearest of the limits of one name is shown.
func TestFieldsWithoutSecret(t *testing.T) {
	near, far := rate("daily", 10, time.Hour), rate("daily", 100, time.Hour)
	limits := []authz.LimitState{{Limit: far, Left: 90, Leaf: true}, {Limit: near, Left: 2}, {Limit: far, Left: 90}}
	policy, state := envoy.Fields(&authz.Decision{Outcome: authz.Allowed, App: app(), Limits: limits}, nil)
	if policy != `"daily";q=10` || state != `"daily";r=2;t=0` {
		t.Errorf("policy %s, state %s", policy, state)
	}
}

func TestPartitionKeys(t *testing.T) {
	a, b := envoy.PartitionKeys("one"), envoy.PartitionKeys("two")
	again := envoy.PartitionKeys("one")
	if a("org:acme") == b("org:acme") || a("org:acme") == a("org:other") || a("org:acme") != again("org:acme") {
		t.Error("keys do not depend on secret and node alone")
	}
	if envoy.PartitionKeys("") != nil {
		t.Error("keys without a secret")
	}
}

// When the fields are sent: always, near the end, on refusals, never (P72).
func TestFieldsWhen(t *testing.T) {
	l := rate("r", 10, time.Minute)
	for _, tt := range []struct {
		when                   plan.Advertise
		left                   int64
		onAdmission, onRefusal bool
	}{
		{plan.Always, 9, true, true},
		{plan.Near, 9, false, true},
		{plan.Near, 2, false, true},
		{plan.Near, 1, true, true},
		{plan.OnDenial, 1, false, true},
		{plan.Never, 1, false, false},
	} {
		a := app()
		a.Headers.RateLimit, a.Headers.RateLimitName, a.Headers.PolicyName = tt.when, "x-rl", "x-rl-policy"
		st := authz.LimitState{Limit: l, Left: tt.left, Window: time.Minute, Reset: time.Second, Leaf: true}
		ok := check(t, &authz.Decision{Outcome: authz.Allowed, App: a, Limits: []authz.LimitState{st}, Worst: -1})
		if got := hasHeader(ok.GetOkResponse().GetResponseHeadersToAdd(), "x-rl"); got != tt.onAdmission {
			t.Errorf("%v with %d left: on admission %v", tt.when, tt.left, got)
		}
		no := check(t, refusal(authz.RateLimited, a, 0, st))
		if got := hasHeader(no.GetDeniedResponse().GetHeaders(), "x-rl-policy"); got != tt.onRefusal {
			t.Errorf("%v: on refusal %v", tt.when, got)
		}
	}
}

// C45 and the X-RateLimit family, for the limit nearest to its end.
func TestOlderHeaders(t *testing.T) {
	a := app()
	a.Headers.XQuota, a.Headers.XRateLimit, a.Headers.RateLimit = true, plan.XEpoch, plan.Never
	d := &authz.Decision{Outcome: authz.Allowed, App: a, Limits: free(t), Worst: -1}
	d.Limits[0].Left = 1
	d.Limits[0].Reset = 900 * time.Millisecond
	got := check(t, d).GetOkResponse().GetResponseHeadersToAdd()
	for name, want := range map[string]string{
		"x-ratelimit-limit": "10", "x-ratelimit-remaining": "1", "x-ratelimit-reset": "1796900401",
		"x-quota-limit": "1000", "x-quota-used": "412", "x-quota-remaining": "588", "x-quota-reset": "2026-12-31T23:00:00.000Z",
	} {
		if v := headerOf(t, got, name); v != want {
			t.Errorf("%s = %q, want %q", name, v, want)
		}
	}
	a.Headers.XRateLimit = plan.XDelta
	if v := headerOf(t, check(t, d).GetOkResponse().GetResponseHeadersToAdd(), "x-ratelimit-reset"); v != "1" {
		t.Errorf("delta reset %q, want 1", v)
	}
}

// FuzzFields: everything we emit parses and is written again byte for byte.
func FuzzFields(f *testing.F) {
	f.Add("monthly", "tokens", int64(1000), int64(12), int64(5), int64(1e9), uint8(1))
	f.Add(`a"\b`, "\x00", int64(-1), int64(-1), int64(-1), int64(-1), uint8(2))
	f.Add("grün", "", int64(1)<<62, int64(1)<<62, int64(0), int64(1)<<62, uint8(3))
	f.Fuzz(func(t *testing.T, name, unit string, amount, left, grace, span int64, kind uint8) {
		l := quota(name, amount, unit, plan.CalendarDay)
		l.Kind = plan.LimitKind(kind%3 + 1)
		st := authz.LimitState{Limit: l, Left: left, GraceLeft: grace, Reset: time.Duration(span), Window: time.Duration(span), Leaf: true}
		up := st
		up.Tenant = name
		d := &authz.Decision{Outcome: authz.Allowed, App: app(), Limits: []authz.LimitState{st, up}, Worst: -1}
		policy, state := envoy.Fields(d, envoy.PartitionKeys("k"))
		if (policy == "") != (state == "") {
			t.Fatalf("policy %q but state %q", policy, state)
		}
		if policy != "" {
			wellFormed(t, policy)
			wellFormed(t, state)
		}
		d.App.Headers.XQuota, d.App.Headers.XRateLimit = true, plan.XEpoch
		check(t, d)
	})
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Millisecond: 1, time.Second: 1, time.Second + 1: 2, 59001 * time.Millisecond: 60,
	} {
		if got := envoy.Seconds(d); got != want {
			t.Errorf("seconds(%v) = %d, want %d (C127)", d, got, want)
		}
	}
}
