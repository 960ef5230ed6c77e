package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// checked returns the problems of the last document of texts, all of which are put
// before.
func checked(t *testing.T, texts ...string) string {
	t.Helper()
	c := catalog(t, texts...)
	docs, _ := plan.Decode("f", []byte(texts[len(texts)-1]))
	return lines(c.Check(docs[len(docs)-1]))
}

// checks runs rows of documents, the last of which brings the problems.
func checks(t *testing.T, rows map[string]checkRow) {
	t.Helper()
	for name, row := range rows {
		if got := strings.TrimSuffix(checked(t, row.texts...), "\n"); got != row.want {
			t.Errorf("%s: got\n%s\nwant\n%s", name, got, row.want)
		}
	}
}

type checkRow struct {
	texts []string
	want  string
}

func TestCheck_Apps(t *testing.T) {
	withDefault := strings.Replace(appText, "spec:\n", "spec:\n  defaults: {plan: free}\n", 1)
	tokens := doc("Plan", "free", "{limits: {t: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: day}}, rps: {kind: rate, amount: 5, window: 1s}}}")
	checks(t, map[string]checkRow{
		"app":                     {[]string{freePlan, withDefault}, ""},
		"app, default plan":       {[]string{withDefault}, "f:5:20: spec.defaults.plan: there is no plan free; write it first"},
		"app, default misspelled": {[]string{strings.Replace(freePlan, "free", "fre", 1), withDefault}, "f:5:20: spec.defaults.plan: there is no plan free; did you mean fre?"},
		"app, hosts and domain": {[]string{
			strings.Replace(appText, "name: api", "name: old", 1), appText,
		}, `f:6:19: spec.envoy.domain: "api" belongs to app old already; choose another one
f:6:31: spec.envoy.hosts: "api.example.com" belongs to app old already; keep it in one of them
f:6:31: spec.envoy.hosts: "*.api.example.com" belongs to app old already; keep it in one of them
f:6:31: spec.envoy.hosts: "*.example.org" belongs to app old already; keep it in one of them`},
		"app, unit taken away": {[]string{doc("Routes", "r", "{app: api, rules: [{name: chat, match: {path: /c}, units: {gpus: {reserve: 1}}}]}"), appText}, "f: routes r, rule chat: app api has no unit gpus; declare it in spec.units of the app"},

		"plan":                            {[]string{appText, tokens}, ""},
		"plan, unit":                      {[]string{appText, strings.Replace(tokens, "tokens", "gpus", 1)}, "f:5:54: spec.limits.t.unit: no app has a unit gpus; declare it in spec.units of one"},
		"plan, class":                     {[]string{appText, strings.Replace(tokens, "unit: tokens", "classes: [robots]", 1)}, "f:5:57: spec.limits.t.classes: no app has a class robots; declare it in spec.identity.classes of one"},
		"plan, class is there":            {[]string{appText, strings.Replace(tokens, "unit: tokens", "classes: [batch, people]", 1)}, ""},
		"plan, unit of the app that uses": {[]string{withDefault, strings.Replace(appText, "name: api", "name: b", 1), strings.Replace(tokens, "tokens", "gpus", 1)}, "f:5:54: spec.limits.t.unit: app api has no unit gpus; declare it in spec.units of the app"},
		"plan, reserve above it": {[]string{
			withDefault, doc("Routes", "r", "{app: api, rules: [{name: chat, match: {path: /c}, weight: 9, units: {tokens: {reserve: 4000}}}]}"), tokens,
		}, `f:5:42: spec.limits.t.amount: warning: rule chat of routes r takes 4000 tokens, more than the whole limit t of plan free, 1000, so tenants on it are always refused there; take less or raise the limit unless that is meant
f:5:113: spec.limits.rps.amount: warning: rule chat of routes r takes 9 requests, more than the whole limit rps of plan free, 5, so tenants on it are always refused there; take less or raise the limit unless that is meant`},

		"routes":                {[]string{withDefault, tokens, doc("Routes", "r", "{app: api, rules: [{match: {path: /c}, units: {tokens: {reserve: 1000}}}]}")}, ""},
		"routes, app":           {[]string{appText, doc("Routes", "r", "{app: apo, rules: []}")}, "f:5:13: spec.app: there is no app apo; did you mean api?"},
		"routes, unit":          {[]string{appText, doc("Routes", "r", "{app: api, rules: [{match: {path: /c}, units: {gpus: {reserve: 1}}}]}")}, "f:5:60: spec.rules[0].units.gpus: routes r, rule /c: app api has no unit gpus; declare it in spec.units of the app"},
		"routes, reserve above": {[]string{withDefault, tokens, doc("Routes", "r", "{app: api, rules: [{match: {path: /c}, units: {tokens: {reserve: 1001}}}]}")}, "f:5:26: spec.rules[0]: warning: rule /c of routes r takes 1001 tokens, more than the whole limit t of plan free, 1000, so tenants on it are always refused there; take less or raise the limit unless that is meant"},
		"routes, reserve above, tenants of no app": {
			[]string{appText, tokens, doc("Tenant", "org:a", "{plan: free}"), doc("Routes", "r", "{app: api, rules: [{match: {path: /c}, units: {tokens: {reserve: 1001}}}]}")},
			"f:5:26: spec.rules[0]: warning: rule /c of routes r takes 1001 tokens, more than the whole limit t of plan free, 1000, so tenants on it are always refused there; take less or raise the limit unless that is meant",
		},
		"routes, unused plan": {[]string{appText, tokens, doc("Routes", "r", "{app: api, rules: [{match: {path: /c}, units: {tokens: {reserve: 1001}}}]}")}, ""},
		"routes, unreachable": {
			[]string{appText, doc("Routes", "r", `{app: api, rules: [{name: a, match: {path_prefix: /v1}}, {name: b, match: {path: "/v1/x/{id}"}}, {name: c, match: {path: /v2}}]}`)},
			"f:5:64: spec.rules[1]: warning: can never match, since rule a before it takes all its requests; write it before that one",
		},
		"routes, unreachable by another": {
			[]string{appText, doc("Routes", "a", `{app: api, rules: [{name: all, match: {path_prefix: /}}]}`), doc("Routes", "b", `{app: api, rules: [{match: {path: /v2}}]}`)},
			"f:5:26: spec.rules[0]: warning: can never match, since rule all before it takes all its requests; write it before that one",
		},
		"routes, name in another": {
			[]string{appText, doc("Routes", "a", `{app: api, rules: [{name: x, match: {path: /a}}]}`), doc("Routes", "b", `{app: api, rules: [{name: x, match: {path: /b}}]}`)},
			"f:5:33: spec.rules[0].name: routes a have a rule x for the same app; choose another name",
		},
	})
}

