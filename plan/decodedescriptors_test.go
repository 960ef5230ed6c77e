package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/plan"
)

// A document of descriptors says no kind; it is known by its keys, and named by its domain.
func TestDecode_P10_DescriptorsAreAKind(t *testing.T) {
	t.Parallel()
	docs, problems := plan.Decode("f", []byte(freePlan+"---\n# x\n"+once))
	if len(docs) != 2 || len(problems) != 0 {
		t.Fatalf("%d documents\n%s", len(docs), lines(problems))
	}
	d := docs[1]
	if d.Kind != plan.KindRateLimits || d.Name != "d" || d.RateLimits == nil || d.Plan != nil || string(d.Text) != "# x\n"+once {
		t.Errorf("got %s %q of\n%s", d.Kind, d.Name, d.Text)
	}
	if level, path := d.Needs(); level != 4 || path != "domain" {
		t.Errorf("needs level %d for %q", level, path)
	}
	if p := d.Problem("domain", "x"); p.File != "f" || p.Line != strings.Count(freePlan, "\n")+3 || p.Col != 9 {
		t.Errorf("its domain is at %s", p)
	}
}

// The key that a document is under is its domain, alone or with something after a slash.
func TestDecodeOne_P70_UnderItsDomain(t *testing.T) {
	t.Parallel()
	const shop = "# x\ndomain: shop/eg\ndescriptors: [{key: k}]\n"
	for _, tt := range []struct {
		kind plan.Kind
		name string
		says string // "": taken
	}{
		{plan.KindRateLimits, "shop/eg", ""},
		{plan.KindRateLimits, "shop/eg/b", ""},
		{plan.KindRateLimits, "shop/eg//", ""},
		{plan.KindRateLimits, "shop/eg/b/c d", ""},
		{plan.KindRateLimits, "shop/eg/", "f:2:9: holds RateLimits shop/eg under the key of RateLimits shop/eg/; write it to its own key\n"},
		{plan.KindRateLimits, "shop/egg", "f:2:9: holds RateLimits shop/eg under the key of RateLimits shop/egg; write it to its own key\n"},
		{plan.KindRateLimits, "shop", "f:2:9: holds RateLimits shop/eg under the key of RateLimits shop; write it to its own key\n"},
		{plan.KindPlan, "shop/eg", "f:2:9: holds RateLimits shop/eg under the key of Plan shop/eg; write it to its own key\n"},
	} {
		doc, problems := plan.DecodeOne(tt.kind, tt.name, "f", []byte(shop))
		if got := lines(problems); got != tt.says || (doc != nil) != (tt.says == "") {
			t.Errorf("%s %s: got %v and\n%swant\n%s", tt.kind, tt.name, doc, got, tt.says)
		}
		if doc != nil && (doc.Name != tt.name || doc.RateLimits.Domain != "shop/eg") {
			t.Errorf("%s became %s of domain %s", tt.name, doc.Name, doc.RateLimits.Domain)
		}
	}
	doc, problems := plan.DecodeOne(plan.KindRateLimits, "free", "f", []byte(freePlan))
	if doc != nil || !strings.Contains(lines(problems), "holds Plan free under the key of RateLimits free; write it to its own key") {
		t.Errorf("got %v and\n%s", doc, lines(problems))
	}
}

func TestDecode_P10_BesideOtherDocuments(t *testing.T) {
	t.Parallel()
	docs, limits, problems := decodeAll("f", []byte(once+freePlan+"---\ndomain: e\n---\ndomain: []\n"))
	if len(docs) != 1 || len(limits) != 2 || limits[0].Domain != "d" || limits[1].Domain != "e" || limits[1].File != "f" ||
		len(problems) != 1 || problems[0].Index != 3 {
		t.Errorf("%d documents, %d of descriptors\n%s", len(docs), len(limits), lines(problems))
	}
}

// What bears the name of a domain is not always a file of descriptors.
func TestDecode_P10_TellsWhoseAFileIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"domain: d":                      "",
		"domain: d\ntyped_config: {}":    "f:2:1: typed_config: unknown field; the fields here are domain, descriptors, mete and name\n",
		"clusters: []":                   "f:1:1: is a configuration of Envoy, which mete does not read; check it with envoy --mode validate\n",
		`{"static_resources": {}}`:       "f:1:1: is a configuration of Envoy, which mete does not read; check it with envoy --mode validate\n",
		"- domain: d":                    "f:1:1: a list is not a map of fields; write field: value\n",
		`{"domain": "d", "domain": "e"}`: "f:1:17: domain: is written twice, first in line 1; keep one\n",
		"domain: &d d\ndescriptors: *d":  "f:1:9: descriptors: \"d\" is not a list; write - key: KEY for each descriptor\n",
		"domain: d\ndescriptors: *none":  "f:2:14: aliases are not read; write the value out\n",
	} {
		_, limits, problems := decodeAll("f", []byte(text))
		if got := lines(problems); got != want || (len(limits) == 1) != (want == "") {
			t.Errorf("%q: %d of descriptors, got\n%swant\n%s", text, len(limits), got, want)
		}
	}
}

