package plan

import (
	"math"
	"slices"
	"strings"
)

// An asked is what of a request rules match beside the path.
type asked struct {
	method string
	host   []byte // bare, in lower case, its last maxHostKey bytes; nil where no rule asks for it
	fold   bool   // capitals of the path do not count
}

// find returns the rule for a request, see [Snapshot.Route]. Named, if not nil, is the
// rule that the request's route names: then it is the one, unless the path may be read
// in several ways.
func (t *routeTable) find(host, method, path string, named *Rule) *Rule {
	q := asked{method: method}
	if t.hosted {
		var room [maxHostKey]byte
		q.host = lowerHost(room[:0], bareHost(host))
	}
	bare, found := inspect(path)
	one := found == 0 || path == "*" // OPTIONS *
	switch {
	case one && named != nil:
		return named
	case path == "*":
		return t.first(&q, "", 0)
	}
	var f fits
	if named != nil {
		f.add(named)
	}
	if one {
		t.look(&q, bare, &f)
		return f.dearest(nil)
	}
	return t.findAny(&q, host, bare, found, &f)
}

// findAny is find for a path that may be read in several ways.
func (t *routeTable) findAny(q *asked, host, path string, found trait, f *fits) *Rule {
	if found&(unreadable|hostile) != 0 {
		return t.dearestOf(host, f)
	}
	readings := t.paths.readings(path)
	doubtful := readings.dots || t.paths.doubtful(found)
	if named := f.n > 0; named && !doubtful {
		return f.rules[0]
	}
	for _, p := range readings.all {
		t.look(q, p, f)
	}
	if readings.over || f.over {
		return t.dearestOf(host, f)
	}
	r := f.dearest(t.plain)
	if doubtful && r.exempt() && !t.isForAll(q.method, r) {
		f.add(t.plain)
		r = f.dearest(nil)
	}
	return r
}

// isForAll reports whether a rule is the one for a method whatever the path and the host
// are, so that no reading can lead elsewhere.
func (t *routeTable) isForAll(method string, r *Rule) bool {
	for _, first := range t.rules {
		if len(first.Methods) == 0 || slices.Contains(first.Methods, method) {
			return first == r && len(r.Hosts) == 0 && len(r.shape().segments) == 0
		}
	}
	return false
}

// dearestOf returns the dearest of all rules for a host, and of f.
func (t *routeTable) dearestOf(host string, f *fits) *Rule {
	all := append([]*Rule{t.dearest}, f.rules[:f.n]...)
	for _, r := range t.dearer {
		if anyHost(r.Hosts, bareHost(host)) {
			all = append(all, r)
		}
	}
	return dearest(all, nil)
}

// look adds the rules that one reading of a path fits: the first that matches by each
// way of comparing that the app's servers may have.
func (t *routeTable) look(q *asked, path string, f *fits) {
	folds, cuts := loosely(t.paths.CaseIgnored), loosely(t.paths.TrailingSlashCut)
	if folds.both && !t.capitals && !hasCapitals(path) {
		folds.both = false
	}
	if cuts.both && !t.slashes && !strings.HasSuffix(path, "/") {
		cuts.both = false
	}
	r := t.first(q, path, folds.first*folded+cuts.first*cut)
	f.add(r)
	if !folds.both && !cuts.both || r.Path == path { // a rule that spells the path is the one
		return
	}
	if cuts.both {
		f.add(t.first(q, path, folds.first*folded+cut))
	}
	if folds.both {
		f.add(t.first(q, path, folded+cuts.first*cut))
	}
	if folds.both && cuts.both {
		f.add(t.first(q, path, folded+cut))
	}
}

// ways are the values of one way to leave something out: first, and 1 too if both.
type ways struct {
	first int
	both  bool
}

func loosely(s Said) ways {
	switch s {
	case Unsaid:
		return ways{both: true}
	case Yes:
		return ways{first: 1}
	case No:
	}
	return ways{}
}

func hasCapitals(s string) bool {
	for i := range len(s) {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return true
		}
	}
	return false
}

// first returns the first rule that matches a path in one of the trees.
func (t *routeTable) first(q *asked, path string, loose int) *Rule {
	if loose&cut != 0 {
		path = strings.TrimSuffix(path, "/")
	}
	q.fold = loose&folded != 0
	if best := t.trees[loose].find(q, path, math.MaxInt); best < len(t.rules) {
		return t.rules[best]
	}
	return t.plain
}

// find returns the lowest index below best of a rule for the rest of a path, or
// best.
func (n *routeNode) find(q *asked, rest string, best int) int {
	if n.first >= best {
		return best
	}
	best = q.lowest(&n.here, best)
	if rest == "" {
		return q.lowest(&n.exact, best)
	}
	best = q.lowest(&n.below, best)
	segment := rest[1:]
	if end := strings.IndexByte(segment, '/'); end >= 0 {
		segment, rest = segment[:end], segment[end:]
	} else {
		rest = ""
	}
	if next := n.next(segment, q.fold); next != nil {
		best = next.find(q, rest, best)
	}
	if n.any != nil && segment != "" {
		best = n.any.find(q, rest, best)
	}
	return best
}

// next returns the node of a literal segment, or nil.
func (n *routeNode) next(segment string, fold bool) *routeNode {
	if !fold || !hasCapitals(segment) {
		return n.literal[segment]
	}
	var room [64]byte
	if len(segment) > len(room) {
		return n.literal[strings.ToLower(segment)]
	}
	lower := room[:copy(room[:], segment)]
	for i, c := range lower {
		if 'A' <= c && c <= 'Z' {
			lower[i] = c + 'a' - 'A'
		}
	}
	return n.literal[string(lower)]
}

// lowest returns the lowest index below best of refs that match, or best.
func (q *asked) lowest(refs *routeRefs, best int) int {
	best = q.first(refs.all, best)
	if refs.byHost == nil {
		return best
	}
	best = q.first(refs.byHost[string(q.host)], best)
	for i, c := range q.host {
		if c == '.' {
			best = q.first(refs.byHost[string(q.host[i:])], best)
		}
	}
	return best
}

func (q *asked) first(refs []routeRef, best int) int {
	for i := range refs {
		if refs[i].index >= best {
			return best
		}
		if len(refs[i].methods) == 0 || slices.Contains(refs[i].methods, q.method) {
			return refs[i].index
		}
	}
	return best
}
