package authz_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// rules tells what the rules of all domains have counted, by name: "edge svc_a.op_b:
// total 3, within 2, near 1, over 1, shadow 0".
func (k *desk) rules() []string {
	var all []string
	for _, r := range k.d.Stats().Rules {
		all = append(all, fmt.Sprintf("%s %s: total %d, within %d, near %d, over %d, shadow %d", r.Domain, r.Rule, r.Total, r.Within, r.Near, r.Over, r.Shadow))
	}
	slices.Sort(all)
	return all
}

func (k *desk) wantRules(want ...string) {
	k.t.Helper()
	if got := k.rules(); !slices.Equal(got, want) {
		k.t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// The rules of real-configs/09-shadow.
func TestRuleStats_P1_C126_ShadowHasItsOwnCount(t *testing.T) {
	inBubble(t, `
domain: edge
descriptors:
  - key: svc
    value: auth
    descriptors:
      - {key: user, rate_limit: {unit: minute, requests_per_unit: 2}, shadow_mode: true}
      - {key: user, value: mallory, rate_limit: {unit: minute, requests_per_unit: 1}}
`, func(_ *testing.T, k *desk) {
		for range 10 {
			k.count("svc=auth user=ann")
		}
		k.count("svc=auth user=mallory")
		k.count("svc=auth user=mallory")
		k.wantRules(
			"edge svc_auth.user: total 10, within 2, near 1, over 8, shadow 8",
			"edge svc_auth.user_mallory: total 2, within 1, near 1, over 1, shadow 0",
		)
	})
}

// The rules of real-configs/18-metrics-flags.
const flagged = `
domain: edge
descriptors:
  - key: route
    value: /api/*
    value_to_metric: true
    descriptors:
      - {key: method, rate_limit: {unit: minute, requests_per_unit: 2}}
  - key: svc
    value_to_metric: true
    descriptors:
      - {key: op, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 2}}
  - key: plain
    descriptors:
      - {key: op, rate_limit: {unit: minute, requests_per_unit: 2}}
`

func TestRuleStats_P6_C027_ValuesOnlyWhereARuleAsksForThem(t *testing.T) {
	inBubble(t, flagged, func(_ *testing.T, k *desk) {
		for range 3 {
			k.count("route=/api/x method=GET")
			k.count("route=/api/y method=GET")
			k.count("svc=a op=b")
			k.count("svc=a op=c\xff\x00")
			k.count("plain=a op=b")
			k.count("plain=c op=d")
		}
		k.wantRules(
			"edge plain.op: total 6, within 4, near 2, over 2, shadow 0",
			"edge route_/api/x.method: total 3, within 2, near 1, over 1, shadow 0",
			"edge route_/api/y.method: total 3, within 2, near 1, over 1, shadow 0",
			"edge svc_a.op_b: total 3, within 2, near 1, over 1, shadow 0",
			`edge svc_a.op_c\xFF\x00: total 3, within 2, near 1, over 1, shadow 0`,
		)
	})
}

// A request that crosses the line of 80 % counts with what is above it; one that crosses
// the limit is over with all its hits, and none of them was taken.
func TestRuleStats_P17_NearTheLimit(t *testing.T) {
	inBubble(t, edge("", limited("q", "hour", 10), limited("b", "minute", 10), limited("c", "minute", 10)), func(_ *testing.T, k *desk) {
		for _, key := range []string{"q", "b"} {
			for _, hits := range []int{7, 2, 7, 0, 1, 1} { // 7, 9, refused, a look, 10, refused
				k.count(fmt.Sprintf("%s=1 x%d", key, hits))
			}
		}
		k.count("c=1 x10")
		k.count("c=2 x8")
		k.wantRules(
			"edge b: total 18, within 10, near 2, over 8, shadow 0",
			"edge c: total 18, within 18, near 2, over 0, shadow 0",
			"edge q: total 18, within 10, near 2, over 8, shadow 0",
		)
	})
}

func TestRuleStats_P17_P10_RefusedHitsCharged(t *testing.T) {
	inBubble(t, edge("refused_hits: charged", limited("q", "hour", 10), limited("b", "minute", 10)), func(_ *testing.T, k *desk) {
		for _, key := range []string{"q", "b"} {
			for _, hits := range []int{8, 7, 1} { // 8, refused and at the limit, refused
				k.count(fmt.Sprintf("%s=1 x%d", key, hits))
			}
		}
		k.wantRules("edge b: total 16, within 8, near 0, over 8, shadow 0", "edge q: total 16, within 8, near 0, over 8, shadow 0")
	})
}

// What a rule has room for is within, though another one refuses the request, and near
// by where it would have landed.
func TestRuleStats_C030_RefusedByAnother(t *testing.T) {
	inBubble(t, edge("", limited("wide", "minute", 10), limited("tight", "minute", 0)), func(_ *testing.T, k *desk) {
		k.count("wide=1 x9", "tight=1 x9")
		k.count("wide=1 x10", "tight=1")
		k.wantRules("edge tight: total 10, within 0, near 0, over 10, shadow 0", "edge wide: total 19, within 19, near 3, over 0, shadow 0")
	})
}

// A quota rule without room counts so, also where others let the request on.
func TestRuleStats_P5_C126_QuotaMode(t *testing.T) {
	inBubble(t, edge("", "{key: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}", "{key: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 9}}"),
		func(_ *testing.T, k *desk) {
			k.count("a=1", "b=1")
			k.wantCount("allowed OK:0 OK:7", "a=1", "b=1")
			k.wantRules("edge a: total 2, within 1, near 1, over 1, shadow 0", "edge b: total 2, within 2, near 0, over 0, shadow 0")
		})
}

func TestRuleStats_P3_P4_P13_WhatCounts(t *testing.T) {
	inBubble(t, edge("",
		"{key: free, rate_limit: {unlimited: true}}", "{key: none}",
		"{key: old, rate_limit: {name: old, unit: minute, requests_per_unit: 1}}",
		"{key: new, rate_limit: {name: new, unit: minute, requests_per_unit: 9, replaces: [{name: old}]}}",
	), func(_ *testing.T, k *desk) {
		k.count("free=1 x5")
		k.count("none=1", "no=rule")
		k.count("old=1", "new=1")
		k.count("new=1 x0")
		k.count("new=1 -1")
		k.wantRules("edge free: total 5, within 5, near 0, over 0, shadow 0", "edge new: total 1, within 1, near 0, over 0, shadow 0")
	})
}

func TestRuleStats_P2_ShadowModeOfTheDomain(t *testing.T) {
	inBubble(t, edge("shadow_mode: true", limited("a", "minute", 1)), func(_ *testing.T, k *desk) {
		k.count("a=1")
		k.count("a=1 x4")
		k.wantRules("edge a: total 5, within 1, near 1, over 4, shadow 4")
	})
}

// A limit that Envoy sends along counts under the rule in whose place it holds, and
// without one under the keys: its values would be anybody's.
func TestRuleStats_C051_C027_Overrides(t *testing.T) {
	inBubble(t, edge("", limited("a", "minute", 100), "{key: none}"), func(_ *testing.T, k *desk) {
		for range 3 {
			k.count("a=1 of 2/minute", "none=1 of 9/hour", "x=1 y=2 of 9/hour")
		}
		k.wantRules(
			"edge a: total 3, within 2, near 1, over 1, shadow 0",
			"edge none: total 3, within 3, near 0, over 0, shadow 0",
			"edge x.y: total 3, within 3, near 0, over 0, shadow 0",
		)
	})
}

// Of a limit that is split a replica is near when its own share is.
func TestRuleStats_P17_R22_Split(t *testing.T) {
	inBubble(t, edge("replicas: split", limited("a", "minute", 40)), func(_ *testing.T, k *desk) {
		k.d.SetReplicas(4)
		for range 11 {
			k.count("a=1")
		}
		k.wantRules("edge a: total 11, within 10, near 2, over 1, shadow 0")
	})
}

// Of hits one by one everything is as envoyproxy/ratelimit counts it in one window.
func TestRuleStats_P17_AsEnvoysRateLimitCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit, hits := rapid.Int64Range(0, 40).Draw(rt, "limit"), rapid.Int64Range(0, 60).Draw(rt, "hits")
		var total, within, near, over int64
		for used := int64(1); used <= hits; used++ {
			total++
			if used > limit {
				over++
				continue
			}
			within++
			if used > int64(float32(limit)*0.8) {
				near++
			}
		}
		d := authz.New(authz.Config{Keeper: idleKeeper(), Now: time.Now})
		d.SetSnapshot(snapshot(t, edge("", limited("a", "minute", int(limit)))))
		now, c := time.Now(), new(authz.Count)
		for range hits {
			c.Reset()
			d.CountDescriptors(context.Background(), now, "edge", []authz.DescriptorAsk{askOf("a=1")}, false, c)
		}
		want := []authz.RuleStat{{Domain: "edge", Rule: "a", Total: total, Within: within, Near: near, Over: over}}
		if got := d.Stats().Rules; hits > 0 && !slices.Equal(got, want) || hits == 0 && len(got) > 0 {
			rt.Fatalf("%d hits of %d: %+v, want %+v", hits, limit, got, want)
		}
	})
}

