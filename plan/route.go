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
	hosted   bool    // some rules are for certain hosts
	plain    *Rule   // for requests that no rule matches
	heaviest []*Rule // for paths that cannot be normalised: the first whose hosts match; the last one has none
}

// A routeNode is reached by one run of segments.
type routeNode struct {
	literal map[string]*routeNode
	any     *routeNode // "{name}"
	exact   routeRefs  // rules that end here
	here    routeRefs  // rules for all that begins here, this path included
	below   routeRefs  // rules for all that goes on from here
	// first is the lowest index of a rule here or below: nothing else can win.
	first int
}

// routeRefs are rules for one run of segments: those for all hosts, and those for
// certain ones by hostKey.
type routeRefs struct {
	all    []routeRef
	byHost map[string][]routeRef
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
	for _, rs := range all {
		for i := range rs.Rules {
			rule := &rs.Rules[i]
			t.insert(rule, len(t.rules))
			t.rules = append(t.rules, rule)
			if _, ok := t.named[rule.Name]; !ok && rule.Name != "" {
				t.named[rule.Name] = rule
			}
		}
	}
	t.heaviest = heaviest(t.rules, t.plain)
	return t
}

// heaviest returns the rules that cost the most: those of certain hosts that cost more
// than any rule of all hosts, the dearest first, and then that one.
func heaviest(rules []*Rule, plain *Rule) []*Rule {
	all := []*Rule{plain}
	for _, r := range rules {
		if r.Meter && r.Check {
			all = append(all, r)
		}
	}
	slices.SortStableFunc(all, func(a, b *Rule) int { return costlier(b, a) })
	end := slices.IndexFunc(all, func(r *Rule) bool { return len(r.Hosts) == 0 })
	return slices.Clip(all[:end+1])
}

// costlier compares what rules cost: by requests, then by all units together.
func costlier(a, b *Rule) int {
	sum := func(r *Rule) (n uint64) {
		for _, u := range r.Units {
			n += uint64(u.Amount)
		}
		return n
	}
	return cmp.Or(cmp.Compare(a.requests(), b.requests()), cmp.Compare(sum(a), sum(b)))
}

// requests returns how many requests the rule takes: its weight, or more if it
// reserves more (A37).
func (r *Rule) requests() int64 {
	for i := range r.Units {
		if r.Units[i].Unit == DefaultUnit {
			return max(r.Weight, r.Units[i].Amount)
		}
	}
	return r.Weight
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
	t.hosted = t.hosted || len(rule.Hosts) > 0
	switch s.more {
	case nothing:
		n.exact.add(rule, index)
	case anything:
		n.here.add(rule, index)
	case further:
		n.below.add(rule, index)
	}
}

func (r *routeRefs) add(rule *Rule, index int) {
	ref := routeRef{index, rule.Methods}
	if len(rule.Hosts) == 0 {
		r.all = append(r.all, ref)
		return
	}
	if r.byHost == nil {
		r.byHost = map[string][]routeRef{}
	}
	for _, h := range rule.Hosts {
		r.byHost[hostKey(h)] = append(r.byHost[hostKey(h)], ref)
	}
}

// An asked is what of a request rules match beside the path.
type asked struct {
	method string
	host   []byte // bare, in lower case, its last maxHostKey bytes; nil where no rule asks for it
}

// find returns the first rule that matches.
func (t *routeTable) find(host, method, path string) *Rule {
	rest, ok := normalize(path)
	switch {
	case path == "*": // OPTIONS *
		rest = ""
	case !ok:
		return t.dearest(bareHost(host))
	}
	q := asked{method: method}
	if t.hosted {
		var room [maxHostKey]byte
		q.host = lowerHost(room[:0], bareHost(host))
	}
	if best := t.root.find(&q, rest, math.MaxInt); best < len(t.rules) {
		return t.rules[best]
	}
	return t.plain
}

// dearest returns the rule that costs the most of those for a bare host.
func (t *routeTable) dearest(host string) *Rule {
	i := slices.IndexFunc(t.heaviest, func(r *Rule) bool { return anyHost(r.Hosts, host) })
	return t.heaviest[i]
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
	if next := n.literal[segment]; next != nil {
		best = next.find(q, rest, best)
	}
	if n.any != nil && segment != "" {
		best = n.any.find(q, rest, best)
	}
	return best
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

// covers tells whether r matches whatever other matches.
func (r *Rule) covers(other *Rule) bool {
	return (len(r.Methods) == 0 || len(other.Methods) > 0 && containsAll(r.Methods, other.Methods)) &&
		coversHosts(r.Hosts, other.Hosts) && r.shape().covers(other.shape())
}

func containsAll(all, some []string) bool {
	for _, s := range some {
		if !slices.Contains(all, s) {
			return false
		}
	}
	return true
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
