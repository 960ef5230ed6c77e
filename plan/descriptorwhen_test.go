package plan_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/plan"
)

// Conditions and, for each, what it says of the values by their keys.
func knownConditions() map[string]func(d map[string]string) (holds, told bool) {
	value := func(key string, is func(string) bool) func(map[string]string) (bool, bool) {
		return func(d map[string]string) (bool, bool) { v, ok := d[key]; return is(v), ok }
	}
	return map[string]func(d map[string]string) (holds, told bool){
		`"k" in descriptor`:                        func(d map[string]string) (bool, bool) { _, ok := d["k"]; return ok, true },
		`descriptor["k"] == "a"`:                   value("k", func(v string) bool { return v == "a" }),
		`!descriptor.k_a.startsWith("b")`:          value("k_a", func(v string) bool { return !strings.HasPrefix(v, "b") }),
		`descriptor["*"].matches("^[ab\uFFFD]*$")`: value("*", func(v string) bool { return strings.Trim(v, "ab\uFFFD") == "" }),
		`size(descriptor) > 1`:                     func(d map[string]string) (bool, bool) { return len(d) > 1, true },
		`descriptor.exists(k, descriptor[k] == "")`: func(d map[string]string) (bool, bool) {
			return slices.Contains(slices.Collect(maps.Values(d)), ""), true
		},
	}
}

// naivelySeen is a descriptor as conditions see it.
func naivelySeen(entries []plan.DescriptorEntry) map[string]string {
	d := map[string]string{}
	for i := len(entries) - 1; i >= 0; i-- {
		d[strings.ToValidUTF8(entries[i].Key, "\uFFFD")] = strings.ToValidUTF8(entries[i].Value, "\uFFFD")
	}
	return d
}

// naiveWhen finds rules one by one, as the rules of conditions read.
type naiveWhen struct {
	entries []plan.DescriptorEntry
	seen    map[string]string
	failed  int64
}

func (n *naiveWhen) holds(r *plan.DescriptorRule) bool {
	if r.When == "" {
		return true
	}
	holds, told := knownConditions()[r.When](n.seen)
	if !told {
		n.failed++
	}
	return holds || !told
}

func (n *naiveWhen) match(rules []plan.DescriptorRule, i int) []*plan.DescriptorRule {
	if i == len(n.entries) {
		return []*plan.DescriptorRule{}
	}
	e := n.entries[i]
	for _, matches := range []func(r *plan.DescriptorRule) bool{
		func(r *plan.DescriptorRule) bool { return r.Value != "" && r.Value == e.Value },
		func(r *plan.DescriptorRule) bool {
			return strings.Contains(r.Value, "*") && glob(r.Value, e.Value) || r.Regex != "" && wholly(r.Regex, e.Value)
		},
		func(r *plan.DescriptorRule) bool { return r.Value == "" && r.Regex == "" },
	} {
		for j := range rules {
			first := &rules[j]
			if first.Key != e.Key || !matches(first) {
				continue
			}
			// All of its place: those with conditions before the one without.
			for _, conditional := range []bool{true, false} {
				for k := range rules {
					r := &rules[k]
					if r.Key == first.Key && r.Value == first.Value && r.Regex == first.Regex && (r.When != "") == conditional && n.holds(r) {
						if below := n.match(r.Rules, i+1); below != nil {
							return append([]*plan.DescriptorRule{r}, below...)
						}
						return nil
					}
				}
			}
		}
	}
	return nil
}

// counted is what the rules count in.
func (n *naiveWhen) counted(rules []*plan.DescriptorRule) string {
	shared := false
	for _, r := range rules {
		shared = shared || r.ShareThreshold
	}
	all := ""
	for i, r := range rules {
		if r.ShareThreshold {
			all += fmt.Sprintf("%q~%q~%q", r.Key, r.Value, r.Regex)
		} else {
			all += fmt.Sprintf("%q=%q", r.Key, n.entries[i].Value)
		}
		if shared {
			all += r.When
		}
		all += ","
	}
	return all
}

