package plan_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/plan"
)

// A naive matcher goes through the rules one by one, as the rules of matching read.
func naive(rules []plan.DescriptorRule, entries []plan.DescriptorEntry) (rule *plan.DescriptorRule, counter string) {
	var best *plan.DescriptorRule
	for _, matches := range []func(r *plan.DescriptorRule, value string) bool{
		func(r *plan.DescriptorRule, value string) bool { return r.Value != "" && r.Value == value },
		func(r *plan.DescriptorRule, value string) bool {
			return strings.Contains(r.Value, "*") && glob(r.Value, value) || r.Regex != "" && wholly(r.Regex, value)
		},
		func(r *plan.DescriptorRule, _ string) bool { return r.Value == "" && r.Regex == "" },
	} {
		for i := range rules {
			if r := &rules[i]; best == nil && r.Key == entries[0].Key && matches(r, entries[0].Value) {
				best = r
			}
		}
	}
	if best == nil {
		return nil, ""
	}
	counter = fmt.Sprintf("%q=%q", best.Key, entries[0].Value)
	if best.ShareThreshold {
		counter = fmt.Sprintf("%q~%q~%q", best.Key, best.Value, best.Regex)
	}
	if len(entries) == 1 {
		return best, counter
	}
	rule, below := naive(best.Rules, entries[1:])
	return rule, counter + "," + below
}

func ruleOf(m *plan.DescriptorMatch) *plan.DescriptorRule {
	if m == nil {
		return nil
	}
	return m.Rule
}

// wholly reports whether the longest match of a regular expression that begins a text ends
// it: whether all of it is one.
func wholly(expression, s string) bool {
	r := regexp.MustCompile(expression)
	r.Longest()
	at := r.FindStringIndex(s)
	return at != nil && at[0] == 0 && at[1] == len(s)
}

// glob tries every length of every star.
func glob(pattern, s string) bool {
	switch {
	case pattern == "":
		return s == ""
	case pattern[0] == '*':
		for i := range len(s) + 1 {
			if glob(pattern[1:], s[i:]) {
				return true
			}
		}
		return false
	}
	return s != "" && s[0] == pattern[0] && glob(pattern[1:], s[1:])
}

// drawRules makes up a level of rules, no two of them alike.
func drawRules(t *rapid.T, depth int) []plan.DescriptorRule {
	var rules []plan.DescriptorRule
	known := map[plan.DescriptorSpot]bool{}
	for range rapid.IntRange(0, 5).Draw(t, "rules") {
		r := plan.DescriptorRule{
			Key:   rapid.SampledFrom([]string{"k", "k_a", "*", "=&"}).Draw(t, "key"),
			Value: rapid.StringMatching(`[ab_*&=]{0,4}`).Draw(t, "value"),
		}
		if rapid.IntRange(0, 2).Draw(t, "by regex") == 0 {
			r.Value, r.Regex = "", rapid.SampledFrom([]string{`a*`, `a|b_`, `b|b_|.b`, `[^a]+`, `(?s).*`, `.`, `\*+`}).Draw(t, "regex")
		}
		if known[r.Spot()] {
			continue
		}
		known[r.Spot()] = true
		r.ShareThreshold = (r.Regex != "" || strings.Contains(r.Value, "*")) && rapid.Bool().Draw(t, "share")
		if depth > 1 {
			r.Rules = drawRules(t, depth-1)
		}
		rules = append(rules, r)
	}
	return rules
}

// readRules returns rules as a document has them.
func readRules(t *rapid.T, rules []plan.DescriptorRule) []plan.DescriptorRule {
	text, err := json.Marshal(map[string]any{"domain": "d", "descriptors": written(rules)})
	if err != nil {
		t.Fatal(err)
	}
	_, limits, problems := decodeAll("f", text)
	if len(limits) != 1 {
		t.Fatalf("%s is refused:\n%s", text, lines(problems))
	}
	return limits[0].Rules
}

func written(rules []plan.DescriptorRule) []any {
	all := []any{}
	for _, r := range rules {
		fields := map[string]any{"key": r.Key, "share_threshold": r.ShareThreshold, "descriptors": written(r.Rules)}
		if r.Value != "" {
			fields["value"] = r.Value
		}
		if r.Regex != "" {
			fields["regex"] = r.Regex
		}
		if r.When != "" {
			fields["when"] = r.When
		}
		all = append(all, fields)
	}
	return all
}

// request makes up a descriptor, mostly one that follows the rules.
func request(t *rapid.T, rules []plan.DescriptorRule) (all []plan.DescriptorEntry) {
	for range rapid.IntRange(1, 4).Draw(t, "entries") {
		e := plan.DescriptorEntry{
			Key:   rapid.SampledFrom([]string{"k", "k_a", "*", "=&"}).Draw(t, "key"),
			Value: rapid.StringMatching(`[ab_*&=%A]{0,5}`).Draw(t, "value"),
		}
		if len(rules) > 0 && rapid.IntRange(0, 3).Draw(t, "follow") > 0 {
			r := rules[rapid.IntRange(0, len(rules)-1).Draw(t, "which")]
			e.Key, rules = r.Key, r.Rules
			filling := rapid.SampledFrom([]string{"", "a", "b_", "*", "\xff"}).Draw(t, "filling")
			switch {
			case r.Regex != "":
				e.Value = strings.Repeat(filling, rapid.IntRange(1, 2).Draw(t, "times"))
			case r.Value != "":
				e.Value = strings.ReplaceAll(r.Value, "*", filling)
			}
		}
		all = append(all, e)
	}
	return all
}

