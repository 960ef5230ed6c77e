package plan

import (
	"fmt"
	"net/http"
	"regexp"
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
	l.Cascade = o.bool("cascade", false)
	l.OnUnavailable = o.choice("on_unavailable", ChoiceUnset)
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
	if n := o.require("reset", "when it starts anew, such as {calendar: month}"); n != nil {
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

func (o *object) reset() Reset {
	var r Reset
	ways := make([]string, 0, 4)
	at := map[string]*node{}
	for _, way := range []string{"calendar", "cron", "every", "after_first_use"} {
		if n := o.field(way); n != nil {
			ways, at[way] = append(ways, way), n
		}
	}
	zone, anchor, from := o.field("time_zone"), o.field("anchor"), o.field("from")
	if zone != nil {
		r.Zone = o.zone(zone, o.at("time_zone"))
	}
	switch len(ways) {
	case 0:
		o.missing = append(o.missing, missing{"calendar", "hour, day, week, month, year or billing, or cron, every or after_first_use in its place"})
		o.done()
		return r
	case 1:
		o.resetBy(&r, ways[0], at[ways[0]])
	case 2:
		o.fail(o.n, o.path, "both %s and %s; a limit resets in one way, keep one", ways[0], ways[1])
	default:
		o.fail(o.n, o.path, "%s at once; a limit resets in one way, keep one", listed(ways, "and"))
	}
	if anchor != nil {
		day, _ := o.whole(anchor, o.at("anchor"), 1, 31)
		r.Anchor = int(day)
		if r.Kind != CalendarBilling && len(ways) == 1 {
			o.fail(anchor, o.at("anchor"), "belongs to calendar: billing; leave it out")
		}
	}
	switch {
	case len(ways) != 1:
	case from != nil && r.Kind != Every:
		o.fail(from, o.at("from"), "belongs to every; leave it out")
	case from != nil:
		in := r.Zone
		if in == nil {
			in = time.UTC
		}
		r.From, _ = o.date(from, o.at("from"), in)
	case r.Kind == Every:
		o.missing = append(o.missing, missing{"from", "the first day, such as 2026-01-01"})
	}
	if zone != nil && r.Kind == AfterFirstUse {
		o.fail(zone, o.at("time_zone"), "after_first_use looks at no calendar; leave it out")
	}
	o.done()
	return r
}

func (o *object) resetBy(r *Reset, way string, n *node) {
	path := o.at(way)
	switch way {
	case "calendar":
		r.Kind = pick(o.reader, n, path, 0,
			option[ResetKind]{"hour", CalendarHour}, option[ResetKind]{"day", CalendarDay},
			option[ResetKind]{"week", CalendarWeek}, option[ResetKind]{"month", CalendarMonth},
			option[ResetKind]{"year", CalendarYear}, option[ResetKind]{"billing", CalendarBilling})
	case "cron":
		r.Kind = Cron
		if s, ok := o.reader.text(n, path); ok {
			r.Schedule = s
			if why := cronFault(s); why != "" {
				o.fail(n, path, "%q is no schedule: %s; write minute, hour, day, month and weekday, such as \"0 0 1 * *\"", short(s), why)
			}
		}
		o.unsupported(n, path, resetCron)
	case "every":
		r.Kind = Every
		r.Length, _ = o.reader.duration(n, path, time.Minute, longestWindow)
		o.unsupported(n, path, resetEvery)
	case "after_first_use":
		r.Kind = AfterFirstUse
		// Whole seconds, at most 10⁹ (S6).
		r.Length, _ = o.reader.duration(n, path, time.Second, 1_000_000_000*time.Second)
		if r.Length%time.Second != 0 {
			o.fail(n, path, "%s is no whole number of seconds; write one", n.text)
		}
		o.unsupported(n, path, resetAfterFirstUse)
	}
}

// cronFault tells what is wrong with a cron schedule of five fields, or "".
func cronFault(s string) string {
	fields := strings.Split(s, " ")
	if len(fields) != 5 {
		return fmt.Sprintf("it has %d fields, not 5 with one space between", len(fields))
	}
	for i, name := range []string{"minute", "hour", "day", "month", "weekday"} {
		lowest := [...]int{0, 0, 1, 1, 0}[i]
		highest := [...]int{59, 23, 31, 12, 7}[i]
		for part := range strings.SplitSeq(fields[i], ",") {
			span, step, hasStep := strings.Cut(part, "/")
			if n, err := strconv.Atoi(step); hasStep && (err != nil || n < 1 || n > highest) {
				return fmt.Sprintf("%s %q has a bad step", name, part)
			}
			if span == "*" {
				continue
			}
			from, to, hasTo := strings.Cut(span, "-")
			if !hasTo {
				to = from
			}
			a, errA := strconv.Atoi(from)
			b, errB := strconv.Atoi(to)
			if errA != nil || errB != nil || a < lowest || b > highest || a > b {
				return fmt.Sprintf("%s %q is not within %d-%d", name, part, lowest, highest)
			}
		}
	}
	return ""
}

// defaultLease is the lease of document 000 (A21 to A31).
func defaultLease() LeaseRule {
	return LeaseRule{
		First: 10, MaxShare: 1000, Demand: 10 * time.Second,
		RenewAtUsed: 7000, RenewAfter: 45 * time.Second, UsableFor: 60 * time.Second,
	}
}

func (o *object) lease(l *LeaseRule) {
	if n := o.field("first"); n != nil {
		if v, ok := o.whole(n, o.at("first"), 1, MaxAmount); ok {
			l.First = v
		}
	}
	l.MaxShare = o.percent("max_share", l.MaxShare, 100, 10000)
	l.RenewAtUsed = o.percent("renew_at_used", l.RenewAtUsed, 100, 10000)
	// A lease that is spent for longer than a minute outlives a change of terms
	// by as much (A31, A44).
	l.UsableFor = o.duration("usable_for", l.UsableFor, time.Second, time.Minute)
	l.RenewAfter = o.duration("renew_after", l.RenewAfter, 100*time.Millisecond, time.Minute)
	l.Demand = o.duration("demand", l.Demand, time.Second, time.Minute)
	if l.RenewAfter >= l.UsableFor {
		o.fail(o.n, o.at("renew_after"), "%s is not before usable_for %s, or a lease ends while nobody has renewed it; write less", shownDuration(l.RenewAfter), shownDuration(l.UsableFor))
	}
	if l.Demand > l.UsableFor {
		o.fail(o.n, o.at("demand"), "%s is longer than usable_for %s, or a lease ends with units that nobody had time to spend; write less", shownDuration(l.Demand), shownDuration(l.UsableFor))
	}
	if n := o.field("settle_after"); n != nil {
		const settled = 30 * time.Minute // the life of a replica's liable key
		d, ok := o.reader.duration(n, o.at("settle_after"), time.Minute, 24*time.Hour)
		if ok && d != settled {
			o.unsupported(n, o.at("settle_after"), leaseSettleAfter)
		}
	}
	if n := o.field("exact_below"); n != nil {
		o.reader.percent(n, o.at("exact_below"), 0, 10000)
		o.unsupported(n, o.at("exact_below"), leaseExactBelow)
	}
	o.done()
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
				o.fail(n, fmt.Sprintf("%s[%d]", o.at("limits"), i), "%q is no limit of this plan; the limits are %s", short(name), listed(limitNames(limits), "and"))
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
		return fmt.Sprintf("%s is no rate and has no burst; leave burst out", ov.Limit)
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

func (o *object) routes() *Routes {
	rs := &Routes{}
	if n := o.require("app", "the app that the rules belong to"); n != nil {
		rs.App, _ = o.readName(n, o.at("app"))
	}
	names := map[string]bool{}
	if n := o.require("rules", "a list of rules"); n != nil {
		o.elements(n, o.at("rules"), func(item *node, path string) {
			f := o.object(item, path)
			rule := f.rule()
			if rule.Name != "" && names[rule.Name] {
				o.fail(item, join(path, "name"), "another rule is called %s; choose another name", rule.Name)
			}
			names[rule.Name] = true
			rs.Rules = append(rs.Rules, rule)
		})
	}
	return rs
}

func (o *object) rule() Rule {
	rule := Rule{Name: o.name("name"), Weight: 1}
	if n := o.require("match", "which requests, such as {path: /v1/things}"); n != nil {
		o.object(n, o.at("match")).match(&rule)
	}
	weight := o.field("weight")
	if weight != nil {
		if v, ok := o.amount(weight, o.at("weight")); ok {
			rule.Weight = v
		}
	}
	rule.Meter, rule.Check, rule.Reason = o.exemption()
	if !rule.Meter && weight != nil && rule.Weight > 0 {
		o.fail(weight, o.at("weight"), "costs nothing with meter: false; leave one of them out")
	}
	if n := o.field("units"); n != nil {
		o.entries(n, o.at("units"), func(key, value *node, path string) {
			u := Reserve{Unit: key.text}
			o.checkName(key, path, key.text)
			f := o.object(value, path)
			u.Amount = f.reserve()
			f.done()
			if key.text == DefaultUnit {
				o.fail(key, path, "requests are reserved by weight; write weight")
				return
			}
			rule.Units = append(rule.Units, u)
		})
		if !rule.Meter {
			o.fail(n, o.at("units"), "cost nothing with meter: false; leave one of them out")
		}
	}
	o.done()
	return rule
}

// reserve reads what a route does with one unit.
func (o *object) reserve() int64 {
	amount, most := int64(0), int64(MaxAmount)
	if n := o.require("reserve", "how many units a request sets aside"); n != nil {
		amount, _ = o.amount(n, o.at("reserve"))
	}
	if n := o.field("max"); n != nil {
		if v, ok := o.amount(n, o.at("max")); ok {
			most = v
		}
		if most < amount {
			o.fail(n, o.at("max"), "is below reserve %d; write more", amount)
		}
		o.unsupported(n, o.at("max"), unitsMax)
	}
	if n := o.field("use"); n != nil {
		o.elements(n, o.at("use"), func(item *node, path string) { o.object(item, path).useSource() })
		o.unsupported(n, o.at("use"), unitsUse)
	}
	if n := o.field("unreported"); n != nil {
		pick(o.reader, n, o.at("unreported"), 0, option[int]{"reserve", 1}, option[int]{"weight", 2}, option[int]{"zero", 3})
		o.unsupported(n, o.at("unreported"), unitsUnreported)
	}
	return amount
}

// useSource reads where the number of used units comes from.
func (o *object) useSource() {
	early := "says who calls, not how much was used; use response_header, response_trailer, metadata or report"
	o.foreign = map[string]string{
		"api_key": early, "request_header": early, "jwt_claim": early, "peer_spiffe_id": early, "context_extension": early,
	}
	if len(o.n.keys) != 1 {
		o.fail(o.n, o.path, "names %d sources; write one to each element", len(o.n.keys))
	}
	for _, name := range []string{"response_header", "response_trailer"} {
		if n := o.field(name); n != nil {
			if s, ok := o.reader.text(n, o.at(name)); ok {
				o.header(n, o.at(name), s)
			}
		}
	}
	o.text("metadata")
	if n := o.field("report"); n != nil {
		if v, ok := o.reader.bool(n, o.at("report")); ok && !v {
			o.fail(n, o.at("report"), "false names no source; write true or leave it out")
		}
	}
	o.done()
}

func (o *object) match(rule *Rule) {
	rule.Methods = o.texts("methods")
	for i, m := range rule.Methods {
		if strings.Trim(m, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			o.fail(o.n, fmt.Sprintf("%s[%d]", o.at("methods"), i), "%q is no method; write one such as %s, in capitals", short(m), http.MethodPost)
		}
	}
	var ways []string
	if n := o.field("path"); n != nil {
		ways = append(ways, "path")
		rule.Path = o.routePath(n, o.at("path"), true)
	}
	if n := o.field("path_prefix"); n != nil {
		ways = append(ways, "path_prefix")
		rule.PathPrefix = o.routePath(n, o.at("path_prefix"), false)
	}
	if n := o.field("grpc_method"); n != nil {
		ways = append(ways, "grpc_method")
		s, ok := o.reader.text(n, o.at("grpc_method"))
		if ok && !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*/[A-Za-z_][A-Za-z0-9_]*$`).MatchString(s) {
			o.fail(n, o.at("grpc_method"), "%q is no method; write package.Service/Method", short(s))
		} else {
			rule.GRPCMethod = s
		}
	}
	if len(ways) > 1 {
		o.fail(o.n, o.path, "%s at once; a rule matches in one way, keep one", listed(ways, "and"))
	}
	if len(ways) == 0 && o.n.kind == mapNode && rule.Methods == nil && len(o.n.keys) == 0 {
		o.fail(o.n, o.path, "matches nothing; write path, path_prefix, grpc_method or methods")
	}
	o.done()
}

// routePath reads a path as it must be after normalisation, or no request could
// match it.
func (o *object) routePath(n *node, path string, names bool) string {
	s, ok := o.reader.text(n, path)
	if !ok {
		return ""
	}
	if !strings.HasPrefix(s, "/") {
		o.fail(n, path, "%q is no path; write /%s", short(s), short(s))
		return ""
	}
	normal, ok := normalize(s)
	switch {
	case !ok:
		o.fail(n, path, "%q can not be normalised, so no request would match; write a path without #, \\, spaces and broken escapes", short(s))
		return ""
	case normal != s:
		o.fail(n, path, "%q is not how requests are compared; write %s", short(s), short(normal))
		return ""
	}
	for segment := range strings.SplitSeq(s[1:], "/") {
		isName := len(segment) > 2 && segment[0] == '{' && segment[len(segment)-1] == '}' && !strings.ContainsAny(segment[1:len(segment)-1], "{}")
		if strings.ContainsAny(segment, "{}*") && !(isName && names) {
			where := "in path alone, "
			if names {
				where = ""
			}
			o.fail(n, path, "%q: a pattern is a whole segment {name}, %sand * is not one; write /things/{id}", short(s), where)
			return ""
		}
	}
	return s
}
