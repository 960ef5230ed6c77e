package plan

import (
	"math"
	"slices"
	"strings"
)

// A routeTable finds the rule of a request. It holds trees of path segments, so that
// finding takes as long as the path, not as there are rules.
type routeTable struct {
	paths Paths
	// trees are the rules as they are written, and with what some servers do not
	// compare left out, by folded and cut. Where that changes nothing two are one.
	trees    [4]*routeNode
	capitals bool // folded is another tree
	slashes  bool // cut is another tree

	rules   []*Rule
	named   map[string]*Rule
	tariffs map[string]*Tariff // of the rules, by their ids
	guess   *Tariff            // of requests whose rule is not known
	hosted  bool               // some rules are for certain hosts
	plain   *Rule              // for requests that no rule matches

	// For paths that cannot be read: what costs as much as the dearest rules of all
	// hosts, and the rules of certain hosts that may cost more.
	dearest *Rule
	dearer  []*Rule
}

// What a tree leaves out.
const (
	folded = 1 // capitals
	cut    = 2 // slashes at the end
)

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
// order of their names. A nil app is one that was never valid.
func newRouteTable(app *App, all []*Routes) *routeTable {
	t := &routeTable{
		named: map[string]*Rule{}, tariffs: map[string]*Tariff{},
		plain: &Rule{Weight: 1, Meter: true, Check: true},
	}
	if app != nil {
		t.paths = app.Paths
	}
	for _, rs := range all {
		for i := range rs.Rules {
			rule := new(Rule)
			*rule = rs.Rules[i]
			t.rules = append(t.rules, rule)
			t.hosted = t.hosted || len(rule.Hosts) > 0
			s := rule.shape()
			t.capitals = t.capitals || !slices.Equal(s.segments, s.without(folded).segments)
			t.slashes = t.slashes || !slices.Equal(s.segments, s.without(cut).segments) || s.more == further
			if _, ok := t.named[rule.Name]; !ok && rule.Name != "" {
				t.named[rule.Name] = rule
			}
		}
	}
	t.settle(app)
	t.grow()
	t.price()
	return t
}

// settle gives each rule its tariff.
func (t *routeTable) settle(app *App) {
	if app == nil {
		return
	}
	for _, rule := range slices.Concat(t.rules, []*Rule{t.plain}) {
		tariff := rule.tariffOf(&app.Count)
		id := tariffID(tariff.text())
		if t.tariffs[id] == nil {
			t.tariffs[id] = tariff
		}
		rule.settledBy(id)
	}
	t.guess = guessed(&app.Count, t.rules)
}

// tariffNamed returns the id of the tariff of a rule by its name, "" for requests that no
// rule matches.
func (t *routeTable) tariffNamed(name string) (id string, ok bool) {
	if name == "" {
		return t.plain.tariff, true
	}
	rule := t.named[name]
	if rule == nil {
		return "", false
	}
	return rule.tariff, true
}

// grow builds the trees.
func (t *routeTable) grow() {
	for loose := range t.trees {
		same := loose
		if !t.capitals {
			same &^= folded
		}
		if !t.slashes {
			same &^= cut
		}
		if same < loose {
			t.trees[loose] = t.trees[same]
			continue
		}
		root := &routeNode{first: math.MaxInt}
		for i, rule := range t.rules {
			root.insert(rule, rule.shape().without(loose), i)
		}
		t.trees[loose] = root
	}
}

// price finds out what the dearest rules are.
func (t *routeTable) price() {
	everywhere := []*Rule{t.plain}
	for _, r := range t.rules {
		if len(r.Hosts) == 0 {
			everywhere = append(everywhere, r)
		}
	}
	t.dearest = dearest(everywhere, nil)
	for _, r := range t.rules {
		if len(r.Hosts) > 0 && !t.dearest.asDear(r) {
			t.dearer = append(t.dearer, r)
		}
	}
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

// without returns a shape as a tree has it: with escapes of letters resolved, and
// without what the tree leaves out.
func (s shape) without(loose int) shape {
	if last := len(s.segments) - 1; loose&cut != 0 {
		switch {
		case s.more == further:
			s.more = anything
		case s.more == nothing && last >= 0 && s.segments[last] == "":
			s.segments = s.segments[:last]
		}
	}
	segments := slices.Clone(s.segments)
	for i, segment := range segments {
		if s.patterns && isPattern(segment) {
			continue
		}
		segments[i] = unescape(segment, isLetter)
		if loose&folded != 0 {
			segments[i] = strings.ToLower(segments[i])
		}
	}
	s.segments = segments
	return s
}

// insert adds a rule of a shape below a root.
func (n *routeNode) insert(rule *Rule, s shape, index int) {
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

// covers reports whether r matches whatever other matches.
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
