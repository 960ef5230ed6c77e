package plan_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// orgDocs are the natural documents of an organisation with two users, with more in
// the limit of the organisation.
func orgDocs(more string) []string {
	limit := "{limits: {monthly: {kind: quota, amount: %d, reset: {calendar: month}%s}}}"
	return []string{
		appText,
		doc("Plan", "org", fmt.Sprintf(limit, 100, more)), doc("Plan", "user", fmt.Sprintf(limit, 80, "")),
		doc("Tenant", "org:a", "{plan: org}"),
		doc("Tenant", "user:b", `{parent: "org:a", plan: user}`), doc("Tenant", "user:c", `{parent: "org:a", plan: user}`),
	}
}

// Q11: an ancestor's limit is charged by everything below it unless that limit says
// cascade: false, whatever a limit of that name below it says.
func TestTerms_Q11_AncestorsBindUnlessTheySayOtherwise(t *testing.T) {
	t.Parallel()
	const both, own = "org:a(org) +monthly=100; user:b(user) +monthly=80", "user:b(user) +monthly=80"
	for _, tt := range []struct {
		name, written string
		cascades      bool
		want          string
	}{
		{"nothing written", "", true, both},
		{"written true", ", cascade: true", true, both},
		{"written false", ", cascade: false", true, own},
		{"below level 5 nothing written", "", false, own},
		{"below level 5 written true", ", cascade: true", false, both},
		{"below level 5 written false", ", cascade: false", false, own},
	} {
		c := catalog(t, orgDocs(tt.written)...)
		c.SetCascades(tt.cascades)
		if got := shown(c.Snapshot().Terms(t0, "api", "user:b")); got != tt.want {
			t.Errorf("%s: got %s\nwant %s", tt.name, got, tt.want)
		}
	}
	docs := orgDocs(", cascade: false")
	docs[2] = strings.Replace(docs[2], "reset", "cascade: true, reset", 1)
	if got := shown(catalog(t, docs...).Snapshot().Terms(t0, "api", "user:b")); got != own {
		t.Errorf("true below false: got %s", got)
	}
}

// Terms of before the store reached the level hold no longer.
func TestHolds_Q11_NotOnceLimitsCascade(t *testing.T) {
	t.Parallel()
	c := catalog(t, orgDocs("")...)
	if !c.SetCascades(false) || c.SetCascades(false) {
		t.Error("what is a change is told wrongly")
	}
	before := c.Snapshot()
	terms := before.Terms(t0, "api", "user:b")
	if !before.Holds(&terms) {
		t.Error("terms do not hold in the snapshot that they are from")
	}
	c.SetCascades(true)
	if c.Snapshot().Holds(&terms) {
		t.Errorf("%s hold though the organisation is charged now", shown(terms))
	}
	if !before.Holds(&terms) {
		t.Error("an earlier snapshot has changed")
	}
}

// A50: what begins to bind is told for each node that has tenants below it, once.
func TestBindings_LimitsThatBeginToBind(t *testing.T) {
	t.Parallel()
	docs := append(orgDocs(""),
		doc("Plan", "off", "{limits: {off: {kind: rate, amount: 1, window: 1s, cascade: false}, on: {kind: rate, amount: 1, window: 1s, cascade: true}, rps: {kind: rate, amount: 1, window: 1s}}}"),
		doc("Tenant", "org:lone", "{plan: org}"),
		doc("Tenant", "org:off", "{plan: off}"), doc("Tenant", "user:x", `{parent: "org:off", plan: user}`),
		doc("Tenant", "org:pool", "{plan: org}"), doc("Tenant", "user:p", `{parent: "org:pool", pool: root}`),
		doc("Tenant", "org:own", "{limits: {z: {kind: rate, amount: 1, window: 1s}}}"), doc("Tenant", "user:y", `{parent: "org:own", plan: user}`))
	for _, cascades := range []bool{true, false} {
		c := catalog(t, docs...)
		c.SetCascades(cascades)
		got := fmt.Sprint(c.Snapshot().Bindings(t0))
		if want := "[{api org:a monthly plan org} {api org:off rps plan off} {api org:own z tenant org:own}]"; got != want {
			t.Errorf("got %s\nwant %s", got, want)
		}
	}
	var none []plan.Binding
	if none = catalog(t, appText).Snapshot().Bindings(t0); len(none) != 0 {
		t.Errorf("got %v", none)
	}
}
