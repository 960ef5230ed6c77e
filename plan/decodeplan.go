package plan

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (o *object) plan() *Plan {
	p := &Plan{Title: o.text("title"), UpgradeURL: o.webAddress("upgrade_url", "https", "http")}
	if n := o.require("limits", "{NAME: {kind: ..., amount: ...}}"); n != nil {
		p.Limits = o.limits(n, o.at("limits"))
		o.warnAbout(n, p.Limits)
	}
	if n := o.field("overrides"); n != nil {
		p.Overrides = o.patternOverrides(n, o.at("overrides"), p.Limits)
	}
	if n := o.field("notices"); n != nil {
		p.Notices = o.object(n, o.at("notices")).notices()
		o.unsupported(n, o.at("notices"), planNotices)
	}
	if n := o.field("increases"); n != nil {
		o.elements(n, o.at("increases"), func(item *node, path string) {
			p.Increases = append(p.Increases, o.object(item, path).increase(p.Limits))
		})
		o.unsupported(n, o.at("increases"), planIncreases)
	}
	return p
}

func (o *object) warnAbout(n *node, limits []Limit) {
	hasRate, hasQuota := false, ""
	for i := range limits {
		l := &limits[i]
		hasRate = hasRate || l.Kind == Rate
		if l.Kind == Quota && hasQuota == "" && !l.Unlimited {
			hasQuota = l.Name
		}
		if l.Kind == Quota && l.Reset.Kind == CalendarBilling && l.Reset.Anchor == 0 {
			o.warn(n, o.at("limits."+l.Name+".reset"), "every tenant needs a billing_anchor of its own, or its terms are unknown; write anchor here for the rest")
		}
	}
	if hasQuota != "" && !hasRate {
		o.warn(n, o.at("limits"), "a quota without a rate limit can be used up in a moment; add a limit of kind: rate")
	}
}

func (r *reader) limits(n *node, path string) []Limit {
	var all []Limit
	r.entries(n, path, func(key, value *node, path string) {
		good := r.checkName(key, path, key.text)
		l := r.object(value, path).limit()
		l.Name = key.text
		if good {
			all = append(all, l)
		}
	})
	return all
}

func (o *object) limit() Limit {
	l := Limit{}
	kindNode := o.require("kind", "rate, quota or allocation")
	if kindNode != nil {
		l.Kind = pick(o.reader, kindNode, o.at("kind"), 0,
			option[LimitKind]{"rate", Rate}, option[LimitKind]{"quota", Quota}, option[LimitKind]{"allocation", Allocation})
	}
	if n := o.require("amount", "a number of units, or unlimited"); n != nil {
		l.Amount, l.Unlimited, _ = o.amountOrUnlimited(n, o.at("amount"))
	}
	l.Unit = o.name("unit")
	if l.Unit == "" {
		l.Unit = DefaultUnit
	}
	l.Description = o.text("description")
	if n := o.field("description"); n != nil && len([]rune(l.Description)) > 200 {
		o.fail(n, o.at("description"), "has more than 200 characters; write fewer")
	}
	l.Classes = o.texts("classes")
	if n := o.field("classes"); n != nil && n.kind == listNode {
		for i, item := range n.items {
			if item.kind == stringNode && item.text != "" {
				o.checkName(item, fmt.Sprintf("%s[%d]", o.at("classes"), i), item.text)
			}
		}
	}
	l.Cascade = o.cascade()
	o.onUnavailable(&l)
	l.Advertise = o.bool("advertise", true)
	l.Disclose = choose(o, "disclose", DiscloseUnset, option[Disclose]{"names", DiscloseNames}, option[Disclose]{"usage", DiscloseUsage})
	switch l.Kind {
	case Rate:
		o.rate(&l)
	case Quota:
		o.quota(&l)
	case Allocation:
		o.allocation(&l)
		o.unsupported(kindNode, o.at("kind"), kindAllocation)
	default: // reported; the fields of any kind may be meant
		o.known = append(o.known, "window", "burst", "replicas", "reset", "when_used_up", "lease", "hold")
		for i, key := range o.n.keys {
			if slices.Contains(o.known, key.text) && key.kind == stringNode {
				o.asked[i] = true
			}
		}
		o.missing = slices.DeleteFunc(o.missing, func(m missing) bool { return m.name == "kind" && kindNode != nil })
	}
	o.done()
	return l
}

