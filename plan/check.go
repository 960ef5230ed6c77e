package plan

import (
	"fmt"
	"slices"
)

// Check compares doc with all other documents of the catalog, as if it stood in
// the place of the one of its kind and name. To check documents that belong
// together, put all of them first.
func (c *Catalog) Check(doc *Document) []Problem {
	k := &checker{c: c, doc: doc}
	switch doc.Kind {
	case KindApp:
		k.app(doc.App)
	case KindPlan:
		k.plan(doc.Plan)
	case KindRoutes:
		k.routes(doc.Routes)
	case KindTenant:
		k.tenant(doc.Tenant)
	case KindCredential:
		k.credential(doc.Credential)
	case KindRateLimits:
		k.rateLimits(doc.RateLimits)
	case KindWebhook:
	}
	sortProblems(k.problems)
	return k.problems
}

// CheckDelete tells why a document may not be deleted, if so.
func (c *Catalog) CheckDelete(kind Kind, name string) []Problem {
	k := &checker{c: c, doc: &Document{Kind: kind, Name: name}}
	switch kind {
	case KindPlan:
		k.deletePlan(name)
	case KindApp:
		k.deleteApp(name)
	case KindTenant:
		if n := c.children[name]; n > 0 {
			k.fail("", "%s", someTenants(n, "has it as its parent; delete or move it first", "have it as their parent; delete or move them first"))
		}
	case KindRoutes, KindCredential, KindWebhook, KindRateLimits:
	}
	return k.problems
}

// A checker checks one document against the catalog.
type checker struct {
	c        *Catalog
	doc      *Document
	problems []Problem
}

func (k *checker) add(path, format string, args ...any) *Problem {
	at, _ := k.doc.place(path)
	k.problems = append(k.problems, Problem{
		File: k.doc.file, Line: at.line, Col: at.col, Kind: k.doc.Kind, Name: k.doc.Name,
		Path: path, Message: fmt.Sprintf(format, args...),
	})
	return &k.problems[len(k.problems)-1]
}

func (k *checker) fail(path, format string, args ...any) { k.add(path, format, args...) }

func (k *checker) warn(path, format string, args ...any) { k.add(path, format, args...).Warning = true }

func (k *checker) deletePlan(name string) {
	if tenants := k.c.TenantsOn(name); tenants > 0 {
		k.fail("", "%s", someTenants(tenants, "is on it; move it to another plan first", "are on it; move them to another plan first"))
	}
	for _, app := range k.apps() {
		if app.Defaults.Plan == name {
			k.fail("", "it is the default plan of app %s; change that first", app.Name)
		}
	}
}

func (k *checker) deleteApp(name string) {
	for _, rs := range k.c.routesOf(name, nil) {
		k.fail("", "routes %s are for it; delete them first", rs.Name)
	}
	if n := k.c.now.tenantsOf(name); n > 0 {
		k.fail("", "%s", someTenants(n, "is for it alone; delete or move it first", "are for it alone; delete or move them first"))
	}
}

// someTenants says of n tenants what one does, or what many do.
func someTenants(n int, one, many string) string {
	if n == 1 {
		return "1 tenant " + one
	}
	return fmt.Sprintf("%d tenants %s", n, many)
}

// tenantsOf counts the tenants that name an app. It reads all: apps are hardly
// ever deleted.
func (s *Snapshot) tenantsOf(app string) (n int) {
	s.tenants.all(func(e *tenantEntry) {
		if t := e.tenant(); t != nil && t.App == app {
			n++
		}
	})
	return n
}

// apps returns all valid apps by name, with the checked one in its place.
func (k *checker) apps() []*App {
	var all []*App
	for _, name := range k.c.now.Names(KindApp) {
		if k.doc.App == nil || name != k.doc.Name {
			all = append(all, k.c.now.App(name))
		}
	}
	if k.doc.App != nil {
		all = append(all, k.doc.App)
	}
	return all
}

// hasPlan reports a plan that does not exist. One that is there and was never
// valid exists: its tenants are held until it is.
func (k *checker) hasPlan(path, name string) {
	if name != "" && k.c.now.plans.entries[name] == nil {
		k.fail(path, "there is no plan %s%s", name, hint(name, sortedKeys(k.c.now.plans.entries)))
	}
}

func (k *checker) hasApp(path, name string) {
	if name != "" && k.c.now.apps.entries[name] == nil {
		k.fail(path, "there is no app %s%s", name, hint(name, sortedKeys(k.c.now.apps.entries)))
	}
}

