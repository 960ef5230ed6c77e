package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// domains reads documents of descriptors, the text of each by its file.
func domains(t *testing.T, texts map[string]string) (all []*plan.RateLimits) {
	t.Helper()
	for file, text := range texts { // in any order
		_, limits, problems := decodeAll(file, []byte(text))
		if plan.Refused(problems) {
			t.Fatal(lines(problems))
		}
		all = append(all, limits...)
	}
	return all
}

// ruleTree writes out rules as "a b=c(d e)".
func ruleTree(rules []plan.DescriptorRule) string {
	all := make([]string, 0, len(rules))
	for _, r := range rules {
		s := r.Key
		if r.Value != "" {
			s += "=" + r.Value
		}
		if len(r.Rules) > 0 {
			s += "(" + ruleTree(r.Rules) + ")"
		}
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

const (
	once    = "domain: d\ndescriptors:\n- {key: k, value: a*, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	other   = "domain: d\ndescriptors:\n- {key: k, value: \"*a\", rate_limit: {unit: day, requests_per_unit: 1}}\n"
	holds   = "domain: d\ndescriptors:\n- key: p\n  descriptors: [{key: x}, {key: y, descriptors: [{key: 1}]}]\n"
	more    = "domain: d\ndescriptors:\n- key: p\n  descriptors: [{key: z}, {key: y, descriptors: [{key: 2}]}]\n"
	limited = "domain: d\ndescriptors: [{key: p, rate_limit: {unit: day, requests_per_unit: 1}, descriptors: [{key: x}, {key: y}]}]\n"
	again   = "domain: d\ndescriptors:\n- key: p\n  descriptors: [{key: y, descriptors: [{key: 0}, {key: 1}]}]\n"
)

func TestMergeRateLimits_P70_C002_ByFileName(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		texts map[string]string
		want  string // domains and rules
		says  string
	}{
		{"one", map[string]string{"a": once}, "d: k=a*\n", ""},
		{"in the order of names", map[string]string{"b": once, "a": other}, "d: k=*a k=a*\n", ""},
		{"and the other way", map[string]string{"a": once, "b": other}, "d: k=a* k=*a\n", ""},
		{"in one file", map[string]string{"a": other + "---\n" + once}, "d: k=*a k=a*\n", ""},
		{"domains apart", map[string]string{"a": once, "b": strings.Replace(once, "domain: d", "domain: c", 1)}, "c: k=a*\nd: k=a*\n", ""},
		{"twice", map[string]string{"b.yaml": once, "a.yaml": "# first\n" + once}, "", "b.yaml:3:3: d / k=a*: is in a.yaml:4 already; keep one\n"},
		{"twice in one file", map[string]string{"a": once + "---\n" + once}, "", "a:7:3: d / k=a*: is in a:3 already; keep one\n"},
		{"twice, the first one without rules", map[string]string{"a": "domain: d", "b": once, "c": once}, "", "c:3:3: d / k=a*: is in b:3 already; keep one\n"},
		{"deeper", map[string]string{"a": holds, "b": more}, "d: p(x y(1 2) z)\n", ""},
		{"deeper twice", map[string]string{"a": holds, "b": again}, "", "b:4:50: d / p / y / 1: is in a:4 already; keep one\n"},
		{"let through here, held there", map[string]string{"a": holds, "b": "domain: d\ndescriptors: [{key: p}]"}, "", "b:2:15: d / p: is in a:3 already; keep one\n"},
		{"held and limited", map[string]string{"a": holds, "b": strings.Replace(more, "key: p", "key: p\n  rate_limit: {unit: day, requests_per_unit: 1}", 1)}, "", "b:3:3: d / p: is in a:3 already; keep one\n"},
		{"another flag", map[string]string{"a": holds, "b": strings.Replace(more, "key: p", "key: p\n  value_to_metric: true", 1)}, "", "b:3:3: d / p: is in a:3 already; keep one\n"},
		{"a bad domain spoils no other", map[string]string{"a": once, "b": once, "c": strings.Replace(once, "domain: d", "domain: c", 1)}, "c: k=a*\n", "b:3:3: d / k=a*: is in a:3 already; keep one\n"},
		{"twice, and all below it", map[string]string{"a": limited, "b": limited}, "", "b:2:15: d / p: is in a:2 already; keep one\n"},
		{"settings of one", map[string]string{"a": once, "b": "domain: d\nmete: {replicas: split}", "c": other}, "d: k=a* k=*a\n", ""},
		{"settings of two", map[string]string{"a": once, "b": "mete: {}\ndomain: d", "c": "domain: d\nmete:\n  shadow_mode: true"}, "", "c:3:3: mete: is in b:1 already, and a domain has its settings once; keep one\n"},
		{"none", nil, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			all := domains(t, tt.texts)
			before := make([]string, 0, len(all))
			for _, l := range all {
				before = append(before, ruleTree(l.Rules))
			}
			merged, problems := plan.MergeRateLimits(all)
			var got strings.Builder
			for _, l := range merged {
				fmt.Fprintf(&got, "%s: %s\n", l.Domain, ruleTree(l.Rules))
			}
			if got.String() != tt.want || lines(problems) != tt.says {
				t.Errorf("got\n%s%swant\n%s%s", got.String(), lines(problems), tt.want, tt.says)
			}
			if strings.HasPrefix(tt.name, "settings") && len(merged) == 1 && (merged[0].Settings == nil || merged[0].Settings.Replicas != plan.Split) {
				t.Errorf("settings %+v", merged[0].Settings)
			}
			after := make([]string, 0, len(all))
			for _, l := range all {
				after = append(after, ruleTree(l.Rules))
			}
			if !slices.Equal(before, after) {
				t.Errorf("merging changed the documents from %v to %v", before, after)
			}
		})
	}
}

func TestRepeatedDomains_P70_C002_NamesBothFiles(t *testing.T) {
	t.Parallel()
	all := domains(t, map[string]string{"b": once, "a": other, "c": strings.Replace(once, "domain: d", "domain: c", 1), "e": "# x\n" + holds})
	want := "b:1:9: domain: d is in a:1 already; keep one, or merge them with --merge-domains\n" +
		"e:2:9: domain: d is in a:1 already; keep one, or merge them with --merge-domains\n"
	if got := lines(plan.RepeatedDomains(all)); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}
