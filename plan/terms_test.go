package plan_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/plan"
)

// t0 is when most tests take place.
var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// shown returns terms in short: nodes root first, a "+" before charged limits.
func shown(t plan.Terms) string {
	if t.Broken != "" {
		return "broken: " + t.Broken
	}
	var b strings.Builder
	for _, n := range t.Nodes {
		fmt.Fprintf(&b, "%s(%s)", n.Tenant, n.Plan)
		for _, l := range n.Limits {
			sign := "-"
			if l.Charged {
				sign = "+"
			}
			amount := fmt.Sprint(l.Amount)
			if l.Unlimited {
				amount = "unlimited"
			}
			fmt.Fprintf(&b, " %s%s=%s", sign, l.Name, amount)
		}
		b.WriteString("; ")
	}
	return strings.TrimSuffix(b.String(), "; ")
}

func guards(n plan.NodeTerms) string {
	var all []string
	for _, g := range n.Guards {
		all = append(all, fmt.Sprintf("%s %s@%d", g.Kind, g.Name, g.Revision))
	}
	return strings.Join(all, ", ")
}

var freePlan = doc("Plan", "free", "{limits: {rps: {kind: rate, amount: 10, window: 1s}, monthly: {kind: quota, amount: 1000, reset: {calendar: month}}}}")

// R10, R11, R13: who has which limits. A field left out imposes nothing.
func TestTerms_WhoHasWhat(t *testing.T) {
	withDefault := strings.Replace(appText, "spec:\n", "spec:\n  defaults: {plan: free}\n", 1)
	empty := doc("Plan", "empty", "{limits: {}}")
	onFree, onEmpty, onNone := doc("Tenant", "org:a", "{plan: free}"), doc("Tenant", "org:e", "{plan: empty}"), doc("Tenant", "org:n", "{}")
	for _, row := range []struct {
		app, tenant, want string
		known             bool
	}{
		{appText, "org:a", "org:a(free) +rps=10 +monthly=1000", true},
		{appText, "org:e", "", true},
		{appText, "org:n", "", true},
		{appText, "org:x", "", false},
		{appText, "", "", false},
		{withDefault, "org:n", "org:n(free) +rps=10 +monthly=1000", true},
		{withDefault, "org:x", "org:x(free) +rps=10 +monthly=1000", false},
		{withDefault, "", "", false},
	} {
		s := catalog(t, row.app, freePlan, empty, onFree, onEmpty, onNone).Snapshot()
		got := s.Terms(t0, "api", row.tenant)
		if shown(got) != row.want || got.Known != row.known || got.App == nil {
			t.Errorf("%q: got %s, known %v", row.tenant, shown(got), got.Known)
		}
	}
	if got := catalog(t).Snapshot().Terms(t0, "api", "org:a"); shown(got) != "broken: app api does not exist" || got.App != nil {
		t.Errorf("got %s", shown(got))
	}
}

// C004(b), C016: a document that never was valid means "unknown", never "no limit".
func TestTerms_C016_NeverValid(t *testing.T) {
	base := []string{appText, freePlan, doc("Tenant", "org:a", "{plan: broken}"), doc("Tenant", "user:b", `{parent: "org:a"}`), doc("Tenant", "org:c", "{plan: gone}"), doc("Tenant", "org:d", `{parent: "org:gone"}`)}
	c := catalog(t, base...)
	c.PutBroken(plan.KindPlan, "broken", 50, "plan broken has never been valid", nil)
	c.PutBroken(plan.KindTenant, "org:bad", 51, "tenant org:bad has never been valid", nil)
	c.PutBroken(plan.KindPlan, "free", 52, "plan free has never been valid", nil)
	for tenant, want := range map[string]string{
		"org:a":   "broken: plan broken has never been valid",
		"user:b":  "broken: plan broken has never been valid",
		"org:bad": "broken: tenant org:bad has never been valid",
		"org:c":   "broken: plan gone does not exist",
		"org:d":   "broken: tenant org:gone does not exist, which org:d names as its parent",
	} {
		got := c.Snapshot().Terms(t0, "api", tenant)
		if shown(got) != want || len(got.Nodes) != 0 || got.App == nil {
			t.Errorf("%s: got %s", tenant, shown(got))
		}
	}
	if got := c.Snapshot().Terms(t0, "api", "org:a").Version; got != 50 {
		t.Errorf("the version of broken terms is %d", got)
	}
	if c.Snapshot().Plan("free") == nil {
		t.Error("a bad edit took the good plan away")
	}
	// The first valid version ends it.
	docs, _ := plan.Decode("", []byte(strings.Replace(freePlan, "free", "broken", 1)))
	c.Put(docs[0], 60)
	if got := shown(c.Snapshot().Terms(t0, "api", "org:a")); got != "org:a(broken) +rps=10 +monthly=1000" {
		t.Errorf("got %s", got)
	}
	// A deletion of the broken document makes it one that is not there.
	c.Delete(plan.KindTenant, "org:bad", 70)
	if got := c.Snapshot().Terms(t0, "api", "org:bad"); shown(got) != "" || got.Known || got.Version != 70 {
		t.Errorf("got %s, version %d", shown(got), got.Version)
	}
}

