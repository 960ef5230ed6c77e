package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// A key that is there twice is refused at every level, by its path; the same key
// under two parents is no repetition (case C001).
func TestDecode_C001_DuplicateKeys(t *testing.T) {
	t.Parallel()
	const app = "apiVersion: mete/v1\nkind: App\nmetadata: {name: api}\nspec:\n  time_zone: UTC\n  identity:\n    tenant: [{jwt_claim: org}]\n"
	const plans = "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: free}\nspec:\n  limits:\n    gold: {kind: rate, amount: 1, window: 1s}\n"
	const tenant = "apiVersion: mete/v1\nkind: Tenant\nmetadata: {name: \"org:a\"}\nspec:\n  plan: free\n"
	for text, want := range map[string]string{
		plans + "spec: {}\n":           "f:7:1: spec: is written twice, first in line 4; keep one",
		plans + tenant:                 "f:7:1: apiVersion: is written twice, first in line 1; keep one, or write --- on a line of its own before a second document",
		plans + "kind: Plan\n":         "f:7:1: kind: is written twice, first in line 2; keep one",
		plans + "  limits: {}\n":       "f:7:3: spec.limits: is written twice, first in line 5; keep one",
		plans + "    gold: {}\n":       "f:7:5: spec.limits.gold: is written twice, first in line 6; keep one",
		plans + "    \"gold\": {}\n":   "f:7:5: spec.limits.gold: is written twice, first in line 6; keep one",
		app + "  identity: {}\n":       "f:8:3: spec.identity: is written twice, first in line 6; keep one",
		app + "    tenant: []\n":       "f:8:5: spec.identity.tenant: is written twice, first in line 7; keep one",
		app + "  time_zone: UTC\n":     "f:8:3: spec.time_zone: is written twice, first in line 5; keep one",
		tenant + "  plan: free\n":      "f:6:3: spec.plan: is written twice, first in line 5; keep one",
		tenant + "metadata: {name: b}": "f:6:1: metadata: is written twice, first in line 3; keep one",
		strings.Replace(plans, "amount: 1", "amount: 1, amount: 2", 1):                                                          "f:6:35: spec.limits.gold.amount: is written twice, first in line 6; keep one",
		strings.Replace(plans, "{name: free}", "{name: free, labels: {a: b, a: c}}", 1):                                         "f:3:39: metadata.labels.a: is written twice, first in line 3; keep one",
		`{"apiVersion": "mete/v1", "kind": "Plan", "metadata": {"name": "free"}, "spec": {"limits": {"gold": {}, "gold": {}}}}`: "f:1:105: spec.limits.gold: is written twice, first in line 1; keep one",
	} {
		docs, problems := plan.Decode("f", []byte(text))
		if len(docs) != 0 || !strings.Contains(lines(problems), want+"\n") {
			t.Errorf("%s\n%d documents, got\n%swant\n%s", text, len(docs), lines(problems), want)
		}
	}
	const twoParents = plans + "    silver:\n      kind: quota\n      amount: 1\n      reset: {calendar: day}\n" +
		"---\napiVersion: mete/v1\nkind: Plan\nmetadata: {name: other}\nspec:\n  limits:\n    gold: {kind: rate, amount: 1, window: 1s}\n"
	if docs, problems := plan.Decode("f", []byte(twoParents)); len(docs) != 2 || plan.Refused(problems) {
		t.Errorf("the same key under two parents: %d documents\n%s", len(docs), lines(problems))
	}
}

// A calendar that is none is refused by its path, with the value as it is written
// (case C003). Words are small letters, as everywhere in the documents.
func TestDecode_C003_UnknownCalendars(t *testing.T) {
	t.Parallel()
	const text = "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: free}\nspec:\n  limits:\n    r: {kind: rate, amount: 1, window: 1s}\n    m: {kind: quota, amount: 1, reset: {%s}}\n"
	for word, want := range map[string]string{
		"calendar: foo":     `spec.limits.m.reset.calendar: "foo" is unknown`,
		"calendar: 5":       "spec.limits.m.reset.calendar: 5 is ",
		`calendar: "5"`:     `spec.limits.m.reset.calendar: "5" is unknown`,
		`calendar: ""`:      `spec.limits.m.reset.calendar: "" is unknown`,
		"calendar:":         "spec.limits.m.reset.calendar: ",
		"":                  "spec.limits.m.reset.calendar: is missing",
		"calendar: minute":  `spec.limits.m.reset.calendar: "minute" is unknown`,
		"calendar: MONTH":   `spec.limits.m.reset.calendar: "MONTH" is unknown`,
		"calendar: months":  `spec.limits.m.reset.calendar: "months" is unknown`,
		"calendar: [month]": "spec.limits.m.reset.calendar: ",
	} {
		docs, problems := plan.Decode("f", fmt.Appendf(nil, text, word))
		if got := lines(problems); len(docs) != 0 || !strings.Contains(got, ": "+want) || !strings.HasPrefix(got, "f:7:") {
			t.Errorf("%q: %d documents, got\n%swant %s", word, len(docs), got, want)
		}
	}
	for _, word := range []string{"hour", "day", "week", "month", "year"} {
		if docs, problems := plan.Decode("f", fmt.Appendf(nil, text, "calendar: "+word)); len(docs) != 1 {
			t.Errorf("%s: %s", word, lines(problems))
		}
	}
}

