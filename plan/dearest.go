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
	all := &Rule{Name: first.Name, Settles: first.Name}
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
			all.Settles += "," + unit + "=" + dear[unit].settledBy(unit)
		}
	}
	if !strings.Contains(all.Settles, ",") {
		all.Settles += "," // it is none of them
	}
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// settledBy returns the name of the rule that says how a unit is settled.
func (r *Rule) settledBy(unit string) string {
	_, parts, made := strings.Cut(r.Settles, ",")
	if !made {
		return r.Name
	}
	for part := range strings.SplitSeq(parts, ",") {
		if of, name, _ := strings.Cut(part, "="); of == unit {
			return name
		}
	}
	return ""
}

// settling returns the rule by which requests are settled that were charged by one of
// this Settles, as far as the rules are there now; nil if none is.
func (t *routeTable) settling(settles string) *Rule {
	name, parts, made := strings.Cut(settles, ",")
	if !made {
		return t.named[name]
	}
	all := &Rule{Name: name, Settles: settles, Meter: true, Check: true}
	if first := t.named[name]; first != nil {
		all.Weight = first.Weight
	}
	for part := range strings.SplitSeq(parts, ",") {
		unit, name, _ := strings.Cut(part, "=")
		if r := t.named[name]; r != nil {
			all.Weight = max(all.Weight, r.Weight)
			if _, res := r.takes(unit); res != nil {
				all.Units = append(all.Units, *res)
			}
		}
	}
	return all
}

// Settlement returns by what [Snapshot.RouteToSettle] finds the rule again: its name, and
// for one that is made of several the names of those that say what was used. [RouteName]
// returns the name alone.
func (r *Rule) Settlement() string {
	if r.Settles != "" {
		return r.Settles
	}
	return r.Name
}

// RouteName returns the name of the rule that a settlement was returned for.
func RouteName(settlement string) string {
	name, _, _ := strings.Cut(settlement, ",")
	return name
}
