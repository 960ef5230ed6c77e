package plan_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// S24: what a document needs is what it says, not what that amounts to: an older
// version refuses to read a new field, be it the default.
func TestNeeds_S24_TheHighestLevelOfAnyField(t *testing.T) {
	t.Parallel()
	const limit = "kind: quota, amount: 9, reset: {calendar: day}"
	for _, tt := range []struct {
		name, text string
		level      int
		path       string
	}{
		{"a plan of today", "spec: {limits: {a: {" + limit + ", on_unavailable: deny, lease: {first: 3}}}}", 1, ""},
		{"a cap", "spec: {limits: {a: {" + limit + "}, b.c: {on_unavailable: {units: 3}}}}", 2, "spec.limits.b.c.on_unavailable"},
		{"exact", "spec: {limits: {a: {lease: {exact_below: 0%}}}}", 2, "spec.limits.a.lease.exact_below"},
		{"wait", "spec: {limits: {a: {lease: {wait: 300ms}}}}", 2, "spec.limits.a.lease.wait"},
		{"reports", `{"spec": {"limits": {"a": {"lease": {"report_every": "1s"}}}}}`, 2, "spec.limits.a.lease.report_every"},
		{"routes of today", "spec: {app: a, rules: [{name: x, match: {path: /a}, units: {tokens: {reserve: 1}}}]}", 1, ""},
		{"hosts", "spec: {rules: [{match: {path: /a}}, {match: {hosts: [a.org]}}]}", 3, "spec.rules[1].match.hosts"},
		{"requests", "spec: {rules: [{units: {tokens: {reserve: 1}, requests: {reserve: 3}}}]}", 3, "spec.rules[0].units.requests"},
		{"max", "spec: {rules: [{units: {tokens: {reserve: 1, max: 3}}}]}", 3, "spec.rules[0].units.tokens.max"},
		{"use", "spec: {rules: [{units: {a: {reserve: 1}, b.c: {use: [{report: true}]}}}]}", 3, "spec.rules[0].units.b.c.use"},
		{"unreported", "spec: {rules: [{units: {tokens: {unreported: reserve}}}]}", 3, "spec.rules[0].units.tokens.unreported"},
		{"count", "spec: {count: {preset: answered}}", 3, "spec.count"},
		{"attribution", "spec: {attribution: {request_header: x}}", 3, "spec.attribution"},
		{"signed headers", "spec: {identity: {signed_headers: {}}}", 3, "spec.identity.signed_headers"},
		{"still spends", "spec: {identity: {classes: [{name: a}, {name: b, still_spends: [a]}]}}", 3, "spec.identity.classes[1].still_spends"},
		{"how servers read paths", "spec: {paths: {ignore_case: false}}", 5, "spec.paths"},
		{"a unit of that name", "spec: {rules: [{units: {max: {reserve: 1}, use: {reserve: 1}}}]}", 1, ""},
		{"rules that are not a list", "spec: {rules: {a: {match: {hosts: [a.org]}}}}", 1, ""},
		{"a limit of that name", "spec: {limits: {wait: {" + limit + "}, exact_below: {lease: {first: 2}}}}", 1, ""},
		{"elsewhere", "metadata: {labels: {wait: x}}\nspec: {limits: [{lease: {wait: 1s}}]}", 1, ""},
		{"no map at all", "17", 1, ""},
	} {
		if level, path := plan.NeedsOf([]byte(tt.text)); level != tt.level || path != tt.path {
			t.Errorf("%s: got level %d for %q, want %d for %q", tt.name, level, path, tt.level, tt.path)
		}
	}
}

// S24: every example and every document of the tests before this level needs none.
func TestNeeds_S24_NoMoreThanThisBuildHas(t *testing.T) {
	t.Parallel()
	docs, problems := plan.Decode("", []byte("apiVersion: mete/v1\nkind: Plan\nmetadata: {name: p}\nspec: {limits: {a: {kind: rate, amount: 1, window: 1s}}}"))
	if len(docs) != 1 {
		t.Fatal(problems)
	}
	if level, path := docs[0].Needs(); level != 1 || path != "" {
		t.Errorf("got %d, %q", level, path)
	}
	if p := docs[0].Problem("spec.limits.a.amount", "too much"); p.Line != 4 || p.Col == 0 || p.Name != "p" || p.Message != "too much" {
		t.Errorf("problem %+v", p)
	}
}

// The page on upgrading and going back names the level of this build and every field
// that needs it (S28).
func TestLevel_S28_TheDocumentationNamesEveryNewField(t *testing.T) {
	text, err := os.ReadFile("../docs/upgrading.md")
	if err != nil {
		t.Fatal(err)
	}
	fields := plan.NewFields()
	if len(fields[plan.FeatureLevel]) == 0 || len(fields[plan.FeatureLevel+1]) != 0 {
		t.Errorf("no field, or one of a higher level: %v", fields)
	}
	for level, paths := range fields {
		_, row, _ := strings.Cut(string(text), fmt.Sprintf("## What level %d changes\n", level))
		row, _, _ = strings.Cut(row, "\n## ")
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, fmt.Sprintf("| %d |", level)) {
				row += line
			}
		}
		for _, path := range paths {
			if field := path[strings.LastIndexByte(path, '.')+1:]; !strings.Contains(row, field) {
				t.Errorf("the row and the section of level %d do not name %s: %q", level, field, row)
			}
		}
	}
	if !strings.Contains(string(text), "## Rollback") {
		t.Error("nothing is said of going back")
	}
}
