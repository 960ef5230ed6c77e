package plan

import (
	"fmt"
	"slices"
)

func (o *object) patternOverrides(n *node, path string, limits []Limit) []PatternOverride {
	var all []PatternOverride
	o.elements(n, path, func(item *node, path string) {
		f := o.object(item, path)
		var p PatternOverride
		if n := f.require("tenants", "a list of patterns, such as [\"org:acme-*\"]"); n != nil {
			p.Tenants = f.texts("tenants")
		}
		if n := f.require("limits", "{LIMIT: {amount: ...}}"); n != nil {
			p.Limits = f.overrides(n, f.at("limits"), false)
			for _, ov := range p.Limits {
				f.checkOverride(n, f.at("limits."+ov.Limit), ov, limits)
			}
		}
		if n := f.require("reason", "why these tenants differ"); n != nil {
			p.Reason = f.reason(n, f.at("reason"))
		}
		f.done()
		all = append(all, p)
	})
	return all
}

func (r *reader) reason(n *node, path string) string {
	s, ok := r.text(n, path)
	if ok && len([]rune(s)) < 4 {
		r.fail(n, path, "%q says too little; write why, in 4 characters or more", s)
	}
	return s
}

// checkOverride compares an override with the limits that it may name.
func (r *reader) checkOverride(n *node, path string, ov Override, limits []Limit) {
	if why := overrideFault(ov, limits); why != "" {
		r.fail(n, path, "%s", why)
	}
}

func overrideFault(ov Override, limits []Limit) string {
	i := slices.IndexFunc(limits, func(l Limit) bool { return l.Name == ov.Limit })
	switch {
	case i < 0 && len(limits) == 0:
		return fmt.Sprintf("there is no limit %s to override", ov.Limit)
	case i < 0:
		return fmt.Sprintf("there is no limit %s to override; the limits are %s", ov.Limit, listed(limitNames(limits), "and"))
	case ov.Burst != nil && limits[i].Kind != Rate:
		return fmt.Sprintf("%s is not a rate and has no burst; leave burst out", ov.Limit)
	case ov.Burst != nil && limits[i].Unlimited && ov.Amount == nil:
		return fmt.Sprintf("%s is unlimited and has no burst; leave burst out or write an amount", ov.Limit)
	case ov.Burst != nil && *ov.Burst == 0 && limits[i].Amount > 0 && ov.Amount == nil:
		return "burst 0 would refuse every request; write 1 or more, or amount: 0"
	}
	return ""
}

func (r *reader) overrides(n *node, path string, needReason bool) []Override {
	var all []Override
	r.entries(n, path, func(key, value *node, path string) {
		good := r.checkName(key, path, key.text)
		o := r.object(value, path)
		ov := Override{Limit: key.text}
		if n := o.field("amount"); n != nil {
			v, unlimited, ok := o.amountOrUnlimited(n, o.at("amount"))
			ov.Unlimited = unlimited
			if ok && !unlimited {
				ov.Amount = &v
			}
		}
		if n := o.field("burst"); n != nil {
			if v, ok := o.amount(n, o.at("burst")); ok {
				ov.Burst = &v
			}
		}
		if n := o.field("remove"); n != nil {
			ov.Remove, _ = o.reader.bool(n, o.at("remove"))
			if n.kind == boolNode && !ov.Remove {
				o.fail(n, o.at("remove"), "false changes nothing; write true or leave it out")
			}
		}
		ov.Until = o.instant("until")
		if needReason {
			if n := o.require("reason", "why this tenant differs"); n != nil {
				ov.Reason = o.reason(n, o.at("reason"))
			}
			ov.Ticket = o.text("ticket")
		} else if n := o.field("reason"); n != nil {
			ov.Reason = o.reason(n, o.at("reason"))
		}
		r.overrideRelations(value, o, ov)
		o.done()
		if good {
			all = append(all, ov)
		}
	})
	return all
}

func (r *reader) overrideRelations(n *node, o *object, ov Override) {
	written := func(name string) bool {
		return slices.ContainsFunc(n.keys, func(k *node) bool { return k.text == name })
	}
	amount, burst := written("amount"), written("burst")
	switch {
	case n.kind != mapNode:
	case ov.Remove && (amount || burst):
		r.fail(n, o.path, "remove and an amount at once; keep one")
	case !written("remove") && !amount && !burst:
		r.fail(n, o.path, "changes nothing; write amount, burst or remove: true")
	case ov.Unlimited && burst:
		r.fail(n, o.path, "an unlimited rate has no burst; leave burst out")
	case ov.Burst != nil && *ov.Burst == 0 && ov.Amount != nil && *ov.Amount > 0:
		r.fail(n, o.path, "burst 0 would refuse every request; write 1 or more, or amount: 0")
	}
}
