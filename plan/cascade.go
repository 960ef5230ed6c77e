package plan

import (
	"slices"
	"strings"
	"time"
)

// CascadeLevel is the feature level from which a limit that does not write cascade
// is charged by everything below its node. Which of the two a store means is said by
// the level that the store needs, so that replicas of two versions never read one
// document in two ways.
const CascadeLevel = 5

// A Cascade says whether what tenants below a node use is charged to a limit of the
// node, too.
type Cascade int

// The values of a Cascade. CascadeUnset is what holds in the store.
const (
	CascadeUnset Cascade = iota
	CascadeOn
	CascadeOff
)

// holds reports whether the limit cascades, where unset is what holds in the store.
func (c Cascade) holds(unset bool) bool {
	return c == CascadeOn || c == CascadeUnset && unset
}

func (o *object) cascade() Cascade {
	switch {
	case o.field("cascade") == nil:
		return CascadeUnset
	case o.bool("cascade", false):
		return CascadeOn
	}
	return CascadeOff
}

// A Binding is a limit of a tenant that is charged for what is used below the tenant
// where limits cascade unless they say otherwise, and is not where they do not.
type Binding struct {
	App, Tenant, Limit string
	// Source is the document that the limit is written in, as in
	// [EffectiveLimit.Source].
	Source string
}

// Bindings returns the limits that begin to bind the tenants below their nodes when
// the store reaches [CascadeLevel], sorted by app, tenant and limit; none are left out.
// It computes the terms of one child for each parent.
func (s *Snapshot) Bindings(now time.Time) []Binding {
	without, with := *s, *s
	without.cascades, with.cascades = false, true
	found := map[Binding]bool{}
	for _, child := range s.firstChildren() {
		for _, app := range sortedKeys(s.apps.entries) {
			before, after := without.Terms(now, app, child), with.Terms(now, app, child)
			for b := range before.addedBy(&after) {
				b.App = app
				found[b] = true
			}
		}
	}
	all := make([]Binding, 0, len(found))
	for b := range found {
		all = append(all, b)
	}
	slices.SortFunc(all, func(a, b Binding) int {
		return strings.Compare(a.App+"\x00"+a.Tenant+"\x00"+a.Limit, b.App+"\x00"+b.Tenant+"\x00"+b.Limit)
	})
	return all
}

// addedBy yields the limits above the leaf that are charged by after and not by t.
func (t *Terms) addedBy(after *Terms) func(yield func(Binding) bool) {
	return func(yield func(Binding) bool) {
		for i := range after.Nodes {
			n := &after.Nodes[i]
			for j := range n.Limits {
				l := &n.Limits[j]
				if l.Charged && !t.charges(n.Tenant, l.Name) && !yield(Binding{Tenant: n.Tenant, Limit: l.Name, Source: l.Source}) {
					return
				}
			}
		}
	}
}

// charges reports whether a limit of a node is charged.
func (t *Terms) charges(tenant, limit string) bool {
	return slices.ContainsFunc(t.Nodes, func(n NodeTerms) bool {
		return n.Tenant == tenant && slices.ContainsFunc(n.Limits, func(l EffectiveLimit) bool { return l.Name == limit && l.Charged })
	})
}

// firstChildren returns, for each tenant that others name as their parent, the child
// of the least name among those that pool their use at the root, and among those that
// do not: the children of a tenant have the same limits above them.
func (s *Snapshot) firstChildren() []string {
	type family struct {
		parent, app string
		pooled      bool
	}
	first := map[family]string{}
	s.tenants.all(func(e *tenantEntry) {
		t := e.tenant()
		if t == nil || t.Parent == "" {
			return
		}
		f := family{t.Parent, t.App, t.PoolRoot}
		if known, ok := first[f]; !ok || e.doc.Name < known {
			first[f] = e.doc.Name
		}
	})
	names := make([]string, 0, len(first))
	for _, name := range first {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
