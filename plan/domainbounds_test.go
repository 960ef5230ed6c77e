package plan_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// A quota's lease is guarded by each document of its domain, and etcd takes 128 conditions.
func TestCheck_P70_ADomainHasFiftyDocuments(t *testing.T) {
	t.Parallel()
	c := plan.NewCatalog()
	text := func(i int) string { return fmt.Sprintf("domain: d\ndescriptors: [{key: k%d}]\n", i) }
	for i := range 50 {
		doc := limitsDoc(t, fmt.Sprint("d/", i), text(i))
		if got := lines(c.Check(doc)); got != "" {
			t.Fatalf("document %d: %s", i+1, got)
		}
		c.Put(doc, int64(i+1))
	}
	c.PutBroken(plan.KindRateLimits, "d/never", 99, "x", nil)
	more := limitsDoc(t, "d/more", text(50))
	const want = "1:9: domain: d has 50 documents already, as many as a domain may have; put these descriptors into one of them\n"
	for range 2 {
		if got := lines(c.Check(more)); got != want {
			t.Errorf("got  %swant %s", got, want)
		}
		c.Put(more, 100) // together with others, before it is judged
	}
	c.Delete(plan.KindRateLimits, "d/more", 101)
	if got := lines(c.Check(limitsDoc(t, "d/7", "# edited\n"+text(7)))); got != "" {
		t.Errorf("an edit of one of them: %s", got)
	}
	if n := len(c.Snapshot().Domain("d").Guards); n != 50 {
		t.Errorf("%d guards", n)
	}
}

// Many documents that come together are merged once, and not once for each of them.
func TestDomain_P70_ManyDocumentsAtOnceCostLittle(t *testing.T) {
	c := plan.NewCatalog()
	const n = 1000
	docs := make([]*plan.Document, n)
	for i := range docs {
		docs[i] = limitsDoc(t, fmt.Sprint("d/", i), fmt.Sprintf("domain: d\ndescriptors: [{key: k%d, rate_limit: {unit: day, requests_per_unit: 1}}]\n", i))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i, doc := range docs {
		c.Put(doc, int64(i+1))
	}
	d := c.Snapshot().Domain("d")
	runtime.ReadMemStats(&after)
	if used := (after.TotalAlloc - before.TotalAlloc) / n; used > 50_000 {
		t.Errorf("%d bytes for each document", used)
	}
	for i := range n {
		if m, _ := d.Table.Match([]plan.DescriptorEntry{{Key: fmt.Sprint("k", i), Value: "x"}}, nil); m == nil {
			t.Fatalf("the rule of document %d is gone", i)
		}
	}
}

// Names to replace are guessed a few times; to compare all with all takes minutes.
func TestCheck_P4_NamesAreGuessedAFewTimes(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range 25 {
		fmt.Fprintf(&b, "- {key: k%d, rate_limit: {unit: day, requests_per_unit: 1, name: limit%d, replaces: [{name: limitt%d}]}}\n", i, i, i)
	}
	got := lines(plan.NewCatalog().Check(limitsDoc(t, "d", b.String())))
	if guesses := strings.Count(got, "did you mean"); guesses != 20 || strings.Count(got, "\n") != 25 || !strings.Contains(got, "is called limitt24; give one that name") {
		t.Errorf("%d guesses in\n%s", guesses, got)
	}
}

// Counted repetitions make a short expression large: a hundred of these would take
// gigabytes, and seconds for each request.
func TestDescriptors_P9_P18_RegexesAreBounded(t *testing.T) {
	t.Parallel()
	const large = "with its repetitions written out, and may have 2000; write a simpler one, with smaller numbers in {} or with * or +"
	letters := strings.Repeat("a", 900)
	for _, tt := range []struct{ field, want string }{
		{"regex: '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}'", ""},
		{"regex: '/.{1,1000}'", ""},
		{"regex: '/.{1,900}'", ""},
		{"regex: '(" + letters + "){1000}'", "regex: has 901000 steps " + large},
		{"regex: '(" + letters + "){3,}'", "regex: has 3605 steps " + large},
		{"regex: '(ab*|c){0,400}'", "regex: has 3200 steps " + large},
		{`when: 'descriptor["k"].matches("(` + letters + `){1000}")'`, "when: is not a condition in CEL: the pattern of matches() has 901000 steps " + large},
		{`when: 'matches(descriptor["k"], "(ab*|c){0,400}")'`, "when: is not a condition in CEL: the pattern of matches() has 3200 steps " + large},
		{`when: 'descriptor["k"].matches("v[0-9]{1,20}")'`, ""},
	} {
		_, problems := plan.Decode("x", []byte("domain: d\ndescriptors:\n- {key: k, "+tt.field+", rate_limit: {unit: day, requests_per_unit: 1}}\n"))
		got := ""
		if len(problems) > 0 {
			got = problems[0].String()
		}
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%.40s...: got %q, want %q", tt.field, got, tt.want)
		}
	}
}