// conditional gives some of the rules conditions, and adds others of the same place.
func conditional(t *rapid.T, rules []plan.DescriptorRule) (all []plan.DescriptorRule) {
	texts := slices.Sorted(maps.Keys(knownConditions()))
	for _, r := range rules {
		r.Rules = conditional(t, r.Rules)
		whens := rapid.SliceOfNDistinct(rapid.SampledFrom(append(texts, "")), 1, 3, rapid.ID[string]).Draw(t, "conditions")
		for _, r.When = range whens {
			all = append(all, r)
		}
	}
	if len(all) > 1 { // rules of a place need not be beside each other
		all = rapid.Permutation(all).Draw(t, "order")
	}
	return all
}

func TestMatch_P18_AsTheNaiveMatcher(t *testing.T) {
	t.Parallel()
	matched, asked, marked := 0, int64(0), 0
	rapid.Check(t, func(t *rapid.T) {
		l := &plan.RateLimits{Domain: "d", Rules: readRules(t, conditional(t, drawRules(t, 2)))}
		table := plan.NewDescriptorTable(l)
		names, counters, rules := map[string]string{}, map[string]string{}, map[string]*plan.DescriptorRule{}
		failed := int64(0)
		for range 10 {
			n := naiveWhen{entries: request(t, l.Rules)}
			n.seen = naivelySeen(n.entries)
			path := n.match(l.Rules, 0)
			got, counter := table.Match(n.entries, nil)
			failed += n.failed
			if table.FailedConditions() != failed {
				t.Fatalf("%q: %d conditions could not be told, want %d", n.entries, table.FailedConditions(), failed)
			}
			asked += failed
			if path == nil {
				if got != nil {
					t.Fatalf("%q matches %+v; want nothing", n.entries, got.Rule)
				}
				continue
			}
			matched++
			want, identity, name := path[len(path)-1], n.counted(path), string(counter)
			if ruleOf(got) != want {
				t.Fatalf("%q matches %+v; want %+v", n.entries, ruleOf(got), want)
			}
			if old, ok := names[identity]; ok && old != name {
				t.Fatalf("one counter has two names, %q and %q", old, name)
			}
			if old, ok := counters[name]; ok && old != identity || ok && rules[name] != want {
				t.Fatalf("%s names two counters, %s of %+v and %s of %+v", name, old, rules[name], identity, want)
			}
			names[identity], counters[name], rules[name] = name, identity, want
			if strings.Contains(name, "*when=") {
				marked++
			}
			entries, by, ok := table.Counter(name)
			if !ok || by != got || string(table.AppendName(nil, entries)) != name {
				t.Fatalf("%s is read as %+v of rule %+v, want %+v", name, entries, ruleOf(by), want)
			}
		}
	})
	if matched == 0 || asked == 0 || marked == 0 {
		t.Errorf("%d matched, %d conditions could not be told, %d names tell of conditions; the comparison is empty", matched, asked, marked)
	}
}

const plansText = `domain: shop
descriptors:
- key: path
  rate_limit: {unit: minute, requests_per_unit: 1}
- key: path
  value: /v1/*
  rate_limit: {unit: minute, requests_per_unit: 2}
- key: path
  value: /v1/*
  when: '"plan" in descriptor && descriptor["plan"] == "gold"'
  rate_limit: {unit: minute, requests_per_unit: 3}
  descriptors: [{key: plan, rate_limit: {unit: minute, requests_per_unit: 30}}]
- key: path
  value: /v1/export
  when: descriptor["plan"] != "gold"
  rate_limit: {unit: minute, requests_per_unit: 4}
  descriptors: [{key: plan, rate_limit: {unit: minute, requests_per_unit: 40}}]
- key: u
  when: descriptor["u"] == "a\uFFFDb"
  rate_limit: {unit: minute, requests_per_unit: 5}
`