func snapshot(tb testing.TB, docs string) *plan.Snapshot {
	tb.Helper()
	decoded, problems := plan.Decode("test.yaml", []byte(docs))
	if plan.Refused(problems) {
		tb.Fatalf("documents: %v", problems)
	}
	c := plan.NewCatalog()
	for i, doc := range decoded {
		c.Put(doc, int64(i+1))
	}
	return c.Snapshot()
}

// Values that callers make up fill the cap and nothing else; each hit is counted.
func TestRuleStats_P6_C027_HundredThousandValuesStayUnderTheCap(t *testing.T) {
	t.Parallel()
	const most, values = 1000, 100_000
	d := authz.New(authz.Config{Keeper: idleKeeper(), Now: time.Now, MaxRuleSeries: most, MaxCounters: 1000})
	d.SetSnapshot(snapshot(t, flagged))
	now, c := time.Now(), new(authz.Count)
	ask := []authz.DescriptorAsk{{Entries: []plan.DescriptorEntry{{Key: "svc", Value: "a"}, {}}, Hits: 1}}
	for i := range values {
		c.Reset()
		ask[0].Entries[1] = plan.DescriptorEntry{Key: "op", Value: fmt.Sprint(i) + "\xff"}
		d.CountDescriptors(context.Background(), now, "edge", ask, false, c)
		now = now.Add(time.Second) // so that counters can go
	}
	s := d.Stats()
	if s.RuleSeries > most || len(s.Rules) > most || len(s.Rules) < most-3 {
		t.Errorf("%d series, of which %d have hits; want at most %d and not far less", s.RuleSeries, len(s.Rules), most)
	}
	var total, others int64
	for _, r := range s.Rules {
		total += r.Total
		if r.Rule == authz.OtherRules {
			others += r.Total
		}
		if !utf8.ValidString(r.Rule) || r.Domain != "edge" {
			t.Errorf("%q %q", r.Domain, r.Rule)
		}
	}
	if total != values || others != s.RuleSeriesDropped || others < values-most {
		t.Errorf("%d hits, %d of others, %d dropped", total, others, s.RuleSeriesDropped)
	}
}

