package main

import (
	"cmp"
	"slices"

	"github.com/meteproject/mete/plan"
)

// A wayLost is an app that an edit leaves without requests: nothing of it is wrong, and
// yet none of its limits is enforced.
type wayLost struct{ app, why string }

// waysLost finds the apps that requests reach by their host before the edit and not
// after it, and new apps that no host leads to.
func waysLost(before, after *plan.Snapshot) []wayLost {
	var found []wayLost
	for _, name := range after.Names(plan.KindApp) {
		was, is := before.App(name), after.App(name)
		reached := func(s *plan.Snapshot, a *plan.App) bool {
			return a != nil && (len(a.Hosts) > 0 || s.AppOfOtherHosts() == a)
		}
		switch {
		case reached(after, is), was != nil && !reached(before, was), was == nil && is.Domain != "":
			continue
		}
		found = append(found, wayLost{name, whyLost(after, name)})
	}
	return found
}

// whyLost tells where requests go that an app without hosts would have had.
func whyLost(after *plan.Snapshot, name string) string {
	if other := after.AppOfOtherHosts(); other != nil {
		return "requests of hosts that no App lists go to app " + other.Name
	}
	for _, other := range after.Names(plan.KindApp) {
		if other != name && len(after.App(other).Hosts) == 0 {
			return "app " + other + " lists no hosts either, so requests of hosts that no App lists are refused"
		}
	}
	return "requests of hosts that no App lists are refused"
}

// tellWaysLost shows what would not be reached any more.
func (c *cli) tellWaysLost(found []wayLost) {
	slices.SortFunc(found, func(a, b wayLost) int { return cmp.Compare(a.app, b.app) })
	for _, w := range found {
		c.say("app %s would be reached by no host: %s; list its hosts in spec.envoy.hosts, or \"*\" for all others. "+
			"What has a rate limit domain, or the context extension mete-app in Envoy's route, is reached by that", w.app, w.why)
	}
}

// confirmWaysLost shows what would not be reached any more, and asks on a terminal;
// elsewhere it wants --yes. A dry run only shows it.
func (c *cli) confirmWaysLost(found []wayLost, yes, dry bool) error {
	if len(found) == 0 {
		return nil
	}
	c.tellWaysLost(found)
	if yes || dry {
		return nil
	}
	if !isTerminal(c.stdin) {
		return needsYes("leaving "+plural(len(found), "app")+" without a host wants a yes", "add --yes; nothing was sent")
	}
	return c.ask("apply?", "nothing was sent")
}
