package plan

import (
	"fmt"
	"slices"
)

// mostDocuments is how many documents a domain may have: a quota is lent under the condition
// that all of them are as they were, and etcd takes 128 conditions in one transaction.
const mostDocuments = 50

// rateLimits checks a document of descriptors against the others of its domain.
func (k *checker) rateLimits(l *RateLimits) {
	if k.c.isFull(l.Domain, k.doc.Name) {
		k.told(Problem{
			Line: l.at.line, Col: l.at.col, Path: "domain",
			Message: fmt.Sprintf("%s has %d documents already, as many as a domain may have; put these descriptors into one of them", label(l.Domain), mostDocuments),
		})
		return
	}
	others := slices.DeleteFunc(k.c.domainEntries(l.Domain, k.doc.Name), func(e *entry) bool { return e.doc == nil })
	said := map[pos]bool{}
	for _, e := range others {
		if e.doc.RateLimits.Settings != nil && l.Settings != nil {
			k.told(l.settingsTwice(e.doc.line(e.doc.RateLimits.settings.line)))
		}
		var clashes []clash
		mergeRules(e.doc.RateLimits.Rules, l.Rules, &clashes)
		for _, c := range clashes {
			if !said[c.second.at] {
				said[c.second.at] = true
				k.told(c.problem(e.doc.line(c.first.at.line)))
			}
		}
	}
	k.replaced(l, others)
}

// isFull reports whether a domain has as many documents as it may, without the one called but.
func (c *Catalog) isFull(domain, but string) bool {
	n := 0
	for name := range c.siblings[domain] {
		if name != but && c.now.rateLimits.entries[name].doc != nil {
			n++
		}
		if n == mostDocuments {
			return true
		}
	}
	return false
}

// told adds a problem whose place and path are known.
func (k *checker) told(p Problem) {
	p.File, p.Kind, p.Name = k.doc.file, k.doc.Kind, k.doc.Name
	k.problems = append(k.problems, p)
}

// line names a line of a document: by its file, or by its key if it is stored.
func (d *Document) line(n int) string {
	if d.file != "" {
		return fmt.Sprintf("%s:%d", d.file, n)
	}
	return fmt.Sprintf("line %d of rate limits %s", n, d.Name)
}

// replaced warns of the names of limits to replace that no limit of the domain has.
// What should have been replaced is counted as well then.
func (k *checker) replaced(l *RateLimits, others []*entry) {
	all := []*RateLimits{l}
	for _, e := range others {
		all = append(all, e.doc.RateLimits)
	}
	for _, p := range l.replacesUnknown(all) {
		k.told(p)
	}
}

// UnknownReplaces returns a warning for each name of a limit to replace that no limit of
// its domain has, in all the documents of some domains.
func UnknownReplaces(all []*RateLimits) []Problem {
	var problems []Problem
	for _, l := range all {
		var domain []*RateLimits
		for _, other := range all {
			if other.Domain == l.Domain {
				domain = append(domain, other)
			}
		}
		for _, p := range l.replacesUnknown(domain) {
			p.File, p.Index, p.Kind, p.Name = l.File, l.index, KindRateLimits, l.Domain
			problems = append(problems, p)
		}
	}
	return problems
}

// replacesUnknown returns a warning for each name of a limit to replace that none of a
// domain has. Names like it are looked for a few times only: to compare all with all takes
// long.
func (l *RateLimits) replacesUnknown(domain []*RateLimits) []Problem {
	const guesses = 20
	var problems []Problem
	var known []string // sorted once some rule replaces another
	l.eachRule(func(r *DescriptorRule) {
		if r.Limit == nil || len(r.Limit.Replaces) == 0 {
			return
		}
		if known == nil {
			known = namedLimits(domain)
		}
		for _, name := range r.Limit.Replaces {
			if _, found := slices.BinarySearch(known, name); found {
				continue
			}
			advice := "give one that name"
			if len(problems) < guesses {
				if near := nearest(name, known); near != "" {
					advice = "did you mean " + near + "?"
				}
			}
			problems = append(problems, Problem{
				Line: r.at.line, Col: r.at.col, Path: r.Path + ": rate_limit.replaces", Warning: true,
				Message: fmt.Sprintf("no limit of domain %s is called %s; %s", label(l.Domain), label(name), advice),
			})
		}
	})
	return problems
}

// namedLimits returns the names of all limits of a domain, sorted.
func namedLimits(domain []*RateLimits) []string {
	names := []string{}
	for _, l := range domain {
		l.eachRule(func(r *DescriptorRule) {
			if r.Limit != nil && r.Limit.Name != "" {
				names = append(names, r.Limit.Name)
			}
		})
	}
	slices.Sort(names)
	return names
}

// eachRule calls each for all rules, those above others before them.
func (l *RateLimits) eachRule(each func(*DescriptorRule)) { eachRule(l.Rules, each) }

func eachRule(rules []DescriptorRule, each func(*DescriptorRule)) {
	for i := range rules {
		each(&rules[i])
		eachRule(rules[i].Rules, each)
	}
}