// Numbers that are not whole amounts are refused wherever one is written, in YAML
// and in JSON; null is a missing field and not zero (case C007).
func TestDecode_C007_Numbers(t *testing.T) {
	t.Parallel()
	yaml := []string{".nan", ".NaN", ".inf", "-.inf", "-5", "0x10", "1_000", `"100"`, "'100'", "0.5", "1e3", "010", "null", "~", `""`, ""}
	json := []string{"NaN", "Infinity", "-1", "null", `""`, `"100"`, "0.5", "1e3", "1.0", "true", "[]", "{}"}
	head := func(kind, name string) string {
		return `{"apiVersion": "mete/v1", "kind": "` + kind + `", "metadata": {"name": "` + name + `"}, "spec": `
	}
	places := map[string]string{ // "%" is the number
		"amount of a rate":         head("Plan", "free") + `{"limits": {"x": {"kind": "rate", "amount": %, "window": "1s"}}}}`,
		"burst":                    head("Plan", "free") + `{"limits": {"x": {"kind": "rate", "amount": 1, "burst": %, "window": "1s"}}}}`,
		"amount of a quota":        head("Plan", "free") + `{"limits": {"x": {"kind": "quota", "amount": %, "reset": {"calendar": "day"}}}}}`,
		"first of a lease":         head("Plan", "free") + `{"limits": {"x": {"kind": "quota", "amount": 1, "lease": {"first": %}, "reset": {"calendar": "day"}}}}}`,
		"override of a plan":       head("Plan", "free") + `{"limits": {"x": {"kind": "rate", "amount": 1, "window": "1s"}}, "overrides": [{"tenants": ["org:*"], "limits": {"x": {"amount": %}}, "reason": "because of it"}]}}`,
		"override of a tenant":     head("Tenant", "org:a") + `{"plan": "free", "overrides": {"x": {"amount": %, "reason": "because of it"}}}}`,
		"own limit of a tenant":    head("Tenant", "org:a") + `{"limits": {"x": {"kind": "rate", "amount": %, "window": "1s"}}}}`,
		"weight of a route":        head("Routes", "api") + `{"app": "api", "rules": [{"name": "a", "match": {"path": "/"}, "weight": %}]}}`,
		"anchor day of a calendar": head("Plan", "free") + `{"limits": {"x": {"kind": "quota", "amount": 1, "reset": {"calendar": "billing", "anchor": %}}}}}`,
	}
	for place, form := range places {
		if docs, problems := plan.Decode("f", []byte(strings.Replace(form, "%", "7", 1))); len(docs) != 1 {
			t.Fatalf("%s: the form itself is refused: %s", place, lines(problems))
		}
		for _, number := range append(yaml, json...) {
			docs, problems := plan.Decode("f", []byte(strings.Replace(form, "%", number, 1)))
			if len(docs) != 0 || !plan.Refused(problems) {
				t.Errorf("%s: %q is taken", place, number)
			}
		}
	}
}

// YAML may be written in one line; what begins like JSON is held to JSON's rules.
func TestDecode_FlowYAMLAndJSON(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		`{apiVersion: mete/v1, kind: Tenant, metadata: {name: "org:a"}, spec: {plan: free}}`:             true,
		"{ # by hand\n apiVersion: mete/v1, kind: Tenant, metadata: {name: \"org:a\"}, spec: {}}":        true,
		`{"apiVersion": "mete/v1", "kind": "Tenant", "metadata": {"name": "org:a"}, "spec": {}}`:         true,
		`{"apiVersion": "mete/v1", "kind": "Tenant", "metadata": {"name": "org:a"}, "spec": {},}`:        false,
		"{\"apiVersion\": \"mete/v1\", # by hand\n\"kind\": \"Tenant\", \"metadata\": {}, \"spec\": {}}": false,
		`{}`: false,
		`{`:  false,
	} {
		docs, problems := plan.Decode("f", []byte(text))
		if got := len(docs) == 1 && !plan.Refused(problems); got != good {
			t.Errorf("%s: accepted %v, want %v: %v", text, got, good, problems)
		}
	}
}
