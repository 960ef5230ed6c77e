package plan_test

import (
	"fmt"
	"testing"

	"github.com/meteproject/mete/plan"
)

// rules decodes the rules of a Routes document.
func rules(tb testing.TB, text string) []plan.Rule {
	tb.Helper()
	return decodeOne(tb, doc("Routes", "r", "{app: api, rules: ["+text+"]}")).Routes.Rules
}

// What a route reserves of a unit, and where it is looked for how much was used (A37,
// A38), in the order written.
func TestDecode_A37_A38_C6_S39_Reserves(t *testing.T) {
	t.Parallel()
	got := rules(t, `{name: chat, match: {path: /chat}, units: {
		tokens: {reserve: 4000, max: 200000, unreported: zero,
			use: [{response_header: X-Usage-Tokens}, {response_trailer: x-usage-tokens}, {metadata: "io.example.usage:total.tokens"}, {report: true}]},
		ai_calls: {reserve: 1}, session: {reserve: 0, use: [{report: true}], unreported: weight}}}`)[0]
	want := []plan.Reserve{
		{Unit: "tokens", Amount: 4000, Max: 200000, Unreported: plan.UnreportedZero, Use: []plan.Source{
			{Kind: plan.SourceResponseHeader, Name: "x-usage-tokens"},
			{Kind: plan.SourceResponseTrailer, Name: "x-usage-tokens"},
			{Kind: plan.SourceMetadata, Name: "io.example.usage", Path: []string{"total", "tokens"}},
			{Kind: plan.SourceReport},
		}},
		{Unit: "ai_calls", Amount: 1},
		{Unit: "session", Use: []plan.Source{{Kind: plan.SourceReport}}, Unreported: plan.UnreportedWeight},
	}
	if fmt.Sprintf("%+v", got.Units) != fmt.Sprintf("%+v", want) {
		t.Errorf("got %+v\nwant %+v", got.Units, want)
	}
}

// Of requests a route reserves its weight, or more if it says so (A36, A37); a route
// that says nothing weighs 1 (A7, A39).
func TestDecode_A7_A36_A37_A39_Requests(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":          "1 []",
		"weight: 5": "5 []",
		"weight: 5, units: {requests: {use: [{report: true}]}}":                              "5 [requests 5]",
		"weight: 5, units: {requests: {reserve: 8, use: [{report: true}]}}":                  "5 [requests 8]",
		"weight: 5, units: {requests: {reserve: 2, max: 5, use: [{report: true}]}}":          "5 [requests 5]",
		"units: {requests: {reserve: 9, max: 9, use: [{report: true}]}}":                     "1 [requests 9]",
		"weight: 0, units: {requests: {reserve: 0, use: [{report: true}]}, b: {reserve: 3}}": "0 [requests 0 b 3]",
	} {
		rule := rules(t, "{name: a, match: {path: /a}, "+text+"}")[0]
		var units []any
		for _, u := range rule.Units {
			units = append(units, u.Unit, u.Amount)
		}
		if got := fmt.Sprint(rule.Weight, " ", units); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

// A reservation above a whole limit is refused for requests as for any other unit.
func TestCheck_A37_A38_ReservesAndNames(t *testing.T) {
	t.Parallel()
	withDefault := "apiVersion: mete/v1\nkind: App\nmetadata: {name: api}\nspec:\n  defaults: {plan: free}\n  time_zone: UTC\n  identity: {tenant: [{jwt_claim: o}]}\n"
	rps := doc("Plan", "free", "{limits: {rps: {kind: rate, amount: 5, window: 1s}}}")
	checks(t, map[string]checkRow{
		"fits": {[]string{withDefault, rps, doc("Routes", "r", "{app: api, rules: [{name: a, match: {path: /c}, weight: 2, units: {requests: {reserve: 5, max: 900}}}]}")}, ""},
		"too much": {
			[]string{withDefault, rps, doc("Routes", "r", "{app: api, rules: [{name: a, match: {path: /c}, weight: 2, units: {requests: {reserve: 6}}}]}")},
			"f:5:26: spec.rules[0]: warning: rule a of routes r takes 6 requests, more than the whole limit rps of plan free, 5, so tenants on it are always refused there; take less or raise the limit unless that is meant",
		},
		"one name in two documents": {
			[]string{
				withDefault, doc("Routes", "a", `{app: api, rules: [{name: x, match: {path: /a}}]}`),
				doc("Routes", "b", `{app: api, rules: [{name: x, match: {path: /b}, units: {requests: {use: [{report: true}]}}}]}`),
			},
			"f:5:33: spec.rules[0].name: routes a have a rule x for the same app; choose another name",
		},
	})
}
