package main

import (
	"context"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// shownBindings is how many groups of limits that begin to bind are listed.
const shownBindings = 10

// A bindingView is a limit that begins to bind what is below its tenant, as status
// prints it.
type bindingView struct {
	App    string `json:"app"`
	Tenant string `json:"tenant"`
	Limit  string `json:"limit"`
	Source string `json:"source"`
}

// bindings returns the limits of a store that begin to bind the tenants below their
// nodes once it needs [plan.CascadeLevel]; none if it does already.
func bindings(m store.Minimum, s *plan.Snapshot, now time.Time) []bindingView {
	if m.Above(plan.CascadeLevel - 1) {
		return nil
	}
	var all []bindingView
	for _, b := range s.Bindings(now) {
		all = append(all, bindingView(b))
	}
	return all
}

// bindingsOf returns the limits that begin to bind by what steps write, because one of
// the documents makes the store need the level.
func bindingsOf(ctx context.Context, client *clientv3.Client, steps []step, after *plan.Snapshot, now time.Time) ([]bindingView, error) {
	for _, s := range steps {
		if level, _ := s.doc.Needs(); s.changes() && level >= plan.CascadeLevel {
			m, err := store.ReadMinimum(ctx, client)
			return bindings(m, after, now), err
		}
	}
	return nil, nil
}

// bindingLines are for people: one line for each limit of an app and a document.
func bindingLines(all []bindingView) []string {
	type group struct{ app, limit, source string }
	var order []group
	members := map[group][]string{}
	for _, b := range all {
		g := group{b.App, b.Limit, b.Source}
		if members[g] == nil {
			order = append(order, g)
		}
		members[g] = append(members[g], b.Tenant)
	}
	var lines []string
	for i, g := range order {
		if i == shownBindings {
			return append(lines, fmt.Sprintf("and %d more; -o json has all of them", len(order)-i))
		}
		which := members[g][0]
		if more := len(members[g]) - 1; more > 0 {
			which = fmt.Sprintf("%s and %s", which, plural(more, "more tenant"))
		}
		lines = append(lines, fmt.Sprintf("%s of %s (%s, app %s)", g.limit, which, g.source, g.app))
	}
	return lines
}

// findBindings adds what begins to bind once the upgrade is finalized.
func (r *statusReport) findBindings(ctx context.Context, client *clientv3.Client, now time.Time) error {
	if r.Store.minimum.Above(plan.CascadeLevel - 1) {
		return nil
	}
	catalog, err := loadCatalog(ctx, client)
	if err != nil {
		return err
	}
	r.Begin = bindings(r.Store.minimum, catalog.Snapshot(), now)
	return nil
}

// printBindings adds to a status what begins to bind.
func printBindings(w io.Writer, all []bindingView) error {
	if len(all) == 0 {
		return nil
	}
	t := newTable("BEGINS TO BIND WITH metectl finalize-upgrade")
	for _, line := range bindingLines(all) {
		t.add(line)
	}
	t.gap = true
	return t.write(w, terminalWidth(w))
}

// sayBindings lists on stderr what begins to bind.
func (c *cli) sayBindings(all []bindingView) {
	if len(all) == 0 {
		return
	}
	c.say("the store will need feature level %d; then what tenants below a node use is charged to these limits, too, unless they say cascade: false:", plan.CascadeLevel)
	for _, line := range bindingLines(all) {
		c.say("  %s", line)
	}
}

// confirmBindings lists what begins to bind, and asks on a terminal; elsewhere it wants
// --yes. A dry run only lists it.
func (c *cli) confirmBindings(all []bindingView, yes, dry bool) error {
	c.sayBindings(all)
	if len(all) == 0 || yes || dry {
		return nil
	}
	if !isTerminal(c.stdin) {
		return needsYes("limits that begin to bind want a yes", "add --yes, or write cascade: false where they should not; nothing was sent")
	}
	return c.ask("go on?", "nothing was sent")
}