func TestTerms_BrokenApp(t *testing.T) {
	c := plan.NewCatalog()
	c.PutBroken(plan.KindApp, "api", 5, "app api has never been valid", nil)
	s := c.Snapshot()
	if got := shown(s.Terms(t0, "api", "org:a")); got != "broken: app api has never been valid" || s.App("api") != nil || s.Route("api", "", "GET", "/") != nil {
		t.Errorf("got %s", got)
	}
}

func TestTerms_CyclesAndDepth(t *testing.T) {
	texts := []string{appText, doc("Tenant", "a:1", `{parent: "a:2"}`), doc("Tenant", "a:2", `{parent: "a:1"}`), doc("Tenant", "d:1", "{limits: {x: {kind: rate, amount: 1, window: 1s, cascade: true}}}")}
	for i := 2; i <= 9; i++ {
		texts = append(texts, doc("Tenant", fmt.Sprintf("d:%d", i), fmt.Sprintf(`{parent: "d:%d"}`, i-1)))
	}
	s := catalog(t, texts...).Snapshot()
	for tenant, want := range map[string]string{
		"a:1": "broken: tenant a:1 is in a cycle or more than 8 deep",
		"d:8": "d:1() +x=1",
		"d:9": "broken: tenant d:9 is in a cycle or more than 8 deep",
	} {
		if got := shown(s.Terms(t0, "api", tenant)); got != want {
			t.Errorf("%s: got %s", tenant, got)
		}
	}
}

// A plan, its pattern overrides, the tenant's own limits and its overrides, in
// this order (P50).
func TestTerms_P50_Layers(t *testing.T) {
	s := catalog(t, appText,
		doc("Plan", "pro", `{limits: {rps: {kind: rate, amount: 10, window: 1s}, burst: {kind: rate, amount: 10, window: 1s, burst: 50}, monthly: {kind: quota, amount: 1000, reset: {calendar: month}}, all: {kind: quota, amount: unlimited, reset: {calendar: day}}},
		overrides: [
			{tenants: ["org:acme*"], reason: big one, limits: {rps: {amount: 100}, monthly: {amount: 5000, until: "2026-12-01T00:00:00Z"}}},
			{tenants: ["org:*"], reason: every org, limits: {rps: {amount: 20, burst: 40}, all: {amount: 7}}}]}`),
		doc("Tenant", "org:acme-1", "{plan: pro}"),
		doc("Tenant", "org:other", "{plan: pro}"),
		doc("Tenant", "user:1", `{plan: pro, limits: {monthly: {kind: quota, amount: 3, reset: {calendar: day}}, extra: {kind: rate, amount: 1, window: 1s}},
			overrides: {rps: {remove: true, reason: none}, burst: {amount: 99, reason: more}, extra: {amount: unlimited, reason: more, until: "2027-01-01T00:00:00Z"}, monthly: {amount: 4, reason: past, until: "2026-11-30T12:00:00Z"}, none: {amount: 1, reason: gone}}}`),
	).Snapshot()
	for _, row := range []struct {
		tenant, want, sources string
		until                 time.Time
	}{
		{"org:acme-1", "org:acme-1(pro) +rps=100 +burst=10 +monthly=5000 +all=unlimited", "override of plan pro|plan pro|override of plan pro|plan pro", time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)},
		{"org:other", "org:other(pro) +rps=20 +burst=10 +monthly=1000 +all=7", "override of plan pro|plan pro|plan pro|override of plan pro", time.Time{}},
		{"user:1", "user:1(pro) +burst=99 +monthly=3 +all=unlimited +extra=unlimited", "override of user:1|tenant user:1|plan pro|override of user:1", time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)},
	} {
		got := s.Terms(t0, "api", row.tenant)
		var sources []string
		for _, l := range got.Nodes[0].Limits {
			sources = append(sources, l.Source)
		}
		if shown(got) != row.want || strings.Join(sources, "|") != row.sources || !got.Until.Equal(row.until) {
			t.Errorf("%s: got %s, %v, until %v", row.tenant, shown(got), sources, got.Until)
		}
	}
	rps := s.Terms(t0, "api", "org:acme-1").Nodes[0].Limits[0]
	if rps.Burst != 100 {
		t.Errorf("a burst that nobody wrote is %d", rps.Burst)
	}
	if l := s.Terms(t0, "api", "user:1").Nodes[0].Limits[0]; l.Burst != 50 {
		t.Errorf("a burst that was written became %d", l.Burst)
	}
	later := s.Terms(t0.AddDate(0, 0, 2), "api", "org:acme-1")
	if shown(later) != "org:acme-1(pro) +rps=100 +burst=10 +monthly=1000 +all=unlimited" || !later.Until.IsZero() {
		t.Errorf("after its end: %s, until %v", shown(later), later.Until)
	}
}