func TestCheck_Tenants(t *testing.T) {
	withDefault := strings.Replace(appText, "spec:\n", "spec:\n  defaults: {plan: free}\n", 1)
	billing := doc("Plan", "bill", "{limits: {c: {kind: quota, amount: 1, reset: {calendar: billing}}}}")
	credential := func(spec string) string { return doc("Credential", strings.Repeat("0a", 32), spec) }
	checks(t, map[string]checkRow{
		"tenant":                 {[]string{appText, freePlan, doc("Tenant", "org:a", "{plan: free, app: api}")}, ""},
		"tenant, plan and app":   {[]string{appText, freePlan, doc("Tenant", "org:a", "{plan: pro, app: web}")}, "f:5:14: spec.plan: there is no plan pro; write it first\nf:5:24: spec.app: there is no app web; write it first"},
		"tenant, parent":         {[]string{appText, doc("Tenant", "user:a", `{parent: "org:b"}`)}, "f:5:16: spec.parent: there is no tenant org:b; write it first"},
		"tenant, circle":         {[]string{appText, doc("Tenant", "a:1", `{parent: "a:2"}`), doc("Tenant", "a:2", `{parent: "a:1"}`)}, "f:5:16: spec.parent: is below a:2 itself, in a circle; choose another parent"},
		"tenant, parent's app":   {[]string{appText, strings.NewReplacer("name: api", "name: b", "  envoy:", "  #").Replace(appText), doc("Tenant", "org:a", "{app: b}"), doc("Tenant", "user:b", `{parent: "org:a", app: api}`)}, "f:5:16: spec.parent: tenant org:a is for app b alone; choose another parent or another app"},
		"tenant, override":       {[]string{appText, freePlan, doc("Tenant", "org:a", "{plan: free, overrides: {daily: {amount: 1, reason: less}}}")}, "f:5:39: spec.overrides.daily: there is no limit daily to override; the limits are rps and monthly"},
		"tenant, override of it": {[]string{appText, freePlan, doc("Tenant", "org:a", "{plan: free, limits: {daily: {kind: quota, amount: 5, reset: {calendar: day}}}, overrides: {daily: {amount: 1, reason: less}}}")}, ""},
		"tenant, inherited":      {[]string{appText, freePlan, doc("Tenant", "org:a", "{plan: free}"), doc("Tenant", "user:a", `{parent: "org:a", overrides: {rps: {amount: 1, reason: less}}}`)}, ""},
		"tenant, by default":     {[]string{withDefault, freePlan, doc("Tenant", "org:a", "{overrides: {rps: {amount: 1, reason: less}}}")}, ""},
		"tenant, burst of quota": {[]string{appText, freePlan, doc("Tenant", "org:a", "{plan: free, overrides: {monthly: {burst: 1, reason: less}}}")}, "f:5:41: spec.overrides.monthly: monthly is not a rate and has no burst; leave burst out"},
		"tenant, no plan":        {[]string{appText, doc("Tenant", "org:a", "{overrides: {rps: {amount: 1, reason: less}}}")}, "f:5:25: spec.overrides.rps: there is no limit rps to override"},
		"tenant, billing":        {[]string{appText, billing, doc("Tenant", "org:a", "{plan: bill}")}, "f:5:7: spec: limit c of its plan starts again by billing; write billing_anchor, the day of the month"},
		"tenant, billing anchor": {[]string{appText, billing, doc("Tenant", "org:a", "{plan: bill, billing_anchor: 3}")}, ""},
		"tenant, unit":           {[]string{appText, doc("Tenant", "org:a", "{app: api, limits: {x: {kind: rate, unit: gpus, amount: 5, window: 1s}}}")}, "f:5:49: spec.limits.x.unit: app api has no unit gpus; declare it in spec.units of the app"},

		"credential":                    {[]string{appText, doc("Tenant", "org:a", "{}"), credential(`{tenant: "org:a", class: batch}`)}, ""},
		"credential, tenant":            {[]string{appText, credential(`{tenant: "org:a"}`)}, "f:5:16: spec.tenant: warning: there is no tenant org:a; its requests are answered 401 until there is"},
		"credential, tenant by default": {[]string{freePlan, withDefault, credential(`{tenant: "org:a"}`)}, "f:5:16: spec.tenant: warning: there is no tenant org:a; its requests are answered 401 until there is"},
		"credential, class":             {[]string{appText, doc("Tenant", "org:a", "{}"), credential(`{tenant: "org:a", class: robots}`)}, "f:5:32: spec.class: warning: no app has a class robots; declare it in spec.identity.classes of one"},
	})
}

