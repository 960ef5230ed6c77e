package plan_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

const wanted = "# ---\n"

// Each file ends in what it must bring: its problems, and the rule and the counter of
// some descriptors. A file called .bad is refused.
func TestDescriptors_P1_P3_P4_P5_P6_P7_P8_P10_P11_C001_C003_C007_C011_C012_C014_C126_Files(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "descriptors", "*.yaml"))
	if err != nil || len(files) < 35 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text := readFile(t, file)
			input, want, _ := strings.Cut(string(text), wanted)
			docs, limits, problems := decodeAll(name, []byte(input))
			bad := strings.HasSuffix(name, ".bad.yaml")
			if bad != plan.Refused(problems) || bad != (len(limits) == 0) || len(docs) != 0 {
				t.Errorf("%d documents and %d of descriptors:\n%s", len(docs), len(limits), lines(problems))
			}
			var got strings.Builder
			for _, p := range problems {
				fmt.Fprintf(&got, "# problem: %s\n", strings.TrimPrefix(p.String(), name+":"))
			}
			for line := range strings.Lines(want) {
				if from, _, ok := strings.Cut(strings.TrimPrefix(line, "# "), "->"); ok && !strings.HasPrefix(line, "# problem: ") {
					fmt.Fprintf(&got, "# %s-> %s\n", from, found(t, limits, from))
				}
			}
			if *update {
				if err := os.WriteFile(file, []byte(input+wanted+got.String()), 0o600); err != nil {
					t.Fatal(err)
				}
			} else if got.String() != want {
				t.Errorf("got\n%swant\n%s", got.String(), want)
			}
		})
	}
}

// decodeAll divides what Decode returns into documents of descriptors and others.
func decodeAll(file string, text []byte) (docs []*plan.Document, limits []*plan.RateLimits, problems []plan.Problem) {
	all, problems := plan.Decode(file, text)
	for _, d := range all {
		if d.RateLimits != nil {
			limits = append(limits, d.RateLimits)
		} else {
			docs = append(docs, d)
		}
	}
	return docs, limits, problems
}

// found tells the rule, its limit and its counter for a descriptor such as
// `a=b, c="\xff"`.
func found(tb testing.TB, limits []*plan.RateLimits, text string) string {
	tb.Helper()
	if len(limits) != 1 {
		return "refused"
	}
	match, counter := plan.NewDescriptorTable(limits[0]).Match(entries(tb, text), nil)
	if match == nil {
		if len(counter) != 0 {
			tb.Errorf("no rule, but the counter %q", counter)
		}
		return "nothing"
	}
	return fmt.Sprintf("%s, %s, %s", match.Rule.Path, limitText(match.Rule), counter)
}

func limitText(r *plan.DescriptorRule) string {
	if r.Limit == nil {
		return "no limit"
	}
	l, s := r.Limit, "unlimited"
	if !l.Unlimited {
		s = fmt.Sprintf("%d/%v", l.Amount, l.Unit)
	}
	for _, part := range []struct {
		is   bool
		text string
	}{
		{l.Multiplier != 1, fmt.Sprintf("x%d", l.Multiplier)},
		{l.Name != "", "called " + l.Name},
		{len(l.Replaces) > 0, fmt.Sprintf("for %v", l.Replaces)},
		{r.Shadow, "shadow"},
		{r.QuotaMode, "quota"},
		{r.DetailedMetric, "detailed"},
		{r.ValueToMetric, "value to metric"},
		{r.Metadata != nil, fmt.Sprintf("with %v", r.Metadata)},
	} {
		if part.is {
			s += " " + part.text
		}
	}
	return s
}

func entries(tb testing.TB, text string) (all []plan.DescriptorEntry) {
	tb.Helper()
	for _, part := range strings.Split(strings.TrimSpace(text), ", ") {
		if part == "" {
			continue
		}
		// The values of a gateway hold no "=", so the first one divides.
		key, value, _ := strings.Cut(part, "=")
		all = append(all, plan.DescriptorEntry{Key: unquoted(tb, key), Value: unquoted(tb, value)})
	}
	return all
}

func unquoted(tb testing.TB, s string) string {
	tb.Helper()
	if !strings.HasPrefix(s, `"`) {
		return s
	}
	s, err := strconv.Unquote(s)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
