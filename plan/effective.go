package plan

import (
	"fmt"
	"slices"
	"time"
)

// Terms returns what holds for a tenant in an app at now. With no tenant ("") or
// one that has neither a document nor a default plan, Nodes is empty.
//
// A tenant whose document, or that of a tenant above it, is for another app is
// unknown in this one.
func (s *Snapshot) Terms(now time.Time, app, tenant string) Terms {
	return s.terms(now, app, tenant, (*terms).climb)
}

// TermsOfUndeclared returns what holds for a tenant's name as long as it has no document,
// whether it has one or not: all names of one [Standing.Override] have the same limits.
func (s *Snapshot) TermsOfUndeclared(now time.Time, app, tenant string) Terms {
	return s.terms(now, app, tenant, func(t *terms) string {
		t.path = []pathNode{{name: t.Tenant}}
		return ""
	})
}

func (s *Snapshot) terms(now time.Time, app, tenant string, climb func(*terms) (why string)) Terms {
	t := terms{s: s, now: now, Terms: Terms{Tenant: tenant, Root: tenant, cascades: s.cascades}}
	a := s.apps.entries[app]
	switch {
	case a == nil:
		return t.broken("app %s does not exist", app)
	case a.app == nil:
		return t.broken("%s", a.broken)
	}
	t.app, t.App, t.Version = a, a.app, a.revision
	if tenant == "" {
		return t.Terms
	}
	if why := climb(&t); why != "" {
		return t.broken("%s", why)
	}
	t.Root = t.path[len(t.path)-1].name
	t.tenants = t.visited()
	for i := range t.path {
		if t.skips(i) {
			continue
		}
		node, why := t.node(i)
		if why != "" {
			return t.broken("%s", why)
		}
		t.Nodes = append(t.Nodes, node)
	}
	t.charge()
	return t.Terms
}

// terms is a computation of Terms under way.
type terms struct {
	Terms
	s    *Snapshot
	now  time.Time
	app  *appEntry
	path []pathNode // the tenant first, its root last
	// elsewhere are the documents that tell that the tenant is unknown here.
	elsewhere []Guard
}

// A pathNode is a node of the path; its entry is nil if it has no document.
type pathNode struct {
	name     string
	revision int64
	void     int64
	tenant   *Tenant
}

func (t *terms) broken(format string, args ...any) Terms {
	t.Broken = fmt.Sprintf(format, args...)
	t.Nodes, t.Until = nil, time.Time{}
	return t.Terms
}

func (t *terms) seen(revision int64) { t.Version = max(t.Version, revision) }

// climb finds the path, and tells why there is none. Even then the version covers
// all that was read.
func (t *terms) climb() (why string) {
	t.path = make([]pathNode, 0, MaxDepth)
	for name := t.Tenant; name != ""; {
		leaf := len(t.path) == 0
		if len(t.path) == MaxDepth {
			return fmt.Sprintf("tenant %s is in a cycle or more than %d deep", t.Tenant, MaxDepth)
		}
		at := t.s.tenantShard(name)
		void, _ := t.s.voids.get(at, name)
		t.seen(void)
		e, ok := t.s.tenants.get(at, name)
		n := pathNode{name: name, void: void}
		if ok {
			n.revision, n.tenant = e.revision, e.tenant()
			t.seen(e.revision)
		}
		foreign := n.tenant != nil && n.tenant.App != "" && n.tenant.App != t.App.Name
		switch {
		case ok && n.tenant == nil:
			return e.broken
		case !leaf && !ok:
			return fmt.Sprintf("tenant %s does not exist, which %s names as its parent", name, t.path[len(t.path)-1].name)
		}
		t.path = append(t.path, n)
		if foreign {
			t.forget()
			return ""
		}
		if n.tenant == nil {
			return ""
		}
		t.Known = true
		name = n.tenant.Parent
	}
	return ""
}

// visited returns the documents that the path was found by.
func (t *terms) visited() []Guard {
	all := make([]Guard, 0, len(t.path)+len(t.elsewhere))
	for _, n := range t.path {
		all = append(all, Guard{KindTenant, n.name, n.revision})
	}
	return append(all, t.elsewhere...)
}

