package plan

import (
	"slices"
	"strings"
	"sync/atomic"
)

// A DescriptorTable finds the rule of a descriptor among those of one domain. It
// never changes, and any number of goroutines may use it.
type DescriptorTable struct {
	name []byte // that of the domain, as counters begin
	top  descriptorLevel
	// failed counts conditions that could not be told; a table that replaces another one goes
	// on with its count.
	failed *atomic.Int64
}

// A descriptorLevel has the rules that lie beside each other below one rule.
type descriptorLevel struct {
	// exact has every rule with a value, a pattern by its own spelling too: it is
	// what matches that text best.
	exact    map[DescriptorEntry]*descriptorNode
	patterns map[string][]*descriptorNode // by key, in the order written; regular expressions too
	any      map[string]*descriptorNode   // by key: rules without a value
}

type descriptorNode struct {
	DescriptorMatch

	below descriptorLevel
	next  *descriptorNode // of the same place, to be tried if the condition of this one does not hold
}

// A DescriptorMatch is a rule as its table has it.
type DescriptorMatch struct {
	Rule *DescriptorRule
	// Limit is the rule's limit with everything filled in; nil: there is none, or it is
	// unlimited.
	Limit *EffectiveLimit
	// Account names what the limit counts in beside the counter; "" without one.
	Account string
	// Fixed: no value as sent is in the name of what the rule counts in, so that there is
	// one for each way of writing it down.
	Fixed bool
	// Group names all counters of the rule together.
	Group  string
	above  *DescriptorMatch // the rule of the entry before
	series string           // the name in metrics; "": values as sent may be in it
}

// newDescriptorTable compiles the rules of a domain.
func newDescriptorTable(l *RateLimits, s *DomainSettings) *DescriptorTable {
	return &DescriptorTable{
		name:   append(appendEscaped(nil, l.Domain, false), '?'),
		top:    newDescriptorLevel(l.Rules, nil, s),
		failed: new(atomic.Int64),
	}
}

func newDescriptorLevel(rules []DescriptorRule, above *DescriptorMatch, s *DomainSettings) descriptorLevel {
	var l descriptorLevel
	if len(rules) > 0 {
		l = descriptorLevel{map[DescriptorEntry]*descriptorNode{}, map[string][]*descriptorNode{}, map[string]*descriptorNode{}}
	}
	var last *descriptorNode
	for _, r := range inPlaces(rules) {
		n := &descriptorNode{DescriptorMatch: DescriptorMatch{Rule: r, above: above}}
		if r.Limit != nil && !r.Limit.Unlimited {
			n.Limit, n.Account = r.Limit.Effective(s), r.Limit.Account()
		}
		if r.Limit != nil { // others count only for limits that Envoy sends along
			n.series = n.fixedSeries()
		}
		n.place(r)
		n.below = newDescriptorLevel(r.Rules, &n.DescriptorMatch, s)
		if last != nil && last.Rule.place() == r.place() {
			last.next, last = n, n
			continue
		}
		last = n
		switch {
		case r.regex != nil:
			l.patterns[r.Key] = append(l.patterns[r.Key], n)
			continue
		case r.Value == "":
			l.any[r.Key] = n
			continue
		case strings.Contains(r.Value, "*"):
			l.patterns[r.Key] = append(l.patterns[r.Key], n)
		}
		l.exact[DescriptorEntry{r.Key, r.Value}] = n
	}
	return l
}

// place fills in Fixed and Group of a rule whose rules above have theirs.
func (m *DescriptorMatch) place(r *DescriptorRule) {
	m.Fixed = r.ShareThreshold || r.Regex == "" && r.Value != "" && !strings.Contains(r.Value, "*")
	var group []byte
	if m.above != nil {
		m.Fixed = m.Fixed && m.above.Fixed
		group = append(group, m.above.Group...)
	}
	if r.Regex != "" {
		group = appendRegex(group, len(group), r.Key, r.Regex)
	} else {
		group = appendEntry(group, len(group), r.Key, r.Value, true)
	}
	if r.When != "" {
		group = appendWhen(group, r.When)
	}
	m.Group = string(group)
}

