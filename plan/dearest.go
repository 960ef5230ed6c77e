package plan

import (
	"cmp"
	"slices"
	"strings"
)

// requests returns how many requests the rule takes: its weight, or more if it
// reserves more (A37).
func (r *Rule) requests() int64 {
	n, _ := r.takes(DefaultUnit)
	return n
}

// takes returns what the rule takes of a unit, and what it says of it, nil if nothing.
func (r *Rule) takes(unit string) (n int64, res *Reserve) {
	if !r.Meter {
		return 0, nil
	}
	for i := range r.Units {
		if r.Units[i].Unit == unit {
			res, n = &r.Units[i], r.Units[i].Amount
		}
	}
	if unit == DefaultUnit && r.Weight > n {
		return r.Weight, nil
	}
	return n, res
}

// exempt reports whether the rule is for requests that cost nothing and are never refused.
func (r *Rule) exempt() bool { return !r.Meter && !r.Check }

// flat reports whether what is reserved is what is used.
func (r *Reserve) flat() bool { return r == nil || r.Use == nil }

// asDear reports whether a request by r costs at least as much of every unit as one by
// other, and is checked if that is.
func (r *Rule) asDear(other *Rule) bool {
	if other.Meter && !r.Meter || other.Check && !r.Check || !r.asDearOf(other, DefaultUnit) {
		return false
	}
	return !slices.ContainsFunc(other.Units, func(u Reserve) bool { return !r.asDearOf(other, u.Unit) })
}

func (r *Rule) asDearOf(other *Rule, unit string) bool {
	mine, how := r.takes(unit)
	theirs, otherwise := other.takes(unit)
	return mine > theirs || mine == theirs && (how.flat() || !otherwise.flat())
}

// fits are the rules that a request may be for. The zero fits has none.
type fits struct {
	rules [16]*Rule
	n     int
	over  bool // there are more
}

func (f *fits) add(r *Rule) {
	switch {
	case slices.Contains(f.rules[:f.n], r):
	case f.n == len(f.rules):
		f.over = true
	default:
		f.rules[f.n] = r
		f.n++
	}
}

// dearest is that of the rules of f; last is as there.
func (f *fits) dearest(last *Rule) *Rule {
	if f.n == 1 {
		return f.rules[0]
	}
	return dearest(f.rules[:f.n], last)
}

// dearest returns the rule that costs as much as the dearest of all for each unit, and
// is checked if any of them is: one of them, or one made of them. There is at least one.
// Of those that are equally dear it is the first that is not last.
func dearest(rules []*Rule, last *Rule) *Rule {
	best := -1
	for i, r := range rules {
		dearer := !slices.ContainsFunc(rules, func(other *Rule) bool { return !r.asDear(other) })
		if dearer && (best < 0 || rules[best] == last) {
			best = i
		}
	}
	if best >= 0 {
		return rules[best]
	}
	return together(rules)
}

// together makes one rule of several: of each unit it takes what the dearest of them
// takes, and is settled for it as that one.
func together(rules []*Rule) *Rule {
	first := slices.MaxFunc(rules, func(a, b *Rule) int {
		return cmp.Or(cmp.Compare(a.requests(), b.requests()), btoi(a.Name != "")-btoi(b.Name != ""))
	})
	all := &Rule{Name: first.Name}
	tariffs := []string{first.tariffFor("")}
	dear := map[string]*Rule{}
	for _, r := range rules {
		all.Meter, all.Check = all.Meter || r.Meter, all.Check || r.Check
		if r.Meter {
			all.Weight = max(all.Weight, r.Weight)
		}
		for i := range r.Units {
			dear[r.Units[i].Unit] = r
		}
	}
	for _, unit := range sortedKeys(dear) {
		for _, r := range rules {
			if !dear[unit].asDearOf(r, unit) {
				dear[unit] = r
			}
		}
		_, res := dear[unit].takes(unit)
		if res == nil {
			continue // requests, by a weight
		}
		all.Units = append(all.Units, *res)
		if res.Use != nil {
			tariffs = append(tariffs, unit+"="+dear[unit].tariffFor(unit))
		}
	}
	if len(tariffs) == 1 {
		tariffs = append(tariffs, "") // it is none of them
	}
	all.settledBy(strings.Join(tariffs, ","))
	return all
}

// settledBy makes r be settled by a tariff.
func (r *Rule) settledBy(tariff string) { r.tariff, r.settlement = tariff, r.Name+","+tariff }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// tariffFor returns the id of the tariff that says how a unit is settled, or, of no unit,
// which requests cost.
func (r *Rule) tariffFor(unit string) string {
	id, parts, made := strings.Cut(r.tariff, ",")
	if !made || unit == "" {
		return id
	}
	for part := range strings.SplitSeq(parts, ",") {
		if of, id, _ := strings.Cut(part, "="); of == unit {
			return id
		}
	}
	return ""
}