func TestCheck_Depth(t *testing.T) {
	texts := []string{appText, doc("Tenant", "d:1", "{}")}
	for i := 2; i <= 9; i++ {
		texts = append(texts, doc("Tenant", fmt.Sprintf("d:%d", i), fmt.Sprintf(`{parent: "d:%d"}`, i-1)))
	}
	if got := checked(t, texts[:len(texts)-1]...); got != "" {
		t.Errorf("8 deep: got %s", got)
	}
	if got := checked(t, texts...); got != "f:5:16: spec.parent: is 8 deep already; a path has at most 8 tenants\n" {
		t.Errorf("9 deep: got %s", got)
	}
}

// A document takes the place of the one of its name: moving away from a circle, or
// to one's own host, is no fault.
func TestCheck_TakesThePlace(t *testing.T) {
	c := catalog(t, appText, doc("Tenant", "a:1", "{}"), doc("Tenant", "a:2", `{parent: "a:1"}`))
	for _, text := range []string{appText, doc("Tenant", "a:2", "{}"), doc("Tenant", "a:2", `{parent: "a:1"}`)} {
		docs, _ := plan.Decode("f", []byte(text))
		if got := c.Check(docs[0]); len(got) > 0 {
			t.Errorf("%s: got %s", text, lines(got))
		}
	}
	docs, _ := plan.Decode("f", []byte(doc("Tenant", "a:1", `{parent: "a:2"}`)))
	if got := lines(c.Check(docs[0])); got != "f:5:16: spec.parent: is below a:1 itself, in a circle; choose another parent\n" {
		t.Errorf("got %s", got)
	}
}

