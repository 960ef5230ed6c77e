package main

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// shownShortfalls is how many of them are listed one by one.
const shownShortfalls = 5

// A shortfall is a quota that an apply lowers below what is used of it already, or that it
// brings back with more used in its window than it has, so that its tenant is refused until
// the window ends.
type shortfall struct {
	tenant, limit  string
	used, was, now int64
}

// shortfalls finds those that the steps bring about, with one walk over all
// accounts, and none if no step can lower anything.
func shortfalls(ctx context.Context, client *clientv3.Client, now time.Time, steps []step, before, after *plan.Snapshot) ([]shortfall, error) {
	if !slices.ContainsFunc(steps, step.mayLower) {
		return nil, nil
	}
	entries, err := store.NewAccounts(client).List(ctx)
	if err != nil {
		return nil, err
	}
	var found []shortfall
	for _, e := range entries {
		s := shortfall{tenant: e.Key.Tenant, limit: e.Key.Limit, used: e.Account.Used()}
		for _, app := range appsOf(after, e.Key.Tenant) {
			was, bound := amountOf(before, now, app, e)
			if !bound {
				was = math.MaxInt64
			}
			is, ok := amountOf(after, now, app, e)
			if ok && is < was && is < s.used {
				s.was, s.now = was, is
				found = append(found, s)
				break
			}
		}
	}
	return found, nil
}

// mayLower reports whether a step may lower an amount of somebody.
func (s step) mayLower() bool {
	old := s.stored.doc
	if !s.changes() || old == nil {
		return false
	}
	switch s.doc.Kind {
	case plan.KindPlan:
		return len(old.Plan.Overrides)+len(s.doc.Plan.Overrides) > 0 || slices.ContainsFunc(s.doc.Plan.Limits, func(l plan.Limit) bool {
			i := slices.IndexFunc(old.Plan.Limits, func(o plan.Limit) bool { return o.Name == l.Name })
			return i < 0 || ceiling(&l) < ceiling(&old.Plan.Limits[i]) || !reflect.DeepEqual(l.Reset, old.Plan.Limits[i].Reset)
		})
	case plan.KindTenant:
		return true
	case plan.KindApp:
		return old.App.Defaults.Plan != s.doc.App.Defaults.Plan
	case plan.KindRoutes, plan.KindCredential, plan.KindWebhook, plan.KindRateLimits:
	}
	return false
}

// ceiling is what a limit lets through at most.
func ceiling(l *plan.Limit) int64 {
	if l.Unlimited || l.WhenUsedUp.Count {
		return math.MaxInt64
	}
	return l.Amount
}

// appsOf returns the apps that a tenant may belong to.
func appsOf(s *plan.Snapshot, tenant string) []string {
	if t := s.Tenant(tenant); t != nil && t.App != "" {
		return []string{t.App}
	}
	return s.Names(plan.KindApp)
}

// amountOf returns the amount of an account's quota, if its window is the running one.
func amountOf(s *plan.Snapshot, now time.Time, app string, e store.Entry) (amount int64, ok bool) {
	terms := s.Terms(now, app, e.Key.Tenant)
	for i := range terms.Nodes {
		if terms.Nodes[i].Tenant != e.Key.Tenant {
			continue
		}
		for j := range terms.Nodes[i].Limits {
			l := &terms.Nodes[i].Limits[j]
			if l.Name == e.Key.Limit && l.Kind == plan.Quota && window(l, now).ID == e.Key.Window {
				return ceiling(&l.Limit), true
			}
		}
	}
	return 0, false
}

// confirmShortfalls shows what is lowered below its use, and asks on a terminal;
// elsewhere it wants --yes. A dry run only shows it.
func (c *cli) confirmShortfalls(found []shortfall, yes, dry bool) error {
	if len(found) == 0 {
		return nil
	}
	c.say("%s would be below what is used already, and refuse until the window ends:", plural(len(found), "quota"))
	for _, s := range found[:min(len(found), shownShortfalls)] {
		c.say("  %s of %s: %s used, lowered %sto %s", s.limit, s.tenant, grouped(s.used), lowered(s.was), grouped(s.now))
	}
	if more := len(found) - shownShortfalls; more > 0 {
		c.say("  and %s more", grouped(int64(more)))
	}
	if yes || dry {
		return nil
	}
	if !isTerminal(c.stdin) {
		return needsYes("lowering a quota below what is used wants a yes", "add --yes; nothing was sent")
	}
	return c.ask("apply?", "nothing was sent")
}

func lowered(was int64) string {
	if was == math.MaxInt64 {
		return ""
	}
	return fmt.Sprintf("from %s ", grouped(was))
}
