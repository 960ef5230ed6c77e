package plan

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

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
		r.From = o.date(from, o.at("from"), in)
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
			o.fail(n, path, "%s is not a whole number of seconds; write one", n.text)
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

// defaultLease is the lease of a quota that says nothing of it (A21 to A31).
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
	l.ExactBelow = o.percent("exact_below", 0, 0, 10000)
	// Envoy gives up long before half a minute, and a report an hour late would be a
	// surprise on a bill.
	l.Wait = o.duration("wait", 0, 10*time.Millisecond, 30*time.Second)
	l.ReportEvery = o.duration("report_every", 0, time.Second, time.Minute)
	o.done()
}
