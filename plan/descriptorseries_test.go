package plan_test

import (
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/plan"
)

const flagged = `
domain: edge
descriptors:
  - key: route
    value: /api/*
    value_to_metric: true
    descriptors:
      - {key: method, rate_limit: &two {unit: minute, requests_per_unit: 2}}
  - key: svc
    value_to_metric: true
    descriptors:
      - {key: op, detailed_metric: true, rate_limit: *two}
  - key: plain
    descriptors:
      - {key: op, rate_limit: *two}
  - key: org
    value: northwind
    descriptors:
      - {key: route, value: export, rate_limit: *two}
      - {key: route, value: "imp*", rate_limit: *two}
      - {key: route, value: "dry*", value_to_metric: true, share_threshold: true, rate_limit: *two}
      - {key: route, regex: "/v[0-9]+/.*", rate_limit: *two}
      - {key: verb, regex: "G.T", value_to_metric: true, rate_limit: *two}
      - {key: verb, regex: "P.+T", share_threshold: true, value_to_metric: true, rate_limit: *two}
      - {key: free, detailed_metric: true, rate_limit: {unlimited: true}}
      - {key: none}
  - key: zone
    value: z*
    share_threshold: true
    descriptors:
      - {key: user, detailed_metric: true, rate_limit: *two}
      - {key: user, value: root, detailed_metric: true, rate_limit: *two}
  - {key: tag, value_to_metric: true, rate_limit: *two}
`

func flaggedTable(tb testing.TB) *plan.DescriptorTable {
	tb.Helper()
	_, limits, problems := decodeAll("f", []byte(flagged))
	if len(limits) != 1 {
		tb.Fatalf("refused:\n%s", lines(problems))
	}
	return plan.NewDescriptorTable(limits[0])
}

// seriesOf returns the name in metrics that a descriptor such as `a=b, c="\xff"` counts
// under.
func seriesOf(tb testing.TB, table *plan.DescriptorTable, asked string) string {
	tb.Helper()
	e := entries(tb, asked)
	m, _ := table.Match(e, nil)
	if m == nil {
		tb.Fatalf("%s matches nothing", asked)
	}
	return string(m.AppendSeries(nil, e))
}

// The names are those of envoyproxy/ratelimit, which shows values as sent only where a
// rule asks for it.
func TestAppendSeries_P6_C027_AsEnvoysRateLimitSpellsIt(t *testing.T) {
	t.Parallel()
	table := flaggedTable(t)
	for _, row := range []struct{ asked, want string }{
		{"route=/api/x, method=GET", "route_/api/x.method"},
		{"svc=a, op=b", "svc_a.op_b"},
		{"plain=a, op=b", "plain.op"},
		{"org=northwind, route=export", "org_northwind.route_export"},
		{"org=northwind, route=import", "org_northwind.route_imp*"},
		{"org=northwind, route=dryrun", "org_northwind.route_dry*"},
		{"org=northwind, route=/v1/x", "org_northwind.route_/v[0-9]+/.*"},
		{"org=northwind, verb=GET", "org_northwind.verb_GET"},
		{"org=northwind, verb=POST", "org_northwind.verb_P.+T"},
		{"org=northwind, free=1", "org_northwind.free_1"},
		{"org=northwind, none=1", "org_northwind.none"},
		{"zone=z1, user=ann", "zone_z*.user_ann"},
		{"zone=z1, user=root", "zone_z*.user_root"},
		{"tag=a", "tag_a"},
		{"tag=", "tag"},
		{`tag="caf\xe9"`, `tag_caf\xE9`},
		{`tag="caf\xc3\xa9"`, "tag_café"},
		{`tag="a\x00\n\u2028b"`, `tag_a\x00\x0A\xE2\x80\xA8b`},
	} {
		if got := seriesOf(t, table, row.asked); got != row.want {
			t.Errorf("%s is %s; want %s", row.asked, got, row.want)
		}
	}
}

// A limit that Envoy sends along needs no rule; its values are nobody's to show.
func TestAppendSeries_C051_C027_WithoutARuleOnlyKeys(t *testing.T) {
	t.Parallel()
	var none *plan.DescriptorMatch
	if got := string(none.AppendSeries([]byte("before "), entries(t, "org=a, route=b"))); got != "before org.route" {
		t.Error(got)
	}
}