// A document of descriptors may be longer than any other.
func TestDecode_P70_Size(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := 0; text.Len() <= plan.MaxDocument; i++ {
		fmt.Fprintf(&text, "- {key: k, value: v%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	if _, limits, problems := decodeAll("f", []byte(text.String())); len(limits) != 1 {
		t.Errorf("refused:\n%s", lines(problems))
	}
	long := text.String() + strings.Repeat("#", plan.MaxRateLimits)
	if _, limits, problems := decodeAll("f", []byte(long)); len(limits) != 0 || !strings.Contains(lines(problems), "more than 716800; split it") {
		t.Errorf("taken:\n%s", lines(problems))
	}
}

// A few lines of aliases must not become gigabytes, nor go round for ever.
func TestDecode_AliasesStayBounded(t *testing.T) {
	t.Parallel()
	var bomb, merges strings.Builder
	bomb.WriteString("domain: d\ndescriptors:\n- key: k\n  metadata:\n    a0: &a0 [x, x]\n")
	for i := range 40 {
		fmt.Fprintf(&bomb, "    a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i), 10), ", "))
	}
	merges.WriteString("domain: d\ndescriptors:\n- key: k\n  metadata:\n    a: &a\n")
	for i := range 40_000 {
		fmt.Fprintf(&merges, "      k%d: 1\n", i)
	}
	merges.WriteString("    b:\n      <<: [*a, *a, *a]\n")
	for name, text := range map[string]string{
		"tenfold": bomb.String(), "merges": merges.String(), "itself": "domain: d\ndescriptors: &a [*a]",
		"itself merged": "domain: d\ndescriptors:\n- &a\n  <<: *a\n", "deep": "domain: d\ndescriptors: " + strings.Repeat("&a [", 3000),
	} {
		_, limits, problems := decodeAll("f", []byte(text))
		if len(limits) != 0 || !plan.Refused(problems) || len(problems) > 200 {
			t.Errorf("%s: %d of descriptors, %d problems", name, len(limits), len(problems))
		}
	}
}

func TestDescriptorLimit_P11_Bucket(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		unit   plan.DescriptorUnit
		times  int64
		window time.Duration
		bucket bool
		word   string
	}{
		{plan.UnitSecond, 1, time.Second, true, "second"},
		{plan.UnitMinute, 5, 5 * time.Minute, true, "minute"},
		{plan.UnitHour, 1, 0, false, "hour"},
		{plan.UnitYear, 1, 0, false, "year"},
		{0, 1, 0, false, "no unit"},
	} {
		l := plan.DescriptorLimit{Unit: tt.unit, Multiplier: tt.times}
		if window, bucket := l.Bucket(); window != tt.window || bucket != tt.bucket || tt.unit.String() != tt.word {
			t.Errorf("%v: %v, %v; want %v, %v", tt.unit, window, bucket, tt.window, tt.bucket)
		}
	}
}

// FuzzDecodeDescriptors: whatever is sent, it is refused for a reason, or every rule
// is whole and is found by its own spelling.
func FuzzDecodeDescriptors(f *testing.F) {
	files, _ := filepath.Glob(filepath.Join("testdata", "descriptors", "*.yaml"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		docs, limits, problems := decodeAll("f", text)
		for _, p := range problems {
			if p.Message == "" || strings.Contains(p.Message, "%!") {
				t.Errorf("a problem without sense: %q", p.String())
			}
		}
		if len(docs)+len(limits) == 0 && !plan.Refused(problems) {
			t.Error("no document and no problem")
		}
		for _, l := range limits {
			if l.Domain == "" {
				t.Error("no domain")
			}
			whole(t, plan.NewDescriptorTable(l), l.Rules, nil)
		}
		plan.MergeRateLimits(limits)
		plan.RepeatedDomains(limits)
	})
}

func whole(t *testing.T, table *plan.DescriptorTable, rules []plan.DescriptorRule, above []plan.DescriptorEntry) {
	t.Helper()
	for i := range rules {
		r := &rules[i]
		if l := r.Limit; r.Key == "" || r.Value != "" && r.Regex != "" || r.ShareThreshold && r.Regex == "" && !strings.Contains(r.Value, "*") || l != nil &&
			(l.Unlimited != (l.Unit == 0) || l.Amount < 0 || l.Amount > 1<<32-1 || l.Multiplier < 1) {
			t.Errorf("%+v with the limit %+v", r, l)
		}
		if r.Value == "" || r.When != "" {
			continue // a pattern beside it may come first, or it may not hold
		}
		path := append(above[:len(above):len(above)], plan.DescriptorEntry{Key: r.Key, Value: r.Value})
		if got, _ := table.Match(path, nil); got == nil || got.Rule != r {
			t.Errorf("%q finds %+v", path, got)
		}
		whole(t, table, r.Rules, path)
	}
}