// Terms hold until the first of all overrides ends, whichever was written first and
// of all tenants.
func TestTerms_P50_HoldUntilTheSoonestEnd(t *testing.T) {
	free := `{limits: {rps: {kind: rate, amount: 10, window: 1s}, monthly: {kind: quota, amount: 1000, reset: {calendar: month}}},
		overrides: [{tenants: ["org:planned"], reason: trial, limits: {rps: {amount: 7, until: "2026-12-05T00:00:00Z"}}}]}`
	ends := func(rps, monthly string) string {
		return fmt.Sprintf(`{plan: free, overrides: {rps: {amount: 20, reason: more, until: %q}, monthly: {amount: 2000, reason: more, until: %q}}}`, rps, monthly)
	}
	const soon, late = "2026-12-02T00:00:00Z", "2026-12-09T00:00:00Z"
	s := catalog(t, appText, doc("Plan", "free", free),
		doc("Tenant", "org:late-first", ends(late, soon)),
		doc("Tenant", "org:soon-first", ends(soon, late)),
		doc("Tenant", "org:planned", ends(late, late)),
		doc("Tenant", "user:below", `{parent: "org:late-first", plan: free, overrides: {rps: {amount: 5, reason: less, until: "2026-12-20T00:00:00Z"}}}`),
		doc("Tenant", "user:sooner", `{parent: "org:late-first", plan: free, overrides: {rps: {amount: 5, reason: less, until: "2026-12-01T00:00:00Z"}}}`),
	).Snapshot()
	for tenant, want := range map[string]string{
		"org:late-first": soon, "org:soon-first": soon, "org:planned": "2026-12-05T00:00:00Z",
		"user:below": soon, "user:sooner": "2026-12-01T00:00:00Z",
	} {
		if got := s.Terms(t0, "api", tenant).Until.Format(time.RFC3339); got != want {
			t.Errorf("%s: terms hold until %s, want %s", tenant, got, want)
		}
	}
	between := time.Date(2026, 12, 3, 0, 0, 0, 0, time.UTC)
	if got := s.Terms(between, "api", "org:late-first"); shown(got) != "org:late-first(free) +rps=20 +monthly=1000" || got.Until.Format(time.RFC3339) != late {
		t.Errorf("after the first end: %s until %s", shown(got), got.Until)
	}
}