func TestCheckDelete(t *testing.T) {
	withDefault := strings.Replace(appText, "spec:\n", "spec:\n  defaults: {plan: free}\n", 1)
	pro, idle := strings.Replace(freePlan, "free", "pro", 1), strings.Replace(freePlan, "free", "idle", 1)
	c := catalog(t, withDefault, freePlan, pro, idle,
		doc("Routes", "r", "{app: api, rules: []}"),
		doc("Tenant", "org:a", "{plan: pro, app: api}"), doc("Tenant", "org:b", "{plan: pro}"), doc("Tenant", "user:c", `{parent: "org:a"}`))
	for _, row := range []struct {
		kind       plan.Kind
		name, want string
	}{
		{plan.KindPlan, "free", "it is the default plan of app api; change that first\n"},
		{plan.KindPlan, "pro", "2 tenants are on it; move them to another plan first\n"},
		{plan.KindPlan, "idle", ""},
		{plan.KindPlan, "none", ""},
		{plan.KindApp, "api", "routes r are for it; delete them first\n1 tenant is for it alone; delete or move it first\n"},
		{plan.KindTenant, "org:a", "1 tenant has it as its parent; delete or move it first\n"},
		{plan.KindTenant, "org:b", ""},
		{plan.KindRoutes, "r", ""},
	} {
		if got := lines(c.CheckDelete(row.kind, row.name)); got != row.want {
			t.Errorf("%s %s: got %s", row.kind, row.name, got)
		}
	}
	// Moving and deleting tenants sets the plan free.
	docs, _ := plan.Decode("", []byte(doc("Tenant", "org:a", "{plan: free}")))
	c.Put(docs[0], 50)
	c.Put(docs[0], 51) // a repetition counts once
	c.Delete(plan.KindTenant, "org:b", 52)
	c.Delete(plan.KindTenant, "org:b", 53)
	c.Delete(plan.KindTenant, "user:c", 54)
	for _, row := range []struct {
		kind plan.Kind
		name string
	}{{plan.KindPlan, "pro"}, {plan.KindTenant, "org:a"}} {
		if got := c.CheckDelete(row.kind, row.name); len(got) > 0 {
			t.Errorf("%s %s: got %s", row.kind, row.name, lines(got))
		}
	}
	if got := lines(c.CheckDelete(plan.KindPlan, "free")); got != "1 tenant is on it; move it to another plan first\nit is the default plan of app api; change that first\n" {
		t.Errorf("got %s", got)
	}
}