// forget makes the tenant one without a document, since it belongs to another app.
func (t *terms) forget() {
	for _, n := range t.path[1:] {
		t.elsewhere = append(t.elsewhere, Guard{KindTenant, n.name, n.revision})
	}
	t.Foreign = true
	t.path = t.path[:1]
	t.path[0].tenant = nil
	t.Known = false
}

// skips reports whether node i counts nothing: with pool: root usage counts at the
// root alone.
func (t *terms) skips(i int) bool {
	if i == len(t.path)-1 {
		return false
	}
	return t.path[i].tenant.PoolRoot || t.pooled()
}

func (t *terms) pooled() bool { return t.path[0].tenant != nil && t.path[0].tenant.PoolRoot }

// node computes the limits of node i.
func (t *terms) node(i int) (n NodeTerms, why string) {
	own := t.path[i]
	n = NodeTerms{Tenant: own.name, Void: own.void, Guards: make([]Guard, 0, 4)}
	// The plan is the node's own, else the nearest above, else the app's. Every
	// document that was asked guards the answer.
	for _, p := range t.path[i:] {
		n.Guards = append(n.Guards, Guard{KindTenant, p.name, p.revision})
		if p.tenant != nil && p.tenant.Plan != "" {
			n.Plan = p.tenant.Plan
			break
		}
	}
	n.Guards = append(n.Guards, t.elsewhere...)
	if n.Plan == "" {
		n.Plan = t.App.Defaults.Plan
	}
	var p *planEntry
	if n.Plan != "" {
		p = t.s.plans.entries[n.Plan]
		if p == nil {
			return n, fmt.Sprintf("plan %s does not exist", n.Plan)
		}
		t.seen(p.revision)
		if p.plan == nil {
			return n, p.broken
		}
		n.UpgradeURL = p.plan.UpgradeURL
		n.Guards = append(n.Guards, Guard{KindPlan, n.Plan, p.revision})
	}
	n.Guards = append(n.Guards, Guard{KindApp, t.App.Name, t.app.revision})
	n.Version = n.Void
	for _, g := range n.Guards {
		n.Version = max(n.Version, g.Revision)
	}
	n.Limits = t.limits(own, p)
	return n, t.complete(own, n.Limits)
}

// Holds reports whether terms that an earlier snapshot gave are what this one would
// give, until t.Until: none of the documents that they were computed from has
// changed. It looks at a few revisions and allocates nothing.
func (s *Snapshot) Holds(t *Terms) bool {
	if t.Broken != "" || t.App == nil || len(t.Nodes) == 0 || t.cascades != s.cascades {
		return false
	}
	if app := s.apps.entries[t.App.Name]; app == nil || app.app != t.App {
		return false
	}
	for i := range t.Nodes {
		n := &t.Nodes[i]
		if void, _ := s.voids.get(s.tenantShard(n.Tenant), n.Tenant); void != n.Void {
			return false
		}
		for _, g := range n.Guards {
			if s.revision(g.Kind, g.Name) != g.Revision {
				return false
			}
		}
	}
	for _, g := range t.tenants {
		if s.revision(g.Kind, g.Name) != g.Revision {
			return false
		}
	}
	return true
}

// revision returns the revision of a document that terms are computed from, valid
// or not; 0 if it does not exist.
func (s *Snapshot) revision(kind Kind, name string) int64 {
	switch kind {
	case KindApp:
		if e := s.apps.entries[name]; e != nil {
			return e.revision
		}
	case KindPlan:
		if e := s.plans.entries[name]; e != nil {
			return e.revision
		}
	case KindTenant:
		if e, ok := s.tenants.get(s.tenantShard(name), name); ok {
			return e.revision
		}
	case KindRateLimits:
		if e := s.rateLimits.entries[name]; e != nil {
			return e.revision
		}
	case KindRoutes, KindCredential, KindWebhook:
	}
	return 0
}