// C008: zero stays zero through every layer.
func TestTerms_C008_Zero(t *testing.T) {
	s := catalog(t, appText, freePlan,
		doc("Tenant", "org:a", "{plan: free, overrides: {rps: {amount: 0, reason: banned}, monthly: {amount: 0, reason: banned}}}")).Snapshot()
	limits := s.Terms(t0, "api", "org:a").Nodes[0].Limits
	if l := limits[0]; l.Amount != 0 || l.Burst != 0 || l.Unlimited || limits[1].Amount != 0 || limits[1].Unlimited {
		t.Errorf("got %+v", limits)
	}
}

func TestTerms_DefaultsAreFilledIn(t *testing.T) {
	app := strings.Replace(appText, "spec:\n", "spec:\n  defaults: {on_unavailable: deny, replicas: split}\n", 1)
	s := catalog(t, app, freePlan, doc("Tenant", "org:a", "{plan: free}")).Snapshot()
	for _, l := range s.Terms(t0, "api", "org:a").Nodes[0].Limits {
		if l.OnUnavailable != plan.Deny || l.Replicas != plan.Split || l.Unit != plan.DefaultUnit || l.Disclose != plan.DiscloseUsage || l.Zone == nil {
			t.Errorf("got %+v", l)
		}
	}
}

// A15, and design 6.7: the limit's zone, else the tenant's, else the app's.
func TestTerms_A15_Zones(t *testing.T) {
	s := catalog(t, appText,
		doc("Plan", "p", "{limits: {own: {kind: quota, amount: 1, reset: {calendar: day, time_zone: Asia/Tokyo}}, plain: {kind: quota, amount: 1, reset: {calendar: day}}, bill: {kind: quota, amount: 1, reset: {calendar: billing, anchor: 15}}}}"),
		doc("Tenant", "org:a", "{plan: p}"),
		doc("Tenant", "org:b", "{plan: p, time_zone: Europe/Paris, billing_anchor: 31}")).Snapshot()
	for tenant, want := range map[string]string{"org:a": "Asia/Tokyo UTC UTC 15", "org:b": "Asia/Tokyo Europe/Paris Europe/Paris 31"} {
		l := s.Terms(t0, "api", tenant).Nodes[0].Limits
		if got := fmt.Sprint(l[0].Zone, l[1].Zone, l[2].Zone, l[2].Reset.Anchor); got != want {
			t.Errorf("%s: got %s", tenant, got)
		}
	}
}

func TestTerms_BillingWithoutAnchor(t *testing.T) {
	s := catalog(t, appText, doc("Plan", "p", "{limits: {c: {kind: quota, amount: 1, reset: {calendar: billing}}}}"), doc("Tenant", "org:a", "{plan: p}")).Snapshot()
	if got := shown(s.Terms(t0, "api", "org:a")); got != "broken: limit c starts again by billing, and neither it nor tenant org:a says on which day" {
		t.Errorf("got %s", got)
	}
}

const tree = `{limits: {rps: {kind: rate, amount: 10, window: 1s}, monthly: {kind: quota, amount: 1000, reset: {calendar: month}, cascade: false}}}`

// Q11: a request is charged up the tree, the root first, but for limits that do not
// cascade.
func TestTerms_Tree(t *testing.T) {
	s := catalog(t, appText, doc("Plan", "p", tree), doc("Plan", "top", "{limits: {rps: {kind: rate, amount: 50, window: 1s}, total: {kind: quota, amount: 9, reset: {calendar: day}, cascade: false}, sum: {kind: quota, amount: 7, reset: {calendar: day}, cascade: true}}}"),
		doc("Tenant", "org:a", "{plan: top}"),
		doc("Tenant", "project:b", `{parent: "org:a", plan: p}`),
		doc("Tenant", "user:c", `{parent: "project:b"}`),
		doc("Tenant", "user:d", `{parent: "project:b", plan: top}`),
		doc("Tenant", "org:e", "{}"),
		doc("Tenant", "user:f", `{parent: "org:e", limits: {x: {kind: rate, amount: 1, window: 1s}}}`)).Snapshot()
	for tenant, want := range map[string]string{
		"org:a":     "org:a(top) +rps=50 +total=9 +sum=7",
		"project:b": "org:a(top) +rps=50 -total=9 +sum=7; project:b(p) +rps=10 +monthly=1000",
		"user:c":    "org:a(top) +rps=50 -total=9 +sum=7; project:b(p) +rps=10 -monthly=1000; user:c(p) +rps=10 +monthly=1000",
		"user:d":    "org:a(top) +rps=50 -total=9 +sum=7; project:b(p) +rps=10 -monthly=1000; user:d(top) +rps=50 +total=9 +sum=7",
		"user:f":    "user:f() +x=1",
	} {
		if got := shown(s.Terms(t0, "api", tenant)); got != want {
			t.Errorf("%s: got %s\nwant %s", tenant, got, want)
		}
	}
}

