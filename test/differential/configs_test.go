package differential_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// Every file of testdata/configs behaves as the expectation beside it says, over the wire. Files with a number up to 24 are such as
// people run today; what these do not reach is in those from 50 up.
func TestConfigs_P1_to_P14_C001_to_C128(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/configs/*.yaml")
	if err != nil || len(files) < 29 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			e := readExpectation(t, strings.TrimSuffix(file, ".yaml")+".expect")
			loads(t, filepath.Base(file), string(text), e.loads, e.names)
			for _, r := range e.rejected {
				loads(t, "also.yaml", r[0], false, r[1:])
			}
			for _, l := range e.loading {
				loads(t, "also.yaml", l, true, nil)
			}
			for _, lines := range e.parts {
				synctest.Test(t, func(t *testing.T) { playLines(t, string(text), lines) })
			}
		})
	}
}

// loads demands that a file is taken, or that it is refused with an error that names what is wrong and where. What is in force
// stays then.
func loads(t *testing.T, name, text string, want bool, names []string) {
	t.Helper()
	docs, problems := plan.Decode(name, []byte(text))
	if got := !plan.Refused(problems); got != want {
		t.Fatalf("%s: loads %v, not %v: %v\n%s", name, got, want, problems, text)
	}
	if want {
		return
	}
	if len(docs) > 0 {
		t.Errorf("%s: part of a refused file is taken", name)
	}
	said := fmt.Sprint(problems)
	for _, n := range names {
		if !strings.Contains(said, n) {
			t.Errorf("%s: the error does not name %q: %s", name, n, said)
		}
	}
	if !regexp.MustCompile(regexp.QuoteMeta(name) + `:\d+:\d+: `).MatchString(said) {
		t.Errorf("%s: the error has no line: %s", name, said)
	}
}

// playLines plays a paragraph of an expectation.
func playLines(t *testing.T, file string, lines []string) {
	t.Helper()
	k := newDesk(t, file)
	docs, _ := plan.Decode("", []byte(file))
	domain := docs[0].RateLimits.Domain
	for _, text := range lines {
		switch {
		case wait(t, text):
		case strings.HasPrefix(text, "rule "):
			k.counted(domain, strings.TrimPrefix(text, "rule "))
		case strings.HasPrefix(text, "series "):
			k.series(domain, text)
		default:
			k.play(text, parseLine(t, domain, text))
		}
	}
}

func (k *desk) play(text string, l line) {
	k.t.Helper()
	var last answer
	for i, over := range l.answers {
		got, err := askRaw(k.t.Context(), k.conn, l.request.raw(k.t))
		if err != nil {
			k.t.Fatalf("%s: %v", text, err)
		}
		if got.over != over {
			k.t.Errorf("%s: number %d: over is %v: %v", text, i+1, got.over, got)
		}
		last = got
	}
	for what, values := range l.says {
		if len(values) != len(last.statuses) {
			k.t.Fatalf("%s: %d statuses", text, len(last.statuses))
		}
		for i, want := range values {
			if got := last.statuses[i].tells(what); got != want {
				k.t.Errorf("%s: descriptor %d says %s %s, not %s: %v", text, i+1, what, got, want, last)
			}
		}
	}
}

// counted demands what the metrics of a rule say.
func (k *desk) counted(domain, text string) {
	k.t.Helper()
	name, want, _ := strings.Cut(text, " total=")
	got := "none"
	for _, r := range k.decider.Stats().Rules {
		if r.Domain == domain && r.Rule == name {
			got = fmt.Sprintf("%d within=%d near=%d over=%d shadow=%d", r.Total, r.Within, r.Near, r.Over, r.Shadow)
		}
	}
	if got != want {
		k.t.Errorf("rule %s: total=%s, not total=%s; there are %v", name, got, want, k.decider.Stats().Rules)
	}
}

// series demands a bound of the metrics: "series at most 9 after 1000 requests [(svc,a),(op,%)]".
func (k *desk) series(domain, text string) {
	k.t.Helper()
	m := regexp.MustCompile(`^series at most (\d+) after (\d+) requests (.*)$`).FindStringSubmatch(text)
	if m == nil {
		k.t.Fatalf("no series: %s", text)
	}
	var c authz.Count
	for i := range number(k.t, m[2]) {
		r := parseRequest(k.t, strings.ReplaceAll(m[3], "%", fmt.Sprint(i)))
		asks := make([]authz.DescriptorAsk, len(r.descriptors))
		for j, d := range r.descriptors {
			asks[j].Hits = 1
			for _, e := range d.entries {
				asks[j].Entries = append(asks[j].Entries, plan.DescriptorEntry{Key: e.key, Value: e.value})
			}
		}
		c.Reset()
		k.decider.CountDescriptors(k.t.Context(), time.Now(), domain, asks, false, &c)
	}
	if got := len(k.decider.Stats().Rules); uint64(got) > number(k.t, m[1]) {
		k.t.Errorf("%s: %d series", text, got)
	}
}

// Two files of one domain: an error that names both, unless they are to be merged; then both count, but for a rule that both have.
func TestConfigs_P70_C002_C001_SameDomainTwice(t *testing.T) {
	t.Parallel()
	read := func(name string) *plan.Document {
		text, err := os.ReadFile("testdata/configs/" + name)
		if err != nil {
			t.Fatal(err)
		}
		docs, problems := plan.Decode(name, text)
		if len(docs) != 1 || plan.Refused(problems) {
			t.Fatalf("%s: %v", name, problems)
		}
		docs[0].Name += "/" + strings.TrimSuffix(name, ".yaml")
		return docs[0]
	}
	red, blue, redAgain := read("17a-same-domain.yaml"), read("17b-same-domain.yaml"), read("17a-same-domain.yaml")
	redAgain.Name = "shared/again"
	said := fmt.Sprint(plan.RepeatedDomains([]*plan.RateLimits{red.RateLimits, blue.RateLimits}))
	for _, name := range []string{"17a-same-domain.yaml", "17b-same-domain.yaml", "shared"} {
		if !strings.Contains(said, name) {
			t.Errorf("both without merging: the error does not name %s: %s", name, said)
		}
	}
	if _, problems := plan.MergeRateLimits([]*plan.RateLimits{red.RateLimits, blue.RateLimits}); plan.Refused(problems) {
		t.Errorf("both merged: %v", problems)
	}
	if _, problems := plan.MergeRateLimits([]*plan.RateLimits{red.RateLimits, blue.RateLimits, redAgain.RateLimits}); !strings.Contains(fmt.Sprint(problems), "shared / team=red") {
		t.Errorf("a rule in two files that are merged: %v", problems)
	}
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t)
		for _, doc := range []*plan.Document{red, blue} {
			if p := k.catalog.Check(doc); plan.Refused(p) {
				t.Fatal(p)
			}
			k.rev++
			k.catalog.Put(doc, k.rev)
		}
		if p := k.catalog.Check(redAgain); !plan.Refused(p) {
			t.Error("the store takes a rule twice")
		}
		k.publish()
		for _, row := range []string{"[(team,red)] x2 -> OK, OVER_LIMIT", "[(team,blue)] x3 -> 2 OK, OVER_LIMIT"} {
			k.play(row, parseLine(t, "shared", row))
		}
	})
}