func TestMatch_P18_TheConditionsOfAPlace(t *testing.T) {
	t.Parallel()
	_, limits, problems := decodeAll("f", []byte(plansText))
	if len(limits) != 1 || len(problems) != 0 {
		t.Fatal(lines(problems))
	}
	table := plan.NewDescriptorTable(limits[0])
	for _, tt := range []struct {
		what, asked string
		want        int64 // 0: no rule
		failed      int64
	}{
		{"without what the condition asks for the limit holds", "path=/v1/export", 4, 1},
		{"a condition holds", "path=/v1/export, plan=free", 40, 0},
		{"an exact value whose condition does not hold leaves it to patterns", "path=/v1/export, plan=gold", 30, 0},
		{"of a place the one without a condition is the last", "path=/v1/users", 2, 0},
		{"where it has nothing below, there is no rule", "path=/v1/users, plan=free", 0, 0},
		{"no condition is asked without a rule", "path=/v2", 1, 0},
		{"the first value of a key counts", "path=/v1/users, plan=gold", 30, 0},
		{"bytes that are no UTF-8 are seen as one replacement", `u="a\xff\xfeb"`, 5, 0},
		{"a byte that is no UTF-8 is another value", `path=/v1/users, plan="gold\xff"`, 0, 0},
	} {
		before := table.FailedConditions()
		m, _ := table.Match(entries(t, tt.asked), nil)
		got := int64(0)
		if m != nil {
			got = m.Rule.Limit.Amount
		}
		if failed := table.FailedConditions() - before; got != tt.want || failed != tt.failed {
			t.Errorf("%s: %s: limit %d, %d failed; want %d, %d", tt.what, tt.asked, got, failed, tt.want, tt.failed)
		}
	}
}

// What shares a counter over many values shares it only with what the same condition lets in.
func TestMatch_P18_SharedCountersTellConditionsApart(t *testing.T) {
	t.Parallel()
	const text = `domain: d
descriptors:
- {key: path, value: "/*", share_threshold: true, when: 'descriptor["path"].startsWith("/a")', rate_limit: {unit: day, requests_per_unit: 1}}
- {key: path, value: "/*", share_threshold: true, rate_limit: {unit: day, requests_per_unit: 2}}
- {key: org, when: 'descriptor["org"] != "acme"', rate_limit: {unit: day, requests_per_unit: 3}}
`
	_, limits, problems := decodeAll("f", []byte(text))
	for asked, want := range map[string]string{
		"path=/a/1": `d / path=/* when descriptor["path"].startsWith("/a"), 1/day, d?path=%2F*&*when=descriptor%5B%22path%22%5D.startsWith%28%22%2Fa%22%29`,
		"path=/b":   "d / path=/*, 2/day, d?path=%2F*",
		// A condition may be edited without setting back what was counted.
		"org=x": `d / org when descriptor["org"] != "acme", 3/day, d?org=x`,
	} {
		if got := found(t, limits, asked); got != want {
			t.Errorf("%s: %s, want %s\n%s", asked, got, want, lines(problems))
		}
	}
}

func TestDecode_P18_SaysWhatIsWrongWithACondition(t *testing.T) {
	t.Parallel()
	const write = `; write one such as descriptor["plan"] != "free"`
	for when, want := range map[string]string{
		`org == "a"`:                            `d / k when org == "a": when: is not a condition in CEL: column 1: undeclared reference to 'org'` + write,
		`descriptor["a"]`:                       `when: is not a condition in CEL: it is of type string and must be true or false` + write,
		`descriptor["a"] == 1`:                  `when: is not a condition in CEL: column 17: found no matching overload for '_==_' applied to '(string, int)'` + write,
		`descriptor["a" ==`:                     `when: is not a condition in CEL: column 18: mismatched input '<EOF>'` + write,
		`descriptor.a.matches("(")`:             "error parsing regexp: missing closing ): `(`",
		`descriptor.a.matches(descriptor["b"])`: "matches() takes no pattern but one that is written down",
		`7`:                                     "it is of type int and must be true or false",
		`""`:                                    "it is of type string",
		strings.Repeat("!", 1000) + "true":      "has more than 1000 bytes; write a shorter one",
		strings.Repeat("(", 400) + "true":       "is not a condition in CEL: ",
	} {
		_, _, problems := decodeAll("f", fmt.Appendf(nil, "domain: d\ndescriptors:\n- key: k\n  when: '%s'\n", when))
		if len(problems) != 1 || problems[0].Warning || problems[0].Line != 4 || problems[0].Col != 9 || !strings.Contains(problems[0].String(), ": when: ") ||
			!strings.Contains(problems[0].String(), want) {
			t.Errorf("%s:\n%swant %s", when, lines(problems), want)
		}
	}
	// In text of several lines the place has a line, too; a flag is not quoted by people.
	_, _, problems := decodeAll("f", []byte("domain: d\ndescriptors:\n- key: k\n  when: |\n    true &&\n      org\n- {key: l, when: true}\n- {key: m, when: }\n"))
	if len(problems) != 1 || !strings.Contains(problems[0].Message, "line 2, column 3: undeclared reference to 'org'") {
		t.Error(lines(problems))
	}
}