// Long names end in a hash, which tells them apart and is known beforehand.
func TestAppendSeries_C027_LongNames(t *testing.T) {
	t.Parallel()
	table := flaggedTable(t)
	fits := strings.Repeat("a", plan.MaxSeries-len("tag_"))
	if got := seriesOf(t, table, "tag="+fits); got != "tag_"+fits {
		t.Errorf("%q is cut, and fits", got)
	}
	e := entries(t, "tag="+fits)
	m, _ := table.Match(e, nil)
	if got := string(m.AppendSeries([]byte("before "), e)); got != "before tag_"+fits {
		t.Errorf("%q is cut for what is before it", got)
	}
	for _, long := range []string{fits, strings.Repeat("é", 600), strings.Repeat("\xff", 1<<20)} {
		a, b := seriesOf(t, table, fmt.Sprintf("tag=%q", long+"a")), seriesOf(t, table, fmt.Sprintf("tag=%q", long+"b"))
		if a == b || len(a) > plan.MaxSeries || len(b) > plan.MaxSeries || a[:170] != b[:170] || !utf8.ValidString(a) {
			t.Errorf("got %s (%d bytes)\nand %s (%d bytes)", a, len(a), b, len(b))
		}
	}
	// All replicas say the same, those of an older version too: FNV-1a of "tag_aaa...a.".
	if got := seriesOf(t, table, "tag="+strings.Repeat("a", 300)); got != "tag_"+strings.Repeat("a", 179)+"~1fb0f3a0850c7522" {
		t.Error(got)
	}
}

func TestAppendSeries_C027_WhateverIsSentTheNameIsALabel(t *testing.T) {
	t.Parallel()
	named := 0
	rapid.Check(t, func(t *rapid.T) {
		l := &plan.RateLimits{Domain: "d", Rules: drawRules(t, 3)}
		sent := rapid.SliceOfN(rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 400), func(b []byte) string { return string(b) }), 3, 3).Draw(t, "values")
		flags(t, l.Rules)
		table := plan.NewDescriptorTable(l)
		asked := request(t, l.Rules)
		for i := range min(3, len(asked)) {
			if rapid.Bool().Draw(t, "any bytes") {
				asked[i].Value = sent[i]
			}
		}
		m, _ := table.Match(asked, nil)
		if m == nil {
			return
		}
		named++
		name := string(m.AppendSeries([]byte("at "), asked))
		name, ok := strings.CutPrefix(name, "at ")
		if !ok || name == "" || len(name) > plan.MaxSeries || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Fatalf("%q is not a label", name)
		}
		if n := m.AppendSeries(nil, asked); string(n) != name {
			t.Fatalf("%q is %q the second time", name, n)
		}
	})
	if named == 0 {
		t.Error("nothing was named")
	}
}

// flags makes up what rules say of metrics.
func flags(t *rapid.T, rules []plan.DescriptorRule) {
	for i := range rules {
		r := &rules[i]
		r.DetailedMetric, r.ValueToMetric = rapid.Bool().Draw(t, "detailed"), rapid.Bool().Draw(t, "value to metric")
		if rapid.Bool().Draw(t, "limited") {
			r.Limit = &plan.DescriptorLimit{Amount: 1, Unit: plan.UnitMinute, Multiplier: 1}
		}
		flags(t, r.Rules)
	}
}

func TestAppendSeries_AllocatesNothing(t *testing.T) {
	table, room := flaggedTable(t), make([]byte, 0, 256)
	for _, text := range []string{"plain=a, op=b", "svc=a, op=b", "tag=" + strings.Repeat("x", 5000), "org=northwind, verb=GET"} {
		e := entries(t, text)
		m, _ := table.Match(e, nil)
		if n := testing.AllocsPerRun(100, func() { m.AppendSeries(room, e) }); n != 0 {
			t.Errorf("%.20s: %v allocations", text, n)
		}
	}
}

func BenchmarkAppendSeries(b *testing.B) {
	table, room := flaggedTable(b), make([]byte, 0, 256)
	for name, text := range map[string]string{"fixed": "org=northwind, route=export", "sent": "svc=checkout, op=" + strings.Repeat("o", 20)} {
		e := entries(b, text)
		m, _ := table.Match(e, nil)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.AppendSeries(room, e)
			}
		})
	}
}
