package plan_test

import (
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// The real files 17a and 17b, and what two documents of a domain may not both say.
func TestCheck_P70_C001_OneRuleInTwoDocuments(t *testing.T) {
	t.Parallel()
	const (
		red    = "domain: shared\ndescriptors:\n  - key: team\n    value: red\n    rate_limit: {unit: minute, requests_per_unit: 1}\n"
		holder = "domain: shared\ndescriptors:\n  - key: team\n    descriptors: [{key: a}]\n"
	)
	green := strings.Replace(red, ": red", ": green", 1)
	for _, tt := range []struct {
		name, there, text, want string
	}{
		{"other rules", red, green, ""},
		{"the same rule", red, "# again\n" + red, "4:5: shared / team=red: is in line 3 of rate limits shared/a already; keep one\n"},
		{"all rules of a level", red, strings.Replace(red, "    value: red\n", "", 1), ""},
		{"held apart", holder, strings.Replace(holder, "key: a", "key: b", 1), ""},
		{"held together", holder, holder, "4:19: shared / team / a: is in line 4 of rate limits shared/a already; keep one\n"},
		{"held and limited", holder, strings.Replace(red, "    value: red\n", "", 1), "3:5: shared / team: is in line 3 of rate limits shared/a already; keep one\n"},
		{"settings there", red + "mete: {replicas: split}\n", green, ""},
		{"settings twice", "mete: {}\n" + red, green + "mete: {replicas: split}\n", "6:7: mete: is in line 1 of rate limits shared/a already, and a domain has its settings once; keep one\n"},
	} {
		c := plan.NewCatalog()
		c.Put(limitsDoc(t, "shared/a", tt.there), 3)
		c.PutBroken(plan.KindRateLimits, "shared/never", 4, "x", nil)
		c.Put(limitsDoc(t, "other", strings.ReplaceAll(tt.text, "shared", "other")), 5)
		doc := limitsDoc(t, "shared/b", tt.text)
		if got := lines(c.Check(doc)); got != tt.want {
			t.Errorf("%s: got\n%swant\n%s", tt.name, got, tt.want)
		}
		c.Put(doc, 6) // in its own place it contradicts nothing but the other one
		if got := lines(c.Check(doc)); got != tt.want {
			t.Errorf("%s, put: got\n%swant\n%s", tt.name, got, tt.want)
		}
		if problems := c.Check(doc); len(problems) > 0 && (problems[0].Kind != plan.KindRateLimits || problems[0].Name != "shared/b") {
			t.Errorf("%s: the problem is of %s %s", tt.name, problems[0].Kind, problems[0].Name)
		}
	}
	// Of three, each is named once.
	c := plan.NewCatalog()
	for i, name := range []string{"shared/a", "shared/b", "shared"} {
		c.Put(limitsDoc(t, name, red), int64(i+3))
	}
	doc, _ := c.Snapshot().Document(plan.KindRateLimits, "shared/b")
	if got := lines(c.Check(doc)); got != "3:5: shared / team=red: is in line 3 of rate limits shared already; keep one\n" {
		t.Errorf("of three: %s", got)
	}
	// Documents of files are named by their files.
	docs, _ := plan.Decode("red.yaml", []byte(red))
	c = plan.NewCatalog()
	c.Put(docs[0], 3)
	docs, _ = plan.Decode("again.yaml", []byte("---\n"+red))
	docs[0].Name = "shared/again"
	if got := lines(c.Check(docs[0])); got != "again.yaml:4:5: shared / team=red: is in red.yaml:3 already; keep one\n" {
		t.Errorf("of files: %s", got)
	}
}

// P4: a name that no limit has is a slip of the pen, and the limit meant counts as well.
func TestCheck_P4_WarnsOfNamesThatNoLimitHas(t *testing.T) {
	t.Parallel()
	const text = "domain: d\ndescriptors:\n" +
		"- {key: a, rate_limit: {name: basic, unit: day, requests_per_unit: 1}}\n" +
		"- {key: b, descriptors: [{key: c, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: basic}, {name: basik}, {name: far}, {name: \"\\u2028\"}]}}]}\n"
	const want = "4:26: d / b / c: rate_limit.replaces: warning: no limit of domain d is called basik; did you mean basic?\n"
	far := "4:26: d / b / c: rate_limit.replaces: warning: no limit of domain d is called far; give one that name\n"
	odd := "4:26: d / b / c: rate_limit.replaces: warning: no limit of domain d is called \"\\u2028\"; give one that name\n"
	c := plan.NewCatalog()
	doc := limitsDoc(t, "d/b", text)
	if got := lines(c.Check(doc)); got != want+far+odd || plan.Refused(c.Check(doc)) {
		t.Errorf("got\n%swant\n%s", got, want+far+odd)
	}
	c.Put(limitsDoc(t, "d/a", "domain: d\ndescriptors: [{key: x, descriptors: [{key: y, rate_limit: {name: far, unlimited: true}}]}]"), 3)
	if got := lines(c.Check(doc)); got != want+odd {
		t.Errorf("with another document: got\n%swant\n%s", got, want+odd)
	}
}

// Rules that hold others are one only if they count alike.
func TestCheck_P70_P6_P7_HoldersThatCountInOtherWays(t *testing.T) {
	t.Parallel()
	text := func(flag, below string) string {
		return "domain: d\ndescriptors: [{key: team, value: a*" + flag + ", descriptors: [{key: " + below + "}]}]\n"
	}
	for flag, want := range map[string]string{
		"":                         "",
		", share_threshold: true":  "2:15: d / team=a*: is in line 2 of rate limits d/a already; keep one\n",
		", value_to_metric: true":  "2:15: d / team=a*: is in line 2 of rate limits d/a already; keep one\n",
		", share_threshold: false": "",
	} {
		c := plan.NewCatalog()
		c.Put(limitsDoc(t, "d/a", text("", "a")), 3)
		if got := lines(c.Check(limitsDoc(t, "d/b", text(flag, "b")))); got != want {
			t.Errorf("%q: got %q, want %q", flag, got, want)
		}
	}
}