// limits puts plan, pattern overrides, own limits and overrides on each other.
func (t *terms) limits(own pathNode, p *planEntry) []EffectiveLimit {
	var all []EffectiveLimit
	if p != nil {
		all = make([]EffectiveLimit, 0, len(p.plan.Limits)+2)
		for i := range p.plan.Limits {
			all = append(all, EffectiveLimit{Limit: p.plan.Limits[i], Source: p.source})
		}
		for i := range p.plan.Overrides {
			o := &p.plan.Overrides[i]
			if slices.ContainsFunc(o.Tenants, func(pattern string) bool { return MatchPattern(pattern, own.name) }) {
				all = t.override(all, o.Limits, p.override)
				break
			}
		}
	}
	if own.tenant == nil {
		return all
	}
	for i := range own.tenant.Limits {
		l := EffectiveLimit{Limit: own.tenant.Limits[i], Source: "tenant " + own.name}
		if at := find(all, l.Name); at >= 0 {
			all[at] = l
			continue
		}
		all = append(all, l)
	}
	if len(own.tenant.Overrides) == 0 {
		return all
	}
	return t.override(all, own.tenant.Overrides, "override of "+own.name)
}

func find(all []EffectiveLimit, name string) int {
	return slices.IndexFunc(all, func(l EffectiveLimit) bool { return l.Name == name })
}

// override applies the overrides that have not ended, and notes when the next one
// does.
func (t *terms) override(all []EffectiveLimit, overrides []Override, source string) []EffectiveLimit {
	for i := range overrides {
		o := &overrides[i]
		if !o.Until.IsZero() {
			if !t.now.Before(o.Until) {
				continue
			}
			if t.Until.IsZero() || o.Until.Before(t.Until) {
				t.Until = o.Until
			}
		}
		at := find(all, o.Limit)
		switch {
		case at < 0:
		case o.Remove:
			all = slices.Delete(all, at, at+1)
		default:
			all[at].apply(o)
			all[at].Source = source
		}
	}
	return all
}

func (l *EffectiveLimit) apply(o *Override) {
	if o.Unlimited {
		l.Unlimited, l.Amount, l.Burst = true, 0, 0
	}
	if o.Amount != nil {
		// A burst that nobody wrote is the amount, and stays so.
		if l.Kind == Rate && (l.Unlimited || l.Burst == l.Amount || l.Burst == 0) {
			l.Burst = *o.Amount
		}
		l.Amount, l.Unlimited = *o.Amount, false
	}
	if o.Burst != nil {
		l.Burst = *o.Burst
	}
}

// complete fills in the defaults, and tells what cannot be filled in.
func (t *terms) complete(own pathNode, limits []EffectiveLimit) (why string) {
	zone, anchor := t.App.TimeZone, 0
	if own.tenant != nil {
		if own.tenant.TimeZone != nil {
			zone = own.tenant.TimeZone
		}
		anchor = own.tenant.BillingAnchor
	}
	for i := range limits {
		l := &limits[i]
		if l.OnUnavailable == ChoiceUnset {
			l.OnUnavailable = t.App.Defaults.OnUnavailable
			if l.Kind == Allocation {
				l.OnUnavailable = Deny
			}
		}
		if l.Replicas == SpreadUnset {
			l.Replicas = t.App.Defaults.Replicas
		}
		if l.Disclose == DiscloseUnset {
			l.Disclose = DiscloseUsage
		}
		l.Zone = zone
		if l.Reset.Zone != nil {
			l.Zone = l.Reset.Zone
		}
		if l.Kind == Quota && l.Reset.Kind == CalendarBilling {
			if anchor != 0 {
				l.Reset.Anchor = anchor
			}
			if l.Reset.Anchor == 0 {
				return fmt.Sprintf("limit %s starts again by billing, and neither it nor tenant %s says on which day", l.Name, own.name)
			}
		}
	}
	return ""
}

// charge tells which limits of which nodes a request of the tenant is charged to,
// drops the nodes that have none, and puts the root first.
func (t *terms) charge() {
	pooled := t.pooled()
	kept := t.Nodes[:0]
	for i := range t.Nodes {
		n := &t.Nodes[i]
		leaf, charged := n.Tenant == t.Tenant || pooled, false
		for j := range n.Limits {
			l := &n.Limits[j]
			l.Charged = leaf || l.Cascade.holds(t.cascades)
			charged = charged || l.Charged
		}
		if charged {
			kept = append(kept, *n)
			continue
		}
		// An edit of its plan may charge it again.
		for _, g := range n.Guards {
			if g.Kind == KindPlan {
				t.tenants = append(t.tenants, g)
			}
		}
	}
	slices.Reverse(kept)
	t.Nodes = kept
}