// All regular expressions of a document are bounded together, those of conditions too, and
// what has no room any more is not compiled.
func TestDescriptors_P9_P18_AllRegexesOfADocumentAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("domain: d\ndescriptors:\n")
	for i := range 502 {
		if i%2 == 0 {
			fmt.Fprintf(&b, "- {key: k%d, regex: 'a{999}b{999}'}\n", i)
		} else {
			fmt.Fprintf(&b, "- {key: k%d, when: 'descriptor[\"k%d\"].matches(\"a{999}b{999}\")'}\n", i, i)
		}
	}
	_, problems := plan.Decode("x", []byte(b.String()))
	const want = "is too much with those before it: all of a document may have 1000000 steps with their repetitions written out; divide the document"
	if len(problems) != 2 || !strings.Contains(problems[0].String(), "x:503:22: d / k500=~a{999}b{999}: regex: "+want) ||
		!strings.Contains(problems[1].String(), "when: is not a condition in CEL: the pattern of matches() "+want) {
		t.Errorf("%d problems: %.3000s", len(problems), fmt.Sprint(problems))
	}
}

// Texts that are put together again and again are as long as the longest header many
// times over: such a condition is given up, and counts as one that holds.
func TestWhen_P18_SumsOfTextsAreBounded(t *testing.T) {
	t.Parallel()
	table := func(sums int) *plan.DescriptorTable {
		when := strings.Repeat(`descriptor["k"] + `, sums) + `"x" == "y"`
		return plan.NewDescriptorTable(limitsDoc(t, "d", "domain: d\ndescriptors: [{key: k, when: '"+when+"'}]").RateLimits)
	}
	long := []plan.DescriptorEntry{{Key: "k", Value: strings.Repeat("a", 60_000)}}
	for sums, want := range map[int]int64{4: 0, 5: 1, 50: 1} {
		d := table(sums)
		m, _ := d.Match(long, nil)
		if d.FailedConditions() != want || (m != nil) != (want > 0) {
			t.Errorf("%d sums: given up %d times, %v", sums, d.FailedConditions(), m)
		}
		if m, _ := d.Match([]plan.DescriptorEntry{{Key: "k", Value: "short"}}, nil); m != nil {
			t.Errorf("%d sums of short texts: %v", sums, m)
		}
	}
}

// Of two documents that raced and both have settings, those of the first by name hold,
// whichever came first; a document whose name no domain can have breaks none.
func TestDomain_P70_SettingsThatRaced(t *testing.T) {
	t.Parallel()
	for _, order := range [][]string{{"d/a", "d/b"}, {"d/b", "d/a"}} {
		c := plan.NewCatalog()
		for i, name := range order {
			zone := map[string]string{"d/a": "Asia/Tokyo", "d/b": "UTC"}[name]
			c.Put(limitsDoc(t, name, "domain: d\nmete: {time_zone: "+zone+"}\n"), int64(i+3))
		}
		c.PutBroken(plan.KindRateLimits, "e/", 9, "x", nil)
		s := c.Snapshot()
		if zone := s.Domain("d").Settings.TimeZone.String(); zone != "Asia/Tokyo" {
			t.Errorf("%v: %s", order, zone)
		}
		if s.Domain("e") != nil || s.Domain("e/") == nil {
			t.Errorf("e: %v, e/: %v", s.Domain("e"), s.Domain("e/"))
		}
	}
}