func hint(name string, names []string) string {
	if near := nearest(name, names); near != "" && near != name {
		return "; did you mean " + near + "?"
	}
	return "; write it first"
}

func (k *checker) app(a *App) {
	k.hasPlan("spec.defaults.plan", a.Defaults.Plan)
	for _, other := range k.apps() {
		if other.Name == a.Name {
			continue
		}
		if a.Domain != "" && a.Domain == other.Domain {
			k.fail("spec.envoy.domain", "%q belongs to app %s already; choose another one", a.Domain, other.Name)
		}
		for _, h := range a.Hosts {
			if slices.Contains(other.Hosts, h) {
				k.fail("spec.envoy.hosts", "%q belongs to app %s already; keep it in one of them", h, other.Name)
			}
		}
	}
	k.rules(k.c.routesOf(a.Name, nil), a, func(rs *Routes, path string) string { return "" })
	for _, name := range k.c.now.Names(KindPlan) {
		p := k.c.now.Plan(name)
		use := k.use(p, a)
		if use == always {
			k.declared(p.Limits, "spec", func(l *Limit) string { return fmt.Sprintf("plan %s, limit %s: ", name, l.Name) }, a)
		}
		if use != never {
			k.fits(p, k.c.routesOf(a.Name, nil))
		}
	}
}

// usage tells how sure it is that an app's tenants are on a plan.
type usage int

const (
	never usage = iota
	maybe
	always
)

// use reports whether tenants of an app are on a plan: by its default or by naming
// it. Tenants of no one app may be.
func (k *checker) use(p *Plan, a *App) usage {
	counts := k.c.planUse[p.Name]
	switch {
	case a.Defaults.Plan == p.Name, counts[a.Name] > 0:
		return always
	case counts[""] > 0:
		return maybe
	}
	return never
}

// declared reports limits that count what the app knows nothing of.
func (k *checker) declared(limits []Limit, base string, prefix func(*Limit) string, a *App) {
	for i := range limits {
		l := &limits[i]
		path := k.existing(base+".limits."+l.Name, base)
		if !hasUnit(a, l.Unit) {
			k.fail(k.existing(path+".unit", path), "%sapp %s has no unit %s; declare it in spec.units of the app", prefix(l), a.Name, l.Unit)
		}
		for _, class := range l.Classes {
			if !hasClass(a, class) {
				k.fail(k.existing(path+".classes", path), "%sapp %s has no class %s; declare it in spec.identity.classes of the app", prefix(l), a.Name, class)
			}
		}
	}
}

// existing returns path if the document has a value there, else otherwise.
func (k *checker) existing(path, otherwise string) string {
	if _, ok := k.doc.place(path); ok {
		return path
	}
	return otherwise
}

func hasUnit(a *App, name string) bool {
	return name == DefaultUnit || name == "" || slices.ContainsFunc(a.Units, func(u Unit) bool { return u.Name == name })
}

func hasClass(a *App, name string) bool {
	return slices.ContainsFunc(a.Identity.Classes, func(c Class) bool { return c.Name == name })
}

// declaredSomewhere is declared for limits that no one app is known to use: some
// app must know what they count.
func (k *checker) declaredSomewhere(limits []Limit, base string) {
	apps := k.apps()
	for i := range limits {
		l := &limits[i]
		path := base + ".limits." + l.Name
		if !slices.ContainsFunc(apps, func(a *App) bool { return hasUnit(a, l.Unit) }) && l.Unit != DefaultUnit {
			k.fail(k.existing(path+".unit", path), "no app has a unit %s; declare it in spec.units of one", l.Unit)
		}
		for _, class := range l.Classes {
			if !slices.ContainsFunc(apps, func(a *App) bool { return hasClass(a, class) }) {
				k.fail(k.existing(path+".classes", path), "no app has a class %s; declare it in spec.identity.classes of one", class)
			}
		}
	}
}

func (k *checker) plan(p *Plan) {
	sure := false
	for _, a := range k.apps() {
		use := k.use(p, a)
		if use == always {
			sure = true
			k.declared(p.Limits, "spec", func(*Limit) string { return "" }, a)
		}
		if use != never {
			k.fits(p, k.c.routesOf(a.Name, nil))
		}
	}
	if !sure {
		k.declaredSomewhere(p.Limits, "spec")
	}
	for i, in := range p.Notices.Send {
		name := in[min(len(in), len("webhook:")):]
		if k.c.now.webhooks.entries[name] == nil {
			k.fail(fmt.Sprintf("spec.notices.send[%d]", i), "there is no webhook %s", name)
		}
	}
}