// onUnavailable reads allow, deny, or allow with a cap.
func (o *object) onUnavailable(l *Limit) {
	n := o.field("on_unavailable")
	if n == nil || n.kind != mapNode {
		l.OnUnavailable = o.choice("on_unavailable", ChoiceUnset)
		return
	}
	outer := o.object(n, o.at("on_unavailable"))
	if n := outer.require("allow", "a cap such as {units: 500, for: 5m}"); n != nil {
		l.OnUnavailable = Allow
		c := o.object(n, outer.at("allow"))
		units, length := c.field("units"), c.field("for")
		if units != nil {
			l.AllowCap.Units, _ = c.whole(units, c.at("units"), 1, MaxAmount)
		}
		l.AllowCap.For = c.duration("for", 0, time.Second, 24*time.Hour)
		if units == nil && length == nil {
			o.fail(n, c.path, "caps nothing; write units, for or both, or on_unavailable: allow")
		}
		c.done()
	}
	if l.Kind == Rate || l.Kind == Allocation {
		o.fail(n, o.at("on_unavailable"), "a cap belongs to limits of kind: quota; write allow or deny")
	}
	outer.done()
}

// belong marks fields of the other kinds, so that they are told from misspelled
// ones.
func (o *object) belong(kind string, fields ...string) {
	if o.foreign == nil {
		o.foreign = map[string]string{}
	}
	for _, f := range fields {
		o.foreign[f] = fmt.Sprintf("belongs to limits of kind: %s; leave it out or write that kind", kind)
	}
}

// The longest window of a rate is a leap year, the longest that people think of
// as one. Longer ones are quotas.
const (
	shortestWindow = time.Millisecond
	longestWindow  = 366 * 24 * time.Hour
)

func (o *object) rate(l *Limit) {
	if n := o.require("window", "a length of time such as 1s or 1m"); n != nil {
		l.Window, _ = o.reader.duration(n, o.at("window"), shortestWindow, longestWindow)
	}
	l.Burst = l.Amount
	if n := o.field("burst"); n != nil {
		burst, ok := o.amount(n, o.at("burst"))
		switch {
		case !ok:
		case l.Unlimited:
			o.fail(n, o.at("burst"), "an unlimited rate has no burst; leave it out")
		case burst < 1 && l.Amount > 0:
			o.fail(n, o.at("burst"), "0 would refuse every request; write 1 or more, or amount: 0")
		default:
			l.Burst = burst
		}
	}
	l.Replicas = o.spread("replicas", SpreadUnset)
	o.belong("quota", "reset", "when_used_up", "lease")
	o.belong("allocation", "hold")
}

func (o *object) quota(l *Limit) {
	if n := o.require("reset", "when it starts again, such as {calendar: month}"); n != nil {
		l.Reset = o.object(n, o.at("reset")).reset()
	}
	if n := o.field("when_used_up"); n != nil {
		l.WhenUsedUp = o.usedUp(n, o.at("when_used_up"))
		if l.Unlimited {
			o.fail(n, o.at("when_used_up"), "an unlimited quota is never used up; leave it out")
		}
	}
	l.Lease = defaultLease()
	if n := o.field("lease"); n != nil {
		o.object(n, o.at("lease")).lease(&l.Lease)
	}
	o.belong("rate", "window", "burst", "replicas")
	o.belong("allocation", "hold")
}

func (o *object) allocation(l *Limit) {
	l.Hold = o.duration("hold", 5*time.Minute, time.Second, 24*time.Hour)
	o.belong("rate", "window", "burst", "replicas")
	o.belong("quota", "reset", "when_used_up", "lease")
}

