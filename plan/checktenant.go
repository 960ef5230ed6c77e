package plan

import "slices"

func (k *checker) tenant(t *Tenant) {
	k.hasPlan("spec.plan", t.Plan)
	k.hasApp("spec.app", t.App)
	plan, complete := k.climb(t)
	if !complete {
		return // reported, and the plan is unknown
	}
	if len(t.Limits) > 0 {
		k.ownLimits(t)
	}
	plans := k.plansOf(t, plan)
	if len(t.Overrides) > 0 {
		limits, known := k.limitsOf(plans)
		k.overrides(t, slices.Concat(t.Limits, limits), known)
	}
	if t.BillingAnchor > 0 {
		return
	}
	for _, name := range plans {
		if p := k.c.now.Plan(name); p != nil {
			k.billing(t, p)
		}
	}
}

// appsOf returns the apps that a tenant may be a tenant of.
func (k *checker) appsOf(t *Tenant) []*App {
	apps := k.apps()
	if t.App != "" {
		apps = slices.DeleteFunc(apps, func(a *App) bool { return a.Name != t.App })
	}
	return apps
}

func (k *checker) ownLimits(t *Tenant) {
	if apps := k.appsOf(t); t.App != "" && len(apps) == 1 {
		k.declared(t.Limits, "spec", func(*Limit) string { return "" }, apps[0])
		return
	}
	k.declaredSomewhere(t.Limits, "spec")
}

// plansOf returns the plans that a tenant may be on: plan, which it has of its own
// or from above, or else those that its apps give to everybody.
func (k *checker) plansOf(t *Tenant, plan string) []string {
	if plan != "" {
		return []string{plan}
	}
	var plans []string
	for _, a := range k.appsOf(t) {
		if a.Defaults.Plan != "" {
			plans = append(plans, a.Defaults.Plan)
		}
	}
	return plans
}

// billing reports the limits of a plan that start again on a day which neither they
// nor the tenant name.
func (k *checker) billing(t *Tenant, p *Plan) {
	for i := range p.Limits {
		if l := &p.Limits[i]; l.Kind == Quota && l.Reset.Kind == CalendarBilling && l.Reset.Anchor == 0 && !hasLimit(t.Limits, l.Name) {
			k.fail("spec", "limit %s of its plan starts again by billing; write billing_anchor, the day of the month", l.Name)
		}
	}
}

// limitsOf returns the limits of the plans that the tenant may be on, and whether
// all of them are known.
func (k *checker) limitsOf(plans []string) (limits []Limit, known bool) {
	known = true
	for _, name := range plans {
		p := k.c.now.Plan(name)
		if p == nil {
			known = false
			continue
		}
		limits = append(limits, p.Limits...)
	}
	return limits, known
}

func (k *checker) overrides(t *Tenant, limits []Limit, known bool) {
	for _, ov := range t.Overrides {
		if !known && !hasLimit(limits, ov.Limit) {
			continue
		}
		if why := overrideFault(ov, limits); why != "" {
			k.fail("spec.overrides."+ov.Limit, "%s", why)
		}
	}
}

// climb reports what is wrong with the tenant's path, and returns the plan that it
// has of its own or from above.
func (k *checker) climb(t *Tenant) (plan string, complete bool) {
	plan = t.Plan
	for name, depth := t.Parent, 2; name != ""; depth++ {
		e, ok := k.c.now.tenants.get(k.c.now.tenantShard(name), name)
		switch {
		case name == k.doc.Name:
			k.fail("spec.parent", "is below %s itself, in a circle; choose another parent", k.doc.Name)
			return "", false
		case !ok && name == t.Parent:
			k.fail("spec.parent", "there is no tenant %s; write it first", name)
			return "", false
		case !ok:
			k.fail("spec.parent", "there is no tenant %s, which is above %s; write it first", name, t.Parent)
			return "", false
		case depth > MaxDepth:
			k.fail("spec.parent", "is %d deep already; a path has at most %d tenants", MaxDepth, MaxDepth)
			return "", false
		}
		above := e.tenant()
		if above == nil {
			return "", false // it was never valid; nothing is known above it
		}
		if above.App != "" && t.App != "" && above.App != t.App {
			k.fail("spec.parent", "tenant %s is for app %s alone; choose another parent or another app", name, above.App)
		}
		if plan == "" {
			plan = above.Plan
		}
		name = above.Parent
	}
	return plan, true
}

func (k *checker) credential(c *Credential) {
	if !k.c.now.HasTenant(c.Tenant) {
		k.warn("spec.tenant", "there is no tenant %s; its requests are answered 401 until there is", c.Tenant)
	}
	if c.Class != "" && !slices.ContainsFunc(k.apps(), func(a *App) bool { return hasClass(a, c.Class) }) {
		k.warn("spec.class", "no app has a class %s; declare it in spec.identity.classes of one", c.Class)
	}
}
