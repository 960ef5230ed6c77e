package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// MergeRateLimits makes one document of all those of a domain, in the order of their
// files, and returns the domains by name. A rule or settings that two of them have are a
// problem which names both files; only where neither has more to say than that others lie
// below it, those are merged in turn. A domain with a problem is not returned.
func MergeRateLimits(all []*RateLimits) ([]*RateLimits, []Problem) {
	var merged []*RateLimits
	var problems []Problem
	for _, docs := range byDomain(all) {
		m := *docs[0]
		before := len(problems)
		for _, doc := range docs[1:] {
			for _, p := range m.merge(doc) {
				p.Index, p.Kind, p.Name = doc.index, KindRateLimits, doc.Domain
				problems = append(problems, p)
			}
		}
		if len(problems) == before {
			merged = append(merged, &m)
		}
	}
	return merged, problems
}

// merge adds another document of the domain, and tells what both say.
func (l *RateLimits) merge(doc *RateLimits) (problems []Problem) {
	var clashes []clash
	l.Rules = mergeRules(l.Rules, doc.Rules, &clashes)
	for _, c := range clashes {
		problems = append(problems, c.problem(fmt.Sprintf("%s:%d", c.first.file, c.first.at.line)))
	}
	switch {
	case doc.Settings == nil:
	case l.Settings == nil:
		l.Settings, l.settings, l.settingsFile = doc.Settings, doc.settings, doc.settingsFile
	default:
		problems = append(problems, doc.settingsTwice(fmt.Sprintf("%s:%d", l.settingsFile, l.settings.line)))
	}
	return problems
}

// settingsTwice tells that the settings of the domain are elsewhere as well.
func (l *RateLimits) settingsTwice(place string) Problem {
	return Problem{
		File: l.File, Line: l.settings.line, Col: l.settings.col, Path: "mete",
		Message: "is in " + place + " already, and a domain has its settings once; keep one",
	}
}

// RepeatedDomains returns a problem for each document of a domain that another one
// before it has, in the order of the files.
func RepeatedDomains(all []*RateLimits) []Problem {
	var problems []Problem
	for _, docs := range byDomain(all) {
		for _, doc := range docs[1:] {
			problems = append(problems, Problem{
				File: doc.File, Line: doc.at.line, Col: doc.at.col, Index: doc.index, Kind: KindRateLimits, Name: doc.Domain, Path: "domain",
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

// A clash is a rule that two documents have.
type clash struct{ first, second *DescriptorRule }

// problem tells of the second one, and where the first is.
func (c clash) problem(place string) Problem {
	return Problem{
		File: c.second.file, Line: c.second.at.line, Col: c.second.at.col, Path: c.second.Path,
		Message: "is in " + place + " already; keep one",
	}
}

// mergeAll returns the rules of many documents, two halves at a time: each rule is copied
// a few times, not once for each document behind it.
func mergeAll(docs [][]DescriptorRule) []DescriptorRule {
	if len(docs) == 1 {
		return docs[0]
	}
	half := len(docs) / 2
	return mergeRules(mergeAll(docs[:half]), mergeAll(docs[half:]), new([]clash))
}

// mergeRules returns the rules of both levels and leaves them as they are. Of rules
// that clash it makes one that lifts no limit of either.
func mergeRules(a, b []DescriptorRule, clashes *[]clash) []DescriptorRule {
	all := slices.Clone(a)
	at := make(map[DescriptorSpot]int, len(a))
	for i := range a {
		at[a[i].Spot()] = i
	}
	for i := range b {
		j, twice := at[b[i].Spot()]
		if !twice {
			all = append(all, b[i])
			continue
		}
		first, below := all[j], clashes
		if !first.onlyHolds() || !b[i].onlyHolds() || first.ShareThreshold != b[i].ShareThreshold || first.ValueToMetric != b[i].ValueToMetric {
			*clashes = append(*clashes, clash{&first, &b[i]})
			all[j], below = *stricter(&first, &b[i]), new([]clash) // one word is enough
		}
		all[j].Rules = mergeRules(first.Rules, b[i].Rules, below)
	}
	return all
}

// onlyHolds reports whether a rule says nothing but that others lie below it.
func (r *DescriptorRule) onlyHolds() bool {
	return r.Limit == nil && len(r.Rules) > 0 && !r.Shadow && !r.QuotaMode && !r.DetailedMetric && len(r.Metadata) == 0
}

// stricter returns the one of two rules that lets less through; a if neither does.
func stricter(a, b *DescriptorRule) *DescriptorRule {
	if a.strictness() <= b.strictness() {
		return a
	}
	return b
}

// strictness is what a rule lets through in a second, on average; a rule that refuses
// nothing lets through all, and one in quota mode more than any other.
func (r *DescriptorRule) strictness() float64 {
	if r.Limit == nil || r.Limit.Unlimited || r.Shadow {
		return math.Inf(1)
	}
	const hour, day = 3600, 24 * 3600
	seconds := []float64{1, 60, hour, day, 7 * day, 30 * day, 365 * day}[r.Limit.Unit-UnitSecond]
	rate := float64(r.Limit.Amount) / seconds / float64(r.Limit.Multiplier)
	if r.QuotaMode {
		rate += math.MaxUint32 + 1
	}
	return rate
}