func (r *reader) usedUp(n *node, path string) UsedUp {
	if n.kind == mapNode {
		o := r.object(n, path)
		u := UsedUp{}
		if g := o.require("grace", "how far past the amount, such as 10%"); g != nil {
			u.Grace, _ = r.percent(g, o.at("grace"), 0, 10000)
		}
		o.done()
		return u
	}
	if n.kind == stringNode {
		switch n.text {
		case "deny":
			return UsedUp{}
		case "count":
			return UsedUp{Count: true}
		}
	}
	r.fail(n, path, "%s is unknown; use deny, count or {grace: 10%%}", n.shown())
	return UsedUp{}
}

func (o *object) notices() Notices {
	var all Notices
	if n := o.field("at"); n != nil {
		o.elements(n, o.at("at"), func(item *node, path string) {
			if v, ok := o.reader.percent(item, path, 0, 10000); ok {
				all.At = append(all.At, v)
			}
		})
	}
	all.Send = o.texts("send")
	for _, s := range all.Send {
		if name, ok := strings.CutPrefix(s, "webhook:"); !ok || !isName(name) {
			o.fail(o.n, o.at("send"), "%q is unknown; write webhook:NAME", short(s))
		}
	}
	o.done()
	return all
}

func (o *object) increase(limits []Limit) Increase {
	var in Increase
	if n := o.require("limits", "the limits that may be raised"); n != nil {
		in.Limits = o.texts("limits")
		for i, name := range in.Limits {
			if !hasLimit(limits, name) {
				o.fail(n, fmt.Sprintf("%s[%d]", o.at("limits"), i), "%q is not a limit of this plan; the limits are %s", short(name), listed(limitNames(limits), "and"))
			}
		}
	}
	if n := o.field("auto_approve"); n != nil {
		a := o.object(n, o.at("auto_approve"))
		if n := a.field("up_to"); n != nil {
			in.UpTo, in.UpToTimes = a.upTo(n, a.at("up_to"))
		}
		in.MinAccountAge = a.duration("min_account_age", 0, 0, 100*longestWindow)
		in.Payment = choose(a, "payment", "", option[string]{"any", "any"}, option[string]{"good", "good"})
		if n := a.field("at_most"); n != nil {
			m := a.object(n, a.at("at_most"))
			if n := m.require("times", "how often"); n != nil {
				in.Times, _ = m.whole(n, m.at("times"), 1, MaxAmount)
			}
			if n := m.require("per", "in how long, such as 30d"); n != nil {
				in.Per, _ = m.reader.duration(n, m.at("per"), time.Minute, 100*longestWindow)
			}
			m.done()
		}
		a.done()
	}
	in.Approvers = o.texts("approvers")
	o.done()
	return in
}

// upTo reads an amount or a factor such as 2x.
func (r *reader) upTo(n *node, path string) (amount, times int64) {
	if n.kind == stringNode {
		if s, ok := strings.CutSuffix(n.text, "x"); ok {
			whole, part, point := strings.Cut(s, ".")
			v, err := strconv.ParseInt(whole+(part + "00")[:2], 10, 64)
			if err == nil && whole != "" && strings.Trim(whole+part, "0123456789") == "" && len(part) <= 2 && (part != "") == point && len(whole) <= 9 {
				return 0, v
			}
		}
		if !n.quoted || !strings.HasSuffix(n.text, "x") {
			r.fail(n, path, "%s is neither an amount nor a factor; write one such as 20000 or 2x", n.shown())
			return 0, 0
		}
	}
	amount, _ = r.amount(n, path)
	return amount, 0
}

func hasLimit(limits []Limit, name string) bool {
	return slices.ContainsFunc(limits, func(l Limit) bool { return l.Name == name })
}

func limitNames(limits []Limit) []string {
	names := make([]string, 0, len(limits))
	for i := range limits {
		names = append(names, limits[i].Name)
	}
	return names
}
