package authz_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store/storetest"
)

// Requests that run while a rule is renamed, removed or edited, or its app counts
// otherwise, cost what they would have cost without the edit.
func TestSettle_A41_EditsWhileRequestsRun(t *testing.T) {
	t.Parallel()
	whole := app("units: {tokens: {title: tokens}}\n")
	for name, edit := range map[string]func(k *desk){
		"none":           func(*desk) {},
		"renamed":        func(k *desk) { k.put(routesDoc(strings.Replace(settleDocs, "name: chat", "name: talk", 1))) },
		"another header": func(k *desk) { k.put(routesDoc(strings.ReplaceAll(settleDocs, "x-usage", "x-cost"))) },
		"removed":        func(k *desk) { k.put(routesDoc("- {name: other, match: {path: /x}}\n")) },
		"routes deleted": func(k *desk) { k.remove(plan.KindRoutes, "api") },
		"counted":        func(k *desk) { k.put(whole + "  count: {statuses: [5xx]}\n") },
		"app deleted":    func(k *desk) { k.remove(plan.KindApp, "api") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := settleDesk(t, "")
				var tokens []string
				for range 20 {
					tokens = append(tokens, k.token(k.must(at("/chat"), authz.Allowed)))
				}
				failed := k.token(k.must(at("/chat"), authz.Allowed))
				edit(k)
				for _, token := range tokens {
					if got := k.end(token, tells(200, "x-usage", "7")); got != authz.SettledLess {
						t.Fatalf("settled %q", got.Word())
					}
				}
				if got := k.end(failed, tells(500, "x-usage", "7")); got != authz.SettledFree {
					t.Fatalf("what failed is settled %q", got.Word())
				}
				if got := fmt.Sprint(k.used("tokens"), k.used("monthly"), k.d.Stats().UnknownTariffs); got != "140 20 0" {
					t.Errorf("tokens, requests, unknown: %s", got)
				}
			})
		})
	}
}

// A process that has never seen the rule asks all sources of its units, and counts that.
func TestSettle_A41_AnUnknownRuleIsAskedEverywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		docs := app("units: {tokens: {title: tokens}}\n") +
			planDoc("free", monthly("1000", "")+"\ntokens: {kind: quota, amount: 10000, unit: tokens, reset: {calendar: month}}") +
			tenantDoc("org:a", "{plan: free}")
		k := newDeskOn(t, m, "r1", docs+routesDoc(settleDocs), 0).seals()
		told, silent := k.token(k.must(at("/chat"), authz.Allowed)), k.token(k.must(at("/chat"), authz.Allowed))
		other := newDeskOn(t, m, "r2", docs+routesDoc(`
- name: talk
  match: {path: /chat}
  units: {tokens: {reserve: 50, use: [{response_header: x-other}, {response_header: x-usage}], unreported: zero}}
`), 0).seals()
		if got := other.end(told, tells(200, "x-usage", "7")); got != authz.SettledLess {
			t.Errorf("settled %q", got.Word())
		}
		if got := other.end(silent, answered(200)); got != authz.SettledAsReserved {
			t.Errorf("nothing told: settled %q", got.Word())
		}
		if got := fmt.Sprint(k.used("tokens"), other.d.Stats().UnknownTariffs); got != "107 2" {
			t.Errorf("tokens, unknown: %s", got)
		}
	})
}