// C33: pooled usage counts at the root alone.
func TestTerms_C33_Pool(t *testing.T) {
	s := catalog(t, appText, doc("Plan", "p", tree),
		doc("Tenant", "org:a", "{plan: p}"),
		doc("Tenant", "team:b", `{parent: "org:a", pool: root}`),
		doc("Tenant", "user:c", `{parent: "team:b", pool: root}`),
		doc("Tenant", "user:d", `{parent: "team:b"}`)).Snapshot()
	for tenant, want := range map[string]string{
		"team:b": "org:a(p) +rps=10 +monthly=1000",
		"user:c": "org:a(p) +rps=10 +monthly=1000",
		"user:d": "org:a(p) +rps=10 -monthly=1000; user:d(p) +rps=10 +monthly=1000",
	} {
		if got := shown(s.Terms(t0, "api", tenant)); got != want {
			t.Errorf("%s: got %s", tenant, got)
		}
	}
}

// A tenant for one app is unknown in the others, and so are those below it.
func TestTerms_OtherApp(t *testing.T) {
	other := strings.NewReplacer("name: api", "name: other", "  envoy:", "  defaults: {plan: free}\n  #").Replace(appText)
	s := catalog(t, appText, other, freePlan, doc("Tenant", "org:a", "{app: api, plan: free}"), doc("Tenant", "user:b", `{parent: "org:a", overrides: {rps: {amount: 99, reason: more}}}`)).Snapshot()
	got := s.Terms(t0, "api", "user:b")
	if shown(got) != "org:a(free) +rps=10 +monthly=1000; user:b(free) +rps=99 +monthly=1000" || !got.Known {
		t.Errorf("got %s", shown(got))
	}
	got = s.Terms(t0, "other", "user:b")
	if shown(got) != "user:b(free) +rps=10 +monthly=1000" || got.Known {
		t.Errorf("got %s, known %v", shown(got), got.Known)
	}
	if want := "Tenant user:b@5, Tenant org:a@4, Plan free@3, App other@2"; guards(got.Nodes[0]) != want {
		t.Errorf("got guards %s", guards(got.Nodes[0]))
	}
}

func TestTerms_GuardsAndVersion(t *testing.T) {
	c := catalog(t, appText, freePlan, doc("Tenant", "org:a", "{plan: free}"), doc("Tenant", "project:b", `{parent: "org:a"}`), doc("Tenant", "user:c", `{parent: "project:b"}`), doc("Tenant", "org:x", "{}"))
	cascade := strings.ReplaceAll(strings.Replace(freePlan, "amount: 10,", "amount: 10, cascade: true,", 1), `"free"`, `"wide"`)
	docs, _ := plan.Decode("", []byte(cascade))
	c.Put(docs[0], 7)
	docs, _ = plan.Decode("", []byte(doc("Tenant", "org:a", "{plan: wide}")))
	c.Put(docs[0], 8)
	got := c.Snapshot().Terms(t0, "api", "user:c")
	if got.Version != 8 || len(got.Nodes) != 3 {
		t.Fatalf("version %d, %s", got.Version, shown(got))
	}
	for i, want := range []string{
		"Tenant org:a@8, Plan wide@7, App api@1",
		"Tenant project:b@4, Tenant org:a@8, Plan wide@7, App api@1",
		"Tenant user:c@5, Tenant project:b@4, Tenant org:a@8, Plan wide@7, App api@1",
	} {
		if got := guards(got.Nodes[i]); got != want {
			t.Errorf("node %d: got %s, want %s", i, got, want)
		}
	}
	// Raised by hand at the root, for all below it.
	before := c.Snapshot()
	c.SetVoid("org:a", 20)
	c.SetVoid("org:a", 15)
	for tenant, want := range map[string]int64{"org:a": 20, "user:c": 20, "org:x": 6, "org:new": 1} {
		if got := c.Snapshot().Terms(t0, "api", tenant).Version; got != want {
			t.Errorf("version of %s is %d, want %d", tenant, got, want)
		}
	}
	if got := before.Terms(t0, "api", "user:c").Version; got != 8 {
		t.Errorf("an old snapshot changed: version %d", got)
	}
	// A deletion raises it too, though the document's revision is gone.
	c.Delete(plan.KindTenant, "user:c", 30)
	if got := c.Snapshot().Terms(t0, "api", "user:c"); got.Version != 30 || got.Known {
		t.Errorf("after deletion: version %d, known %v", got.Version, got.Known)
	}
}