// At the cap each domain has one series for all that is new, within the cap; a domain
// that came too late shares one.
func TestRuleStats_C027_AtTheCap(t *testing.T) {
	t.Parallel()
	for most, want := range map[int][]string{
		1: {"(other) (other) 9"},
		2: {"(other) (other) 9"},
		3: {"(other) (other) 6", "d1 (other) 2", "d1 k_0 1"},
		4: {"(other) (other) 6", "d1 (other) 1", "d1 k_0 1", "d1 k_1 1"},
		5: {"(other) (other) 6", "d1 k_0 1", "d1 k_1 1", "d1 k_2 1"},
		6: {"(other) (other) 6", "d1 k_0 1", "d1 k_1 1", "d1 k_2 1"},
		7: {"(other) (other) 3", "d1 k_0 1", "d1 k_1 1", "d1 k_2 1", "d2 (other) 2", "d2 k_0 1"},
		9: {"(other) (other) 3", "d1 k_0 1", "d1 k_1 1", "d1 k_2 1", "d2 k_0 1", "d2 k_1 1", "d2 k_2 1"},
		0: {"d1 k_0 1", "d1 k_1 1", "d1 k_2 1", "d2 k_0 1", "d2 k_1 1", "d2 k_2 1", "d3 k_0 1", "d3 k_1 1", "d3 k_2 1"},
	} {
		d := authz.New(authz.Config{Keeper: idleKeeper(), Now: time.Now, MaxRuleSeries: most})
		var docs []string
		for i := range 3 {
			docs = append(docs, fmt.Sprintf("domain: d%d\ndescriptors:\n  - {key: k, detailed_metric: true, rate_limit: {unit: minute, requests_per_unit: 9}}\n", i+1))
		}
		d.SetSnapshot(snapshot(t, strings.Join(docs, "---\n")))
		for i := range 9 {
			c := new(authz.Count)
			c.Reset()
			d.CountDescriptors(context.Background(), time.Now(), fmt.Sprintf("d%d", i/3+1), []authz.DescriptorAsk{askOf(fmt.Sprintf("k=%d", i%3))}, false, c)
		}
		s := d.Stats()
		var got []string
		for _, r := range s.Rules {
			got = append(got, fmt.Sprintf("%s %s %d", r.Domain, r.Rule, r.Total))
		}
		if slices.Sort(got); !slices.Equal(got, want) || most > 0 && s.RuleSeries > int64(most) {
			t.Errorf("%d: got %q of %d series, want %q", most, got, s.RuleSeries, want)
		}
	}
}