func TestDecode_P18_ConditionsTellRulesApart(t *testing.T) {
	t.Parallel()
	const twice = "domain: d\ndescriptors:\n- {key: k, when: 'true'}\n- {key: k}\n- {key: k, when: 'true && true'}\n- {key: k, when: 'true'}\n- {key: k, rate_limit: {when: 'true', unlimited: true}}\n"
	_, _, problems := decodeAll("f", []byte(twice))
	if got, want := lines(problems), "f:6:3: d / k when true: is written twice at this level, first in line 3; keep one\n"+
		"f:7:3: d / k: is written twice at this level, first in line 4; keep one\n"+
		"f:7:25: d / k: rate_limit.when: belongs beside rate_limit; write it there\n"; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	part := func(when string) string {
		return "domain: d\ndescriptors: [{key: k, when: '" + when + "', rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	}
	for when, clash := range map[string]bool{`"a" in descriptor`: false, "true": true} {
		_, a, _ := decodeAll("a", []byte(part("true")))
		_, b, _ := decodeAll("b", []byte(part(when)))
		if merged, problems := plan.MergeRateLimits(append(a, b...)); (len(problems) > 0) != clash || !clash && len(merged[0].Rules) != 2 {
			t.Errorf("%s beside true: %v\n%s", when, merged, lines(problems))
		}
	}
}

// A document may not take all memory and all time for its conditions.
func TestDecode_P18_BoundedConditions(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range 1001 {
		fmt.Fprintf(&b, "- {key: k%d, when: 'size(descriptor) == %d'}\n- {key: l%d, when: 'size(descriptor) == 0'}\n", i, i, i)
	}
	_, _, problems := decodeAll("f", []byte(b.String()))
	if len(problems) != 1 || problems[0].Line != 2003 || !strings.HasSuffix(problems[0].String(), "is one condition too many; a document may have 1000 different ones, divide it") {
		t.Error(lines(problems))
	}
}

// A condition that loops gives up where that costs too much, and holds.
func TestMatch_P18_BoundedLoops(t *testing.T) {
	t.Parallel()
	const text = `domain: d
descriptors: [{key: k, when: 'descriptor.all(a, descriptor.all(b, descriptor.all(c, a + b + c != "")))  && false', rate_limit: {unit: day, requests_per_unit: 1}}]
`
	_, limits, problems := decodeAll("f", []byte(text))
	if len(limits) != 1 {
		t.Fatal(lines(problems))
	}
	table := plan.NewDescriptorTable(limits[0])
	asked := []plan.DescriptorEntry{{Key: "k", Value: "v"}}
	if m, _ := table.Match(asked, nil); m != nil || table.FailedConditions() != 0 {
		t.Errorf("one entry: %v", m)
	}
	// The first entry alone is the rule's; the others would need rules below it.
	for i := range 100 {
		asked = append(asked, plan.DescriptorEntry{Key: fmt.Sprint(i), Value: "v"})
	}
	table.Match(asked, nil)
	if n := table.FailedConditions(); n != 1 {
		t.Errorf("%d conditions gave up", n)
	}
}

// Edits of the domain do not set the count of conditions back that could not be told.
func TestCatalog_P18_KeepsCountOfConditionsThatFail(t *testing.T) {
	t.Parallel()
	c := catalog(t)
	one := "domain: d\ndescriptors: [{key: k, when: 'descriptor.x == \"\"', rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	c.Put(limitsDoc(t, "d", one), 1)
	c.Put(limitsDoc(t, "e", strings.Replace(one, "domain: d", "domain: e", 1)), 1)
	for revision := range int64(3) {
		table := c.Snapshot().Domain("d").Table
		if m, _ := table.Match(entries(t, "k=v"), nil); m == nil || table.FailedConditions() != revision+1 {
			t.Errorf("%d conditions could not be told, want %d", table.FailedConditions(), revision+1)
		}
		if got := c.Snapshot().FailedConditions(); len(got) != 1 || got["d"] != revision+1 {
			t.Errorf("the snapshot tells %v", got)
		}
		c.Put(limitsDoc(t, "d", one+"# "), 2+revision)
	}
}

func FuzzWhen(f *testing.F) {
	for text := range knownConditions() {
		f.Add(text, "k", "a", "k_a", "\xff")
	}
	for _, text := range []string{`descriptor.map(a, descriptor.map(b, a + b)).size() > 3`, `1/0 == 2`, `[1][size(descriptor)] == 1`, `timestamp(descriptor.k).getHours() > 3`, `duration("1s") > duration(descriptor.k)`, "dyn(descriptor) == {}", `descriptor.k.matches("(a*)*")`, `has(descriptor.k) ? true : 'a' in []`} {
		f.Add(text, "k", "a", "k_a", "b")
	}
	f.Fuzz(func(t *testing.T, when, k1, v1, k2, v2 string) {
		rules := []plan.DescriptorRule{{Key: "k", When: when, Rules: []plan.DescriptorRule{{Key: "k_a", Value: "*", ShareThreshold: true, When: when}, {Key: "k_a"}}}, {Key: "k"}}
		text, err := json.Marshal(map[string]any{"domain": "d", "descriptors": written(rules)})
		if err != nil {
			t.Fatal(err)
		}
		_, limits, problems := decodeAll("f", text)
		for _, p := range problems {
			if p.Message == "" || strings.Contains(p.Message, "%!") || len(p.Message) > 400 {
				t.Errorf("a problem without sense: %q", p.String())
			}
		}
		if len(limits) == 0 {
			return
		}
		table := plan.NewDescriptorTable(limits[0])
		for _, asked := range [][]plan.DescriptorEntry{{{Key: k1, Value: v1}}, {{Key: k1, Value: v1}, {Key: k2, Value: v2}}} {
			m, counter := table.Match(asked, nil)
			again, same := table.Match(asked, nil)
			if m != again || string(counter) != string(same) {
				t.Errorf("%q of %q matches %v and %v", when, asked, m, again)
			}
			if _, by, ok := table.Counter(string(counter)); m != nil && (!ok || by != m) {
				t.Errorf("%s is of %+v, want %+v", counter, ruleOf(by), m.Rule)
			}
		}
	})
}

func BenchmarkMatch_When(b *testing.B) {
	for _, c := range []struct{ name, when string }{
		{"one", `"plan" in descriptor && descriptor["plan"] != "gold"`},
		{"loop", `descriptor.exists(k, descriptor[k] == "free")`},
		{"pattern", `descriptor["plan"].matches("^fr[a-z]+$")`},
	} {
		b.Run(c.name, func(b *testing.B) {
			_, limits, problems := decodeAll("f", fmt.Appendf(nil, "domain: d\ndescriptors: [{key: org, descriptors: [{key: plan, when: '%s', rate_limit: {unit: day, requests_per_unit: 1}}]}]\n", c.when))
			if len(limits) != 1 {
				b.Fatal(lines(problems))
			}
			table, asked, room := plan.NewDescriptorTable(limits[0]), entries(b, "org=acme, plan=free"), make([]byte, 0, 256)
			b.ReportAllocs()
			for b.Loop() {
				if m, _ := table.Match(asked, room); m == nil {
					b.Fatal("no rule")
				}
			}
		})
	}
}

func BenchmarkDecode_When(b *testing.B) {
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := range 100 {
		fmt.Fprintf(&text, "- {key: k%d, when: '\"plan\" in descriptor && descriptor[\"plan\"] != \"p%d\"'}\n", i, i)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, limits, _ := decodeAll("f", []byte(text.String())); len(limits) != 1 {
			b.Fatal("refused")
		}
	}
}
