package main

import (
	"fmt"
	"strings"

	"github.com/meteproject/mete/plan"
)

// shownNames is how many names a remark lists.
const shownNames = 4

// some lists names, and how many more there are.
func some(names []string) string {
	if more := len(names) - shownNames; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:shownNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

func either(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}

// A tally counts what of one kind documents have, and the domains that have it.
type tally struct {
	n       int
	domains []string
}

func (t *tally) add(n int, domain string) {
	if n == 0 {
		return
	}
	t.n += n
	if last := len(t.domains) - 1; last < 0 || t.domains[last] != domain {
		t.domains = append(t.domains, domain)
	}
}

// limits says how many, of what kind and where: "2 limits of a day (edge) are".
func (t *tally) limits(of string) string {
	return fmt.Sprintf("%s of %s (%s) %s", plural(t.n, "limit"), of, some(t.domains), either(t.n, "is", "are"))
}

// differences says in what the written documents differ from what the same files mean
// to envoyproxy/ratelimit, as far as they tell. Of documents that stay as they are it
// was said before.
func (p *importPlan) differences() []string {
	var buckets, quotas, calendar, free, written tally
	settings := p.settings()
	for _, s := range p.steps {
		if !s.changes() {
			continue
		}
		l := s.doc.RateLimits
		set, own := settings[l.Domain]
		b, q, c := countLimits(l.Rules)
		if !own || set.Replicas == plan.Full {
			buckets.add(b, l.Domain)
		}
		quotas.add(q, l.Domain)
		calendar.add(c, l.Domain)
		if !own || !set.ChargeRefused {
			free.add(b+q, l.Domain)
		}
		written.add(b+q, l.Domain)
	}
	var notes []string
	note := func(t *tally, format string, args ...any) {
		if t.n > 0 {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	note(&quotas, "%s kept in etcd: all replicas share what is left, and a restart loses nothing", quotas.limits("an hour or longer"))
	note(&calendar, "%s by the calendar, weeks from Monday, in UTC unless mete: {time_zone: ...} is written; envoyproxy/ratelimit counts 7, 30 or 365 days from 1970",
		calendar.limits("a week, month or year"))
	note(&buckets, "%s a bucket of each replica that refills steadily; mete: {replicas: split} divides the amount among the replicas",
		buckets.limits("a second or minute"))
	note(&free, "a refused request (%s) uses up nothing, of none of its descriptors; mete: {refused_hits: charged} counts it as envoyproxy/ratelimit does", some(free.domains))
	note(&written, "metrics have mete's names and labels, which docs/from-envoy-ratelimit.md lists")
	if p.several > 0 && written.n > 0 {
		notes = append(notes, fmt.Sprintf("%s with several documents (---): all are imported, where envoyproxy/ratelimit reads the first", plural(p.several, "file")))
	}
	return notes
}

// settings returns what is written under mete in the files, by domain.
func (p *importPlan) settings() map[string]*plan.DomainSettings {
	all := map[string]*plan.DomainSettings{}
	for _, l := range p.rateLimits() {
		if l.Settings != nil {
			all[l.Domain] = l.Settings
		}
	}
	return all
}

// countLimits counts the limits that are buckets, those that are quotas, and of these
// the ones by the calendar.
func countLimits(rules []plan.DescriptorRule) (buckets, quotas, calendar int) {
	for i := range rules {
		if l := rules[i].Limit; l != nil && !l.Unlimited {
			switch l.Unit {
			case plan.UnitSecond, plan.UnitMinute:
				buckets++
			case plan.UnitWeek, plan.UnitMonth, plan.UnitYear:
				quotas++
				calendar++
			case plan.UnitHour, plan.UnitDay:
				quotas++
			}
		}
		b, q, c := countLimits(rules[i].Rules)
		buckets, quotas, calendar = buckets+b, quotas+q, calendar+c
	}
	return buckets, quotas, calendar
}