func TestMatch_P7_P8_P9_P10_C011_C012_C014_AsTheNaiveMatcher(t *testing.T) {
	t.Parallel()
	matched := 0
	rapid.Check(t, func(t *rapid.T) {
		l := &plan.RateLimits{Domain: rapid.SampledFrom([]string{"d", "d?k=", ""}).Draw(t, "domain"), Rules: readRules(t, drawRules(t, 3))}
		table := plan.NewDescriptorTable(l)
		names, counters := map[string]string{}, map[string]string{}
		for range 8 {
			asked := request(t, l.Rules)
			want, identity := naive(l.Rules, asked)
			got, name := table.Match(asked, []byte("before"))
			if ruleOf(got) != want {
				t.Fatalf("%q matches %+v; want %+v", asked, got, want)
			}
			if want == nil {
				if string(name) != "before" {
					t.Fatalf("%q matches nothing, and the counter is %q", asked, name)
				}
				continue
			}
			matched++
			if old, ok := names[identity]; ok && old != string(name) {
				t.Fatalf("one counter has two names, %q and %q", old, name)
			}
			if old, ok := counters[string(name)]; ok && old != identity {
				t.Fatalf("%s names two counters, %s and %s", name, old, identity)
			}
			names[identity], counters[string(name)] = string(name), identity
			if strings.ContainsFunc(string(name), func(c rune) bool { return c <= ' ' || c > '~' || c == '/' }) {
				t.Fatalf("%q is not a name of a key", name)
			}
		}
	})
	if matched == 0 {
		t.Error("nothing was matched; the comparison is empty")
	}
}

// What Envoy sends a limit for counts as what no rule shares does.
func TestAppendCounter_C051_NamesTheValues(t *testing.T) {
	t.Parallel()
	table := plan.NewDescriptorTable(&plan.RateLimits{Domain: "gate", Rules: []plan.DescriptorRule{
		{Key: "a"}, {Key: "s", Value: "x*", ShareThreshold: true},
	}})
	plain := entries(t, "a=1")
	_, matched := table.Match(plain, nil)
	if got := string(table.AppendCounter([]byte("o:"), plain)); got != "o:gate?a=1" || string(matched) != "gate?a=1" {
		t.Errorf("got %s, and %s by a rule", got, matched)
	}
	if got := string(table.AppendCounter(nil, entries(t, "s=xy, t=*"))); got != "gate?s=xy&t=%2A" {
		t.Errorf("got %s", got)
	}
}

// FuzzMatch: whatever bytes are sent, the table says what the naive matcher says.
func FuzzMatch(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join("testdata", "descriptors", "*.yaml"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, "team", "a", "call", "list")
		f.Add(text, "file", "docs/\xff", "", "")
	}
	f.Fuzz(func(t *testing.T, text []byte, k1, v1, k2, v2 string) {
		_, limits, _ := decodeAll("f", text)
		for _, l := range limits {
			table := plan.NewDescriptorTable(l)
			for _, asked := range [][]plan.DescriptorEntry{{{Key: k1, Value: v1}}, {{Key: k1, Value: v1}, {Key: k2, Value: v2}}} {
				if len(v1)+len(v2) > 40 || strings.Count(string(text), "*") > 20 || strings.Contains(string(text), "when") {
					continue // the naive matcher takes too long, or knows no conditions
				}
				got, _ := table.Match(asked, nil)
				if want, _ := naive(l.Rules, asked); ruleOf(got) != want {
					t.Errorf("%q matches %+v; want %+v", asked, got, want)
				}
			}
		}
	})
}

// busy are the rules of a domain with a thousand values on two levels.
func busy() *plan.DescriptorTable {
	l := &plan.RateLimits{Domain: "edge"}
	for i := range 1000 {
		l.Rules = append(l.Rules, plan.DescriptorRule{Key: "tenant", Value: fmt.Sprintf("t%d", i), Rules: []plan.DescriptorRule{
			{Key: "path", Value: "/v1/*/items"}, {Key: "path", Value: "/v1/*"}, {Key: "path"},
		}})
	}
	return plan.NewDescriptorTable(l)
}

func TestMatch_AllocatesNothing(t *testing.T) {
	table, asked, room := busy(), entries(t, "tenant=t77, path=/v1/users/me"), make([]byte, 0, 256)
	if n := testing.AllocsPerRun(100, func() {
		if r, _ := table.Match(asked, room); r == nil || r.Rule.Value != "/v1/*" {
			t.Error("another rule")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkMatch(b *testing.B) {
	table, asked, room := busy(), entries(b, "tenant=t77, path=/v1/users/me"), make([]byte, 0, 256)
	b.ReportAllocs()
	for b.Loop() {
		if r, _ := table.Match(asked, room); r == nil {
			b.Fatal("no rule")
		}
	}
}