func TestTerms_GuardOfMissingTenant(t *testing.T) {
	app := strings.Replace(appText, "spec:\n", "spec:\n  defaults: {plan: free}\n", 1)
	got := catalog(t, app, freePlan).Snapshot().Terms(t0, "api", "org:new")
	if want := "Tenant org:new@0, Plan free@2, App api@1"; guards(got.Nodes[0]) != want || got.Version != 2 {
		t.Errorf("got %s, version %d", guards(got.Nodes[0]), got.Version)
	}
}

// C019: equal plans are two plans, and what is no term changes none.
func TestTerms_C019_OnlyTermsCount(t *testing.T) {
	twin := strings.Replace(freePlan, `"free"`, `"twin"`, 1)
	s := catalog(t, appText, freePlan, twin, doc("Tenant", "org:a", "{plan: free}"), doc("Tenant", "org:b", "{plan: twin}")).Snapshot()
	a, b := s.Terms(t0, "api", "org:a").Nodes[0], s.Terms(t0, "api", "org:b").Nodes[0]
	if a.Tenant == b.Tenant || a.Plan == b.Plan {
		t.Errorf("got %+v, %+v", a, b)
	}
	reordered := doc("Plan", "free", "{limits: {monthly: {reset: {calendar: month}, amount: 1000, kind: quota}, rps: {window: 1s, kind: rate, amount: 10}}} # a comment")
	again := catalog(t, appText, reordered, twin, doc("Tenant", "org:a", "{plan: free}")).Snapshot().Terms(t0, "api", "org:a").Nodes[0]
	for _, l := range a.Limits {
		found := false
		for _, m := range again.Limits {
			found = found || reflect.DeepEqual(l, m)
		}
		if !found {
			t.Errorf("order and comments changed %+v", l)
		}
	}
}

// C017: a raise is in the next snapshot, under a higher version.
func TestTerms_C017_Raise(t *testing.T) {
	c := catalog(t, appText, freePlan, doc("Tenant", "org:a", "{plan: free}"))
	before := c.Snapshot()
	docs, _ := plan.Decode("", []byte(strings.Replace(freePlan, "amount: 1000", "amount: 2500", 1)))
	c.Put(docs[0], 9)
	old, raised := before.Terms(t0, "api", "org:a"), c.Snapshot().Terms(t0, "api", "org:a")
	if shown(old) != "org:a(free) +rps=10 +monthly=1000" || shown(raised) != "org:a(free) +rps=10 +monthly=2500" || raised.Version <= old.Version {
		t.Errorf("%s version %d, then %s version %d", shown(old), old.Version, shown(raised), raised.Version)
	}
}

// Terms are the same each time, and share nothing that a caller could change.
func TestTerms_Deterministic(t *testing.T) {
	c := catalog(t, appText, doc("Plan", "p", tree), doc("Tenant", "org:a", "{plan: p}"), doc("Tenant", "user:b", `{parent: "org:a", overrides: {monthly: {amount: 5, reason: more}}}`))
	s := c.Snapshot()
	first := s.Terms(t0, "api", "user:b")
	for range 20 {
		if got := s.Terms(t0, "api", "user:b"); !reflect.DeepEqual(got, first) {
			t.Fatalf("got %+v, then %+v", first, got)
		}
	}
	s.Terms(t0, "api", "user:b").Nodes[0].Limits[0].Amount = 0
	if got := s.Terms(t0, "api", "user:b"); !reflect.DeepEqual(got, first) {
		t.Error("a caller changed the snapshot")
	}
}
