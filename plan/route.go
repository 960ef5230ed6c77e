package plan

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// A routeTable finds the rule of a request. It is a tree of path segments, so
// that finding takes as long as the path, not as there are rules.
type routeTable struct {
	root     routeNode
	rules    []*Rule
	named    map[string]*Rule
	plain    *Rule // for requests that no rule matches
	heaviest *Rule // for paths that cannot be normalised
}

// A routeNode is reached by one run of segments.
type routeNode struct {
	literal map[string]*routeNode
	any     *routeNode // "{name}"
	exact   []routeRef // rules that end here
	here    []routeRef // rules for all that begins here, this path included
	below   []routeRef // rules for all that goes on from here
	// first is the lowest index of a rule here or below: nothing else can win.
	first int
}

// A routeRef is one rule; the lower index wins.
type routeRef struct {
	index   int
	methods []string
}

// newRouteTable compiles the rules of an app, of all its Routes documents in the
// order of their names.
func newRouteTable(all []*Routes) *routeTable {
	t := &routeTable{
		root:  routeNode{first: math.MaxInt},
		named: map[string]*Rule{},
		plain: &Rule{Weight: 1, Meter: true, Check: true},
	}
	t.heaviest = t.plain
	for _, rs := range all {
		for i := range rs.Rules {
			rule := &rs.Rules[i]
			t.insert(rule, len(t.rules))
			t.rules = append(t.rules, rule)
			if _, ok := t.named[rule.Name]; !ok && rule.Name != "" {
				t.named[rule.Name] = rule
			}
			if rule.Meter && rule.Check && heavier(rule, t.heaviest) {
				t.heaviest = rule
			}
		}
	}
	return t
}

// heavier tells whether a costs more than b: by weight, then by all units
// together.
func heavier(a, b *Rule) bool {
	sum := func(r *Rule) (n uint64) {
		for _, u := range r.Units {
			n += uint64(u.Amount)
		}
		return n
	}
	return cmp.Or(cmp.Compare(a.Weight, b.Weight), cmp.Compare(sum(a), sum(b))) > 0
}

// A shape is what a rule matches: segments, and whether more may follow.
type shape struct {
	segments []string
	patterns bool // "{name}" stands for any segment
	more     rest
}

// rest tells what may follow the segments of a shape.
type rest int

const (
	nothing  rest = iota // the path ends
	anything             // the path ends or goes on
	further              // the path goes on
)

func (r *Rule) shape() shape {
	switch {
	case r.GRPCMethod != "":
		return shape{segments: strings.Split(r.GRPCMethod, "/")}
	case r.Path != "":
		return shape{segments: strings.Split(r.Path[1:], "/"), patterns: true}
	case r.PathPrefix != "":
		segments := strings.Split(r.PathPrefix[1:], "/")
		if last := len(segments) - 1; segments[last] == "" {
			return shape{segments: segments[:last], more: further}
		}
		return shape{segments: segments, more: anything}
	}
	return shape{more: anything}
}

func isPattern(segment string) bool { return strings.HasPrefix(segment, "{") }

func (t *routeTable) insert(rule *Rule, index int) {
	s := rule.shape()
	n := &t.root
	n.first = min(n.first, index)
	for _, segment := range s.segments {
		if s.patterns && isPattern(segment) {
			if n.any == nil {
				n.any = &routeNode{first: index}
			}
			n = n.any
			continue
		}
		next := n.literal[segment]
		if next == nil {
			if n.literal == nil {
				n.literal = map[string]*routeNode{}
			}
			next = &routeNode{first: index}
			n.literal[segment] = next
		}
		n = next
	}
	ref := routeRef{index, rule.Methods}
	switch s.more {
	case nothing:
		n.exact = append(n.exact, ref)
	case anything:
		n.here = append(n.here, ref)
	case further:
		n.below = append(n.below, ref)
	}
}

// find returns the first rule that matches.
func (t *routeTable) find(method, path string) *Rule {
	rest, ok := normalize(path)
	switch {
	case path == "*": // OPTIONS *
		rest = ""
	case !ok:
		return t.heaviest
	}
	if best := t.root.find(method, rest, math.MaxInt); best < len(t.rules) {
		return t.rules[best]
	}
	return t.plain
}

// find returns the lowest index below best of a rule for the rest of a path, or
// best.
func (n *routeNode) find(method, rest string, best int) int {
	if n.first >= best {
		return best
	}
	best = lowest(n.here, method, best)
	if rest == "" {
		return lowest(n.exact, method, best)
	}
	best = lowest(n.below, method, best)
	segment := rest[1:]
	if end := strings.IndexByte(segment, '/'); end >= 0 {
		segment, rest = segment[:end], segment[end:]
	} else {
		rest = ""
	}
	if next := n.literal[segment]; next != nil {
		best = next.find(method, rest, best)
	}
	if n.any != nil && segment != "" {
		best = n.any.find(method, rest, best)
	}
	return best
}

func lowest(refs []routeRef, method string, best int) int {
	for i := range refs {
		if refs[i].index >= best {
			return best
		}
		if len(refs[i].methods) == 0 || slices.Contains(refs[i].methods, method) {
			return refs[i].index
		}
	}
	return best
}

// covers tells whether r matches whatever other matches.
func (r *Rule) covers(other *Rule) bool {
	if len(r.Methods) > 0 {
		if len(other.Methods) == 0 {
			return false
		}
		for _, m := range other.Methods {
			if !slices.Contains(r.Methods, m) {
				return false
			}
		}
	}
	return r.shape().covers(other.shape())
}

func (s shape) covers(t shape) bool {
	if len(s.segments) > len(t.segments) {
		return false
	}
	for i, segment := range s.segments {
		other := t.segments[i]
		anyOther := t.patterns && isPattern(other)
		switch {
		case s.patterns && isPattern(segment):
			if other == "" {
				return false
			}
		case anyOther || segment != other:
			return false
		}
	}
	longer := len(t.segments) > len(s.segments)
	switch s.more {
	case anything:
		return true
	case further:
		return longer || t.more == further
	case nothing:
	}
	return !longer && t.more == nothing
}
