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

// Nothing enforces descriptors yet, so nothing but a check takes them.
func TestDecode_P10_RefusesDescriptorsThatNothingEnforces(t *testing.T) {
	t.Parallel()
	const says = "rate limit descriptors are not enforced by this version; check them with metectl validate, and leave the file out here\n"
	docs, problems := plan.Decode("f", []byte(freePlan+"---\n# x\n"+once))
	line := strings.Count(freePlan, "\n") + 3
	if want := fmt.Sprintf("f:%d:1: %s", line, says); len(docs) != 1 || lines(problems) != want || !problems[0].Unsupported {
		t.Errorf("%d documents, got\n%swant\n%s", len(docs), lines(problems), want)
	}
	doc, problems := plan.DecodeOne(plan.KindPlan, "d", "f", []byte(once))
	if want := "f:1:1: " + says; doc != nil || lines(problems) != want {
		t.Errorf("got %v and\n%swant\n%s", doc, lines(problems), want)
	}
	if _, problems = plan.Decode("f", []byte("domain: d\ndescriptors: [{}]")); len(problems) != 2 {
		t.Errorf("what else is wrong is not said:\n%s", lines(problems))
	}
}

func TestDecodeAll_P10_BesideOtherDocuments(t *testing.T) {
	t.Parallel()
	docs, limits, problems := plan.DecodeAll("f", []byte(once+freePlan+"---\ndomain: e\n---\ndomain: []\n"))
	if len(docs) != 1 || len(limits) != 2 || limits[0].Domain != "d" || limits[1].Domain != "e" || limits[1].File != "f" ||
		len(problems) != 1 || problems[0].Index != 3 {
		t.Errorf("%d documents, %d of descriptors\n%s", len(docs), len(limits), lines(problems))
	}
}

// What bears the name of a domain is not always a file of descriptors.
func TestDecodeAll_P10_TellsWhoseAFileIs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"domain: d":                      "",
		"domain: d\ntyped_config: {}":    "f:2:1: typed_config: unknown field; the fields here are domain and descriptors\n",
		"clusters: []":                   "f:1:1: is a configuration of Envoy, which mete does not read; check it with envoy --mode validate\n",
		`{"static_resources": {}}`:       "f:1:1: is a configuration of Envoy, which mete does not read; check it with envoy --mode validate\n",
		"- domain: d":                    "f:1:1: a list is no map of fields; write field: value\n",
		`{"domain": "d", "domain": "e"}`: "f:1:17: domain: is written twice, first in line 1; keep one\n",
		"domain: &d d\ndescriptors: *d":  "f:1:9: descriptors: \"d\" is no list; write - key: KEY for each descriptor\n",
		"domain: d\ndescriptors: *none":  "f:2:14: aliases are not read; write the value out\n",
	} {
		_, limits, problems := plan.DecodeAll("f", []byte(text))
		if got := lines(problems); got != want || (len(limits) == 1) != (want == "") {
			t.Errorf("%q: %d of descriptors, got\n%swant\n%s", text, len(limits), got, want)
		}
	}
}

// A document of descriptors may be longer than any other.
func TestDecodeAll_P70_Size(t *testing.T) {
	t.Parallel()
	var text strings.Builder
	text.WriteString("domain: d\ndescriptors:\n")
	for i := 0; text.Len() <= plan.MaxDocument; i++ {
		fmt.Fprintf(&text, "- {key: k, value: v%d, rate_limit: {unit: day, requests_per_unit: 1}}\n", i)
	}
	if _, limits, problems := plan.DecodeAll("f", []byte(text.String())); len(limits) != 1 {
		t.Errorf("refused:\n%s", lines(problems))
	}
	long := text.String() + strings.Repeat("#", plan.MaxRateLimits)
	if _, limits, problems := plan.DecodeAll("f", []byte(long)); len(limits) != 0 || !strings.Contains(lines(problems), "more than 1048576; split it") {
		t.Errorf("taken:\n%s", lines(problems))
	}
}

// A few lines of aliases must not become gigabytes, nor go round for ever.
func TestDecodeAll_AliasesStayBounded(t *testing.T) {
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
		_, limits, problems := plan.DecodeAll("f", []byte(text))
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
		docs, limits, problems := plan.DecodeAll("f", text)
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
		if l := r.Limit; r.Key == "" || r.ShareThreshold && !strings.Contains(r.Value, "*") || l != nil &&
			(l.Unlimited != (l.Unit == 0) || l.Amount < 0 || l.Amount > 1<<32-1 || l.Multiplier < 1) {
			t.Errorf("%+v with the limit %+v", r, l)
		}
		if r.Value == "" {
			continue // a pattern beside it may come first
		}
		path := append(above[:len(above):len(above)], r.Entry())
		if got, _ := table.Match(path, nil); got != r {
			t.Errorf("%q finds %+v", path, got)
		}
		whole(t, table, r.Rules, path)
	}
}
