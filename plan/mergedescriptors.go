package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// MergeRateLimits makes one document of all those of a domain, in the order of their
// files, and returns the domains by name. A rule that two of them have is a problem
// which names both files; only where neither has more to say than that others lie
// below it, those are merged in turn. A domain with a problem is not returned.
func MergeRateLimits(all []*RateLimits) ([]*RateLimits, []Problem) {
	var merged []*RateLimits
	var problems []Problem
	for _, docs := range byDomain(all) {
		m := *docs[0]
		before := len(problems)
		for _, doc := range docs[1:] {
			from := len(problems)
			m.Rules = mergeRules(m.Rules, doc.Rules, &problems)
			for i := range problems[from:] {
				problems[from+i].Index, problems[from+i].Name = doc.index, doc.Domain
			}
		}
		if len(problems) == before {
			merged = append(merged, &m)
		}
	}
	return merged, problems
}

// RepeatedDomains returns a problem for each document of a domain that another one
// before it has, in the order of the files.
func RepeatedDomains(all []*RateLimits) []Problem {
	var problems []Problem
	for _, docs := range byDomain(all) {
		for _, doc := range docs[1:] {
			problems = append(problems, Problem{
				File: doc.File, Line: doc.at.line, Col: doc.at.col, Index: doc.index, Name: doc.Domain, Path: "domain",
				Message: fmt.Sprintf("%s is in %s already; keep one, or merge them with --merge-domains", label(doc.Domain), docs[0].place()),
			})
		}
	}
	return problems
}

func (l *RateLimits) place() string { return fmt.Sprintf("%s:%d", l.File, l.at.line) }

// byDomain divides documents by domain, those of each one in the order of their files.
func byDomain(all []*RateLimits) [][]*RateLimits {
	var domains [][]*RateLimits
	for _, l := range slices.SortedStableFunc(slices.Values(all), func(a, b *RateLimits) int {
		return cmp.Or(strings.Compare(a.Domain, b.Domain), strings.Compare(a.File, b.File), cmp.Compare(a.index, b.index))
	}) {
		last := len(domains) - 1
		if last < 0 || domains[last][0].Domain != l.Domain {
			domains = append(domains, []*RateLimits{l})
			continue
		}
		domains[last] = append(domains[last], l)
	}
	return domains
}

// mergeRules returns the rules of both levels and leaves them as they are.
func mergeRules(a, b []DescriptorRule, problems *[]Problem) []DescriptorRule {
	all := slices.Clone(a)
	at := make(map[DescriptorSpot]int, len(a))
	for i := range a {
		at[a[i].Spot()] = i
	}
	for i := range b {
		j, twice := at[b[i].Spot()]
		switch {
		case !twice:
			all = append(all, b[i])
		case all[j].onlyHolds() && b[i].onlyHolds() && all[j].ShareThreshold == b[i].ShareThreshold && all[j].ValueToMetric == b[i].ValueToMetric:
			all[j].Rules = mergeRules(all[j].Rules, b[i].Rules, problems)
		default:
			*problems = append(*problems, b[i].repeats(&all[j]))
		}
	}
	return all
}

// onlyHolds tells whether a rule says nothing but that others lie below it.
func (r *DescriptorRule) onlyHolds() bool {
	return r.Limit == nil && len(r.Rules) > 0 && !r.Shadow && !r.QuotaMode && !r.DetailedMetric && len(r.Metadata) == 0
}

func (r *DescriptorRule) repeats(first *DescriptorRule) Problem {
	return Problem{
		File: r.file, Line: r.at.line, Col: r.at.col, Path: r.Path,
		Message: fmt.Sprintf("is in %s:%d already; keep one", first.file, first.at.line),
	}
}
