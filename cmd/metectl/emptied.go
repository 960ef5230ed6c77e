package main

import (
	"fmt"
	"strings"

	"github.com/meteproject/mete/plan"
)

// An emptied is a plan in use that an edit leaves without limits: a tenant on it would
// be served without any.
type emptied struct {
	plan    string
	tenants int
	apps    []string // whose default plan it is
}

// emptiedPlans finds them.
func emptiedPlans(steps []step, after *plan.Catalog) []emptied {
	var found []emptied
	s := after.Snapshot()
	for _, st := range steps {
		old := st.stored.doc
		if st.doc.Kind != plan.KindPlan || old == nil || len(old.Plan.Limits) == 0 || len(st.doc.Plan.Limits) > 0 {
			continue
		}
		e := emptied{plan: st.doc.Name, tenants: after.TenantsOn(st.doc.Name)}
		for _, app := range s.Names(plan.KindApp) {
			if s.App(app).Defaults.Plan == e.plan {
				e.apps = append(e.apps, app)
			}
		}
		if e.tenants > 0 || len(e.apps) > 0 {
			found = append(found, e)
		}
	}
	return found
}

func (e emptied) String() string {
	var who []string
	if e.tenants > 0 {
		who = append(who, plural(e.tenants, "tenant")+" on it")
	}
	if len(e.apps) > 0 {
		who = append(who, "tenants without a plan of app "+strings.Join(e.apps, ", "))
	}
	return fmt.Sprintf("plan %s would have no limits any more, and %s would be served without any", e.plan, strings.Join(who, " and "))
}

// confirmEmptied shows them, and asks on a terminal; elsewhere it wants --yes. A dry run
// only shows it.
func (c *cli) confirmEmptied(found []emptied, yes, dry bool) error {
	if len(found) == 0 {
		return nil
	}
	for _, e := range found {
		c.say("%s", e)
	}
	if yes || dry {
		return nil
	}
	if !isTerminal(c.stdin) {
		return needsYes("taking all limits out of a plan in use wants a yes", "add --yes; nothing was sent")
	}
	return c.ask("apply?", "nothing was sent")
}
