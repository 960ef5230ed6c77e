package plan

import (
	"slices"
	"strings"
)

// A Standing is what documents say of a tenant's name before its terms are computed.
type Standing struct {
	// Declared: the name has a Tenant document, valid or not, or an override of the app's
	// default plan names it, and no pattern. There are no more such names than documents have.
	Declared bool
	// Override is the override of the default plan that holds for a name without a document;
	// -1: none. Names of one override have the same limits.
	Override int
	// Accounts is how many accounts the limits of a name without a document have.
	Accounts int
}

// Standing returns the standing of a tenant's name in an app.
func (s *Snapshot) Standing(app *App, tenant string) Standing {
	st := Standing{Override: -1}
	if s.HasTenant(tenant) {
		st.Declared = true
		return st
	}
	p := s.plans.entries[app.Defaults.Plan]
	if p == nil || p.plan == nil {
		return st
	}
	for i := range p.plan.Limits {
		if p.plan.Limits[i].Kind == Quota {
			st.Accounts++
		}
	}
	for i := range p.plan.Overrides {
		matches := func(pattern string) bool { return MatchPattern(pattern, tenant) }
		if at := slices.IndexFunc(p.plan.Overrides[i].Tenants, matches); at >= 0 {
			st.Override = i
			st.Declared = !strings.Contains(p.plan.Overrides[i].Tenants[at], "*")
			break
		}
	}
	return st
}
