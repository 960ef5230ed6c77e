package plan_test

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/plan"
)

// P35: the name of a counter tells what it counts, and by which rule.
func TestCounter_P35_IsTheInverseOfMatch(t *testing.T) {
	t.Parallel()
	shared := 0
	rapid.Check(t, func(t *rapid.T) {
		l := &plan.RateLimits{Domain: rapid.SampledFrom([]string{"d", "d?k=", "a/b"}).Draw(t, "domain"), Rules: readRules(t, drawRules(t, 3))}
		table := plan.NewDescriptorTable(l)
		for range 8 {
			asked := request(t, l.Rules)
			if m, name := table.Match(asked, nil); m != nil {
				entries, got, ok := table.Counter(string(name))
				if !ok || got != m || len(entries) != len(asked) {
					t.Fatalf("%s of %q is read as %+v of rule %+v, want %+v", name, asked, entries, ruleOf(got), m.Rule)
				}
				if again := table.AppendName(nil, entries); string(again) != string(name) {
					t.Fatalf("%s is read as %+v, whose name is %s", name, entries, again)
				}
				for i, e := range entries {
					switch {
					case e.Shared:
						shared++
					case e.Key != asked[i].Key || e.Value != asked[i].Value || e.Regex:
						t.Fatalf("%s of %q is read as %+v", name, asked, entries)
					}
				}
			}
			name := string(table.AppendCounter(nil, asked))
			entries, _, ok := table.Counter(name)
			if !ok || len(entries) != len(asked) {
				t.Fatalf("%s of %q is read as %+v", name, asked, entries)
			}
			for i, e := range entries {
				if e != (plan.CounterEntry{Key: asked[i].Key, Value: asked[i].Value}) {
					t.Fatalf("%s of %q is read as %+v", name, asked, entries)
				}
			}
		}
	})
	if shared == 0 {
		t.Error("nothing was shared; the comparison is empty")
	}
}

// P35: what no domain calls a counter so is not read as one.
func TestCounter_P35_RefusesOtherNames(t *testing.T) {
	t.Parallel()
	table := plan.NewDescriptorTable(&plan.RateLimits{Domain: "edge", Rules: []plan.DescriptorRule{
		{Key: "path", Value: "/a*", ShareThreshold: true}, {Key: "org"},
	}})
	for _, name := range []string{
		"", "edge", "edge?", "gate?org=a", "edge?org", "edge?org=a&", "edge?org=%", "edge?org=%G1", "edge?org=%61", "edge?org=a b", "edge?org=%2f", "edge?o*rg=a", "edge?org*=a*", "edgeX?org=a",
	} {
		if entries, _, ok := table.Counter(name); ok {
			t.Errorf("%q is read as %+v", name, entries)
		}
	}
	for name, rule := range map[string]bool{
		"edge?path=%2Fa*": true, "edge?org=a": true, "edge?path=%2Fb*": false, "edge?path=%2Fa%2A": false, "edge?org=*": false, "edge?nobody=a": false, "edge?path*=%5E": false,
	} {
		if _, m, ok := table.Counter(name); !ok || (m != nil) != rule {
			t.Errorf("%q is a name: %v, of a rule: %v; want true and %v", name, ok, m != nil, rule)
		}
	}
}

func FuzzCounter(f *testing.F) {
	f.Add("edge?path=%2Fa*&org=%FF")
	f.Add("edge?p*=a%2A")
	table := plan.NewDescriptorTable(&plan.RateLimits{Domain: "edge", Rules: []plan.DescriptorRule{{Key: "path", Value: "/a*", ShareThreshold: true}}})
	f.Fuzz(func(t *testing.T, name string) {
		if entries, _, ok := table.Counter(name); ok && string(table.AppendName(nil, entries)) != name {
			t.Errorf("%q is read as %+v", name, entries)
		}
	})
}

// P35, P12: what a limit counts in tells its window.
func TestParseAccount_P35_IsTheInverseOfAccount(t *testing.T) {
	t.Parallel()
	for unit := plan.UnitSecond; unit <= plan.UnitYear; unit++ {
		for _, times := range []int64{1, 2, 6, 876_000} {
			for _, amount := range []int64{0, 5, 1<<32 - 1} {
				l := plan.DescriptorLimit{Unit: unit, Multiplier: times, Amount: amount}
				if got, ok := plan.ParseAccount(l.Override()); !ok || fmt.Sprint(got) != fmt.Sprint(l) {
					t.Errorf("%s is read as %+v", l.Override(), got)
				}
				l.Amount = -1
				if got, ok := plan.ParseAccount(l.Account()); !ok || fmt.Sprint(got) != fmt.Sprint(l) {
					t.Errorf("%s is read as %+v", l.Account(), got)
				}
			}
		}
	}
	for _, other := range []string{
		"", "monthly", "per_hour", "ratelimit:", "ratelimit:per_", "ratelimit:per_1_hour", "ratelimit:per_02_hour", "ratelimit:per_x_hour", "ratelimit:per_hours",
		"ratelimit:per_hour=", "ratelimit:per_hour=-1", "ratelimit:per_hour=05", "ratelimit:per_hour=+5", "ratelimit:per_6_hour_", "ratelimit:per_-2_hour", "ratelimit:per_0_hour",
	} {
		if l, ok := plan.ParseAccount(other); ok {
			t.Errorf("%q is read as %+v", other, l)
		}
	}
}