// Match returns the rule of a descriptor: entry by entry the one with exactly this
// value, else the first pattern or regular expression in the order written, else the
// one without a value. Of several such rules, which differ in their conditions, the first
// counts whose condition holds, and the one without a condition if none does; where there is
// no such one, the search goes on as if there were no rules with these conditions. A
// condition that cannot be told holds, and is counted by FailedConditions.
// A choice is never taken back, and the rule must be as deep as the descriptor; where
// there is none it returns nil, and counter as it is. The rule may have no limit.
//
// It appends to counter the name of what the rule counts in: the domain and all keys
// with their values, or in place of a value the pattern whose matches share a counter.
// Two descriptors have one name only if they have one counter. The name is printable
// ASCII without "/". Nothing is allocated if counter has room for it, and no condition is
// asked.
func (t *DescriptorTable) Match(entries []DescriptorEntry, counter []byte) (*DescriptorMatch, []byte) {
	var room [maxNesting / 2]*descriptorNode
	chosen := room[:0]
	level, ask := &t.top, descriptorAsk{entries: entries}
	for i := range entries {
		n := level.find(&ask, i)
		if n == nil {
			break
		}
		chosen, level = append(chosen, n), &n.below
	}
	if ask.failed > 0 {
		t.failed.Add(ask.failed)
	}
	if len(chosen) == 0 || len(chosen) < len(entries) {
		return nil, counter
	}
	// Without a shared value the name has all that conditions can see.
	conditional := ask.seen != nil && slices.ContainsFunc(chosen, (*descriptorNode).shares)
	counter = append(counter, t.name...)
	for i := range entries {
		r := chosen[i].Rule
		counter = r.appendEntry(counter, i, &entries[i])
		if conditional && r.When != "" {
			counter = appendWhen(counter, r.When)
		}
	}
	return &chosen[len(chosen)-1].DescriptorMatch, counter
}

// AppendCounter appends the name of a counter for just these values, as Match does for
// rules that share none: a limit that Envoy sends along needs no rule.
func (t *DescriptorTable) AppendCounter(counter []byte, entries []DescriptorEntry) []byte {
	counter = append(counter, t.name...)
	for i := range entries {
		counter = appendEntry(counter, i, entries[i].Key, entries[i].Value, false)
	}
	return counter
}

// find returns the rule of the entry i, or nil.
func (l *descriptorLevel) find(a *descriptorAsk, i int) *descriptorNode {
	e := &a.entries[i]
	if n := l.exact[*e].first(a, i); n != nil {
		return n
	}
	for _, n := range l.patterns[e.Key] {
		if !n.Rule.matches(e.Value) {
			continue
		}
		if n := n.first(a, i); n != nil {
			return n
		}
	}
	return l.any[e.Key].first(a, i)
}

func (n *descriptorNode) shares() bool { return n.Rule.ShareThreshold }

// matches reports whether a value is one of the rule's pattern or regular expression.
func (r *DescriptorRule) matches(value string) bool {
	if r.regex != nil {
		return r.regex.MatchString(value)
	}
	return MatchPattern(r.Value, value)
}

// appendEntry appends what the rule counts an entry in: by its value, or together with
// all others that the rule matches.
func (r *DescriptorRule) appendEntry(b []byte, i int, e *DescriptorEntry) []byte {
	switch {
	case !r.ShareThreshold:
		return appendEntry(b, i, e.Key, e.Value, false)
	case r.Regex == "":
		return appendEntry(b, i, r.Key, r.Value, true)
	}
	return appendRegex(b, i, r.Key, r.Regex)
}

// appendRegex appends an entry all of whose matches share a counter.
func appendRegex(b []byte, i int, key, regex string) []byte {
	if i > 0 {
		b = append(b, '&')
	}
	b = append(appendEscaped(b, key, false), "*="...) // no key has a star of its own
	return appendEscaped(b, regex, false)
}

// appendEntry appends one entry as a query of a URL has it, in which a "*" that is
// not escaped stands for any run of bytes.
func appendEntry(b []byte, i int, key, value string, pattern bool) []byte {
	if i > 0 {
		b = append(b, '&')
	}
	b = append(appendEscaped(b, key, false), '=')
	return appendEscaped(b, value, pattern)
}

func appendEscaped(b []byte, s string, star bool) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; isUnreserved(c) || c == ':' || c == '@' || c == ',' || star && c == '*' {
			b = append(b, c)
		} else {
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}
