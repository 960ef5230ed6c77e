package authz

import (
	"slices"
	"time"

	"github.com/meteproject/mete/plan"
)

// A cost is what a request takes of each unit, and how it is treated.
type cost struct {
	rule   *plan.Rule // nil: no rule matched
	hits   int64
	class  string
	meter  bool
	check  bool
	only   []string     // the units that the request is charged; nil: all (C11)
	said   []UnitAmount // in place of what the rule reserves
	choice plan.Choice  // of the caller for on_unavailable, ChoiceUnset: the limit's (A62)
	dry    bool         // charge nothing

	// replayKey is what its settlement remembers the request by, if it completes;
	// zero: it has no idempotency key. replay says that it is remembered: it is
	// metered, and no quota refuses it (C16). Rate limits do, since they protect the
	// upstream, which has to answer a replay like any other request.
	replayKey [16]byte
	replay    bool
}

// quotas reports whether quotas refuse the request.
func (p *cost) quotas() bool { return p.check && !p.replay }

const (
	// routeExtension lets an Envoy route name the route rule (C37).
	routeExtension = "mete-route"
	// unavailableExtension lets an Envoy route decide for when etcd is away (A62).
	unavailableExtension = "mete-on-unavailable"
)

// price finds out what req costs. A route that is not listed costs 1 (A39).
func (d *Decider) price(snap *plan.Snapshot, app *plan.App, now time.Time, req *Request, c *caller) cost {
	p := cost{rule: d.rule(snap, app, req), hits: max(1, req.Hits), meter: true, check: true}
	if p.rule != nil {
		p.meter, p.check = p.rule.Meter, p.rule.Check
	}
	if c.class != nil {
		p.treatAs(c.class)
	}
	if key, ok := replayKey(app.Name, c.tenant, req); ok && !app.Count.Replays {
		p.replayKey = key
		p.replay = d.replays.has(app.Name, p.route(), key, now)
	}
	p.said = req.Units
	p.dry = req.CheckOnly || !p.meter
	switch choice, _ := req.Extension(unavailableExtension); choice {
	case "allow":
		p.choice = plan.Allow
	case "deny":
		p.choice = plan.Deny
	}
	return p
}

// rule returns the rule of a request: the one that is named, or else the one that
// matches; nil if neither can be. A name that no rule has is counted.
func (d *Decider) rule(snap *plan.Snapshot, app *plan.App, req *Request) *plan.Rule {
	name := req.Route
	if name == "" {
		name, _ = req.Extension(routeExtension)
	}
	if name != "" {
		if rule := snap.RouteNamed(app.Name, name, req.Host, req.Method, req.Path); rule != nil {
			return rule
		}
		if req.noted&notedRoute == 0 {
			req.noted |= notedRoute
			d.stats.unknownRoute(app.Name)
		}
	}
	if req.Path == "" {
		return nil
	}
	return snap.Route(app.Name, req.Host, req.Method, req.Path)
}

// treatAs makes p that of a request of a class. A free class is free but of the units
// that it still spends: those cost, and are refused for, as the route says (C11).
func (p *cost) treatAs(class *plan.Class) {
	p.class = class.Name
	if !class.Meter && !class.Check && len(class.StillSpends) > 0 {
		p.only = class.StillSpends
		return
	}
	p.meter, p.check = p.meter && class.Meter, p.check && class.Check
}

// free reports whether nothing is spent, nor looked at, whatever limits there are.
func (p *cost) free() bool {
	switch {
	case !p.meter && !p.check:
		return true
	case p.only == nil:
		return false
	}
	if slices.ContainsFunc(p.said, func(u UnitAmount) bool { return p.charges(u.Unit) }) {
		return false
	}
	return p.rule == nil || !slices.ContainsFunc(p.rule.Units, func(u plan.Reserve) bool { return p.charges(u.Unit) })
}

// charges reports whether the request is charged a unit at all.
func (p *cost) charges(unit string) bool { return p.only == nil || slices.Contains(p.only, unit) }

// route returns the name of the rule; "": it has none, or there is no rule.
func (p *cost) route() string {
	if p.rule == nil {
		return ""
	}
	return p.rule.Name
}

// weight returns how many requests the request counts for.
func (p *cost) weight() int64 {
	if !p.charges(plan.DefaultUnit) {
		return 0
	}
	if n, ok := p.says(plan.DefaultUnit); ok {
		return n
	}
	if p.rule != nil {
		return times(p.rule.Weight, p.hits)
	}
	return p.hits
}

// units returns what the request takes of l, and whether l is concerned: it is by a
// request that takes nothing before it has run, if the route says where it is told what
// it used.
func (p *cost) units(l *plan.EffectiveLimit) (n int64, concerned bool) {
	if !spends(l.Classes, p.class) || !p.charges(l.Unit) {
		return 0, false
	}
	n, said := p.says(l.Unit)
	if !said {
		n = p.reserves(l)
	}
	if n > 0 {
		return n, true
	}
	res := reserveOf(p.rule, l.Unit)
	return 0, res != nil && res.Use != nil
}

// reserves returns what the route reserves of l's unit.
func (p *cost) reserves(l *plan.EffectiveLimit) int64 {
	weight := int64(1)
	if l.Unit != plan.DefaultUnit {
		weight = 0
	}
	if p.rule != nil {
		if l.Unit == plan.DefaultUnit {
			weight = p.rule.Weight
		}
		for i := range p.rule.Units {
			if p.rule.Units[i].Unit == l.Unit {
				weight = max(weight, p.rule.Units[i].Amount)
			}
		}
	}
	return times(weight, p.hits)
}

// says returns what the request itself says that it reserves of a unit.
func (p *cost) says(unit string) (n int64, ok bool) {
	for i := range p.said {
		if p.said[i].Unit == unit {
			return p.said[i].Amount, true
		}
	}
	return 0, false
}

// times multiplies and stays at the largest amount where the product would not fit.
func times(weight, hits int64) int64 {
	if weight == 0 || hits <= plan.MaxAmount/weight {
		return weight * hits
	}
	return plan.MaxAmount
}

// spends reports whether a class spends a limit that names these classes.
func spends(classes []string, class string) bool {
	if classes == nil {
		return true
	}
	for _, c := range classes {
		if c == class {
			return true
		}
	}
	return false
}