// fits warns of routes that take more than a whole limit of the plan has: tenants on it
// are refused there, which is right for a plan without them, and else a slip. A limit of
// 0 is meant to refuse.
func (k *checker) fits(p *Plan, all []*Routes) {
	for _, rs := range all {
		for i := range rs.Rules {
			rule := &rs.Rules[i]
			if !rule.Check || !rule.Meter {
				continue
			}
			k.fitsRule(p, rs, rule, DefaultUnit, rule.requests())
			for _, u := range rule.Units {
				if u.Unit != DefaultUnit {
					k.fitsRule(p, rs, rule, u.Unit, u.Amount)
				}
			}
		}
	}
}

func (k *checker) fitsRule(p *Plan, rs *Routes, rule *Rule, unit string, asked int64) {
	for i := range p.Limits {
		l := &p.Limits[i]
		whole := l.Amount
		if l.Kind == Rate {
			whole = l.Burst
		}
		if l.Unit != unit || l.Unlimited || l.WhenUsedUp.Count || whole == 0 || asked <= whole {
			continue
		}
		path := ""
		switch k.doc.Kind {
		case KindPlan:
			path = k.existing("spec.limits."+l.Name+".amount", "spec.limits")
		case KindRoutes:
			path = k.rulePath(rs, rule)
		case KindApp, KindTenant, KindCredential, KindWebhook, KindRateLimits:
		}
		k.warn(path, "rule %s of routes %s takes %d %s, more than the whole limit %s of plan %s, %d, so tenants on it are always refused there; take less or raise the limit unless that is meant",
			ruleName(rule), rs.Name, asked, unit, l.Name, p.Name, whole)
	}
}

func ruleName(r *Rule) string {
	switch {
	case r.Name != "":
		return r.Name
	case r.GRPCMethod != "":
		return r.GRPCMethod
	}
	return r.Path + r.PathPrefix
}

func (k *checker) rulePath(rs *Routes, rule *Rule) string {
	for i := range rs.Rules {
		if &rs.Rules[i] == rule {
			return fmt.Sprintf("spec.rules[%d]", i)
		}
	}
	return "spec.rules"
}

// rules reports what rules reserve and the app has no unit for.
func (k *checker) rules(all []*Routes, a *App, at func(rs *Routes, path string) string) {
	for _, rs := range all {
		for i := range rs.Rules {
			for _, u := range rs.Rules[i].Units {
				if !hasUnit(a, u.Unit) {
					k.fail(at(rs, fmt.Sprintf("spec.rules[%d].units.%s", i, u.Unit)), "routes %s, rule %s: app %s has no unit %s; declare it in spec.units of the app",
						rs.Name, ruleName(&rs.Rules[i]), a.Name, u.Unit)
				}
			}
		}
	}
}

func (k *checker) routes(rs *Routes) {
	k.hasApp("spec.app", rs.App)
	k.unreachable(rs)
	a := k.c.now.App(rs.App)
	if a == nil {
		return
	}
	k.rules([]*Routes{rs}, a, func(_ *Routes, path string) string { return path })
	for _, name := range k.c.now.Names(KindPlan) {
		if p := k.c.now.Plan(name); k.use(p, a) != never {
			k.fits(p, []*Routes{rs})
		}
	}
	for _, other := range k.c.routesOf(rs.App, nil) {
		if other.Name == rs.Name {
			continue
		}
		for i := range rs.Rules {
			name := rs.Rules[i].Name
			if name != "" && slices.ContainsFunc(other.Rules, func(r Rule) bool { return r.Name == name }) {
				k.fail(fmt.Sprintf("spec.rules[%d].name", i), "routes %s have a rule %s for the same app; choose another name", other.Name, name)
			}
		}
	}
}

// unreachable warns of rules that can never match, because one before them takes
// all their requests.
func (k *checker) unreachable(rs *Routes) {
	all := k.c.routesOf(rs.App, rs)
	var before []*Rule
	for _, other := range all {
		for i := range other.Rules {
			rule := &other.Rules[i]
			if other.Name == rs.Name {
				for _, b := range before {
					if b.covers(rule) {
						k.warn(fmt.Sprintf("spec.rules[%d]", i), "can never match, since rule %s before it takes all its requests; write it before that one", ruleName(b))
						break
					}
				}
			}
			before = append(before, rule)
		}
	}
}