// What rules have counted stays when they go: a counter never goes back.
func TestRuleStats_C017_DeletedRulesStay(t *testing.T) {
	inBubble(t, edge("", limited("a", "minute", 5)), func(_ *testing.T, k *desk) {
		k.count("a=1")
		k.put(edge("", limited("b", "minute", 5)))
		k.count("a=1")
		k.count("b=1")
		k.remove(plan.KindRateLimits, "edge")
		k.count("b=1")
		k.wantRules("edge a: total 1, within 1, near 0, over 0, shadow 0", "edge b: total 1, within 1, near 0, over 0, shadow 0")
	})
}

// Where nothing could be decided nothing is counted.
func TestRuleStats_A60_UndecidedHitsCountNothing(t *testing.T) {
	inBubble(t, edge("on_unavailable: deny", limited("q", "hour", 5), limited("b", "minute", 5)), func(_ *testing.T, k *desk) {
		k.store.slow(time.Hour)
		if c := k.count("q=1", "b=1"); c.Outcome != authz.Unavailable {
			k.t.Fatal(counted(c))
		}
		k.wantRules()
	})
}

// Hits of many goroutines are all counted, and what is read meanwhile makes sense.
func TestRuleStats_C027_Concurrently(t *testing.T) {
	t.Parallel()
	const workers, each, names, most = 4, 2000, 60, 50
	d := authz.New(authz.Config{Keeper: idleKeeper(), Now: time.Now, MaxRuleSeries: most})
	d.SetSnapshot(snapshot(t, flagged))
	now := time.Now()
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			c := new(authz.Count)
			for i := range each {
				c.Reset()
				d.CountDescriptors(context.Background(), now, "edge", []authz.DescriptorAsk{askOf(fmt.Sprintf("svc=a op=%d", (i+w)%names))}, false, c)
				for _, r := range d.Stats().Rules {
					if r.Near > r.Within || r.Shadow > r.Over || r.Total != r.Within+r.Over {
						t.Errorf("%+v", r)
					}
				}
			}
		})
	}
	wg.Wait()
	s := d.Stats()
	if n := totalOf(t, s.Rules); n != workers*each || s.RuleSeries != most {
		t.Errorf("%d hits in %d series", n, s.RuleSeries)
	}
}

// Of goroutines that come to a new name at the same moment, one begins its series.
func TestRuleStats_C027_EachSeriesBeginsOnce(t *testing.T) {
	t.Parallel()
	const workers, each = 3, 3000
	names := authz.NewRuleNames(each)
	var arrived atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := range each {
				arrived.Add(1)
				for arrived.Load() < int64(i+1)*workers {
					runtime.Gosched()
				}
				names.Count("edge", fmt.Sprint(i))
			}
		})
	}
	wg.Wait()
	if n := totalOf(t, names.Stats().Rules); n != workers*each {
		t.Errorf("%d hits, want %d", n, workers*each)
	}
}

// totalOf returns all hits of rules, no two of which may have one name.
func totalOf(tb testing.TB, rules []authz.RuleStat) (total int64) {
	tb.Helper()
	known := map[string]bool{}
	for _, r := range rules {
		total += r.Total
		if known[r.Domain+" "+r.Rule] {
			tb.Errorf("%s %s is there twice", r.Domain, r.Rule)
		}
		known[r.Domain+" "+r.Rule] = true
	}
	return total
}

func TestRuleStats_AllocatesNothing(t *testing.T) {
	for name, most := range map[string]int{"own": 0, "other": 1} {
		d := authz.New(authz.Config{Keeper: idleKeeper(), Now: time.Now, MaxRuleSeries: most})
		d.SetSnapshot(snapshot(t, flagged))
		now, c := time.Now(), new(authz.Count)
		asks := []authz.DescriptorAsk{askOf("plain=a op=b"), askOf("svc=a op=" + strings.Repeat("\xff", 300))}
		c.Reset()
		if n := testing.AllocsPerRun(200, func() {
			c.Reset()
			d.CountDescriptors(context.Background(), now, "edge", asks, false, c)
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkRuleStats(b *testing.B) {
	for name, text := range map[string]string{"fixed": "plain=a op=b", "sent": "svc=checkout op=create"} {
		b.Run(name, func(b *testing.B) {
			k := authz.NewRuleCounter(0, snapshot(b, flagged), "edge", askOf(text))
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					k.Count()
				}
			})
		})
	}
	b.Run("at the cap", func(b *testing.B) {
		k := authz.NewRuleCounter(1, snapshot(b, flagged), "edge", askOf("svc=checkout op=create"))
		b.ReportAllocs()
		for b.Loop() {
			k.Count()
		}
	})
}
