package authz

import "github.com/meteproject/mete/plan"

// A cost is what a request takes of each unit, and how it is treated.
type cost struct {
	rule   *plan.Rule // nil: no rule matched
	hits   int64
	class  string
	meter  bool
	check  bool
	choice plan.Choice // of the caller for on_unavailable, ChoiceUnset: the limit's (A62)
	dry    bool        // charge nothing
}

// unavailableExtension lets an Envoy route decide for when etcd is away (A62).
const unavailableExtension = "mete-on-unavailable"

// price finds out what req costs. A route that is not listed costs 1 (A39).
func price(snap *plan.Snapshot, app *plan.App, req *Request, c *caller) cost {
	p := cost{hits: max(1, req.Hits), meter: true, check: true, dry: req.CheckOnly}
	if req.Route != "" {
		p.rule = snap.RouteByName(app.Name, req.Route)
	} else if req.Path != "" {
		p.rule = snap.Route(app.Name, req.Host, req.Method, req.Path)
	}
	if p.rule != nil {
		p.meter, p.check = p.rule.Meter, p.rule.Check
	}
	if c.class != nil {
		p.class = c.class.Name
		p.meter, p.check = p.meter && c.class.Meter, p.check && c.class.Check
	}
	p.dry = p.dry || !p.meter
	switch choice, _ := req.Extension(unavailableExtension); choice {
	case "allow":
		p.choice = plan.Allow
	case "deny":
		p.choice = plan.Deny
	}
	return p
}

// weight returns how many requests the request counts for.
func (p *cost) weight() int64 {
	if p.rule != nil {
		return times(p.rule.Weight, p.hits)
	}
	return p.hits
}

// units returns what the request takes of l; 0 if l is not concerned.
func (p *cost) units(l *plan.EffectiveLimit) int64 {
	if !spends(l.Classes, p.class) {
		return 0
	}
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

// times multiplies and stays at the largest amount where the product would not fit.
func times(weight, hits int64) int64 {
	if weight == 0 || hits <= plan.MaxAmount/weight {
		return weight * hits
	}
	return plan.MaxAmount
}

// spends tells whether a class spends a limit that names these classes.
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
