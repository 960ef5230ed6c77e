package plan

import "strings"

// A DescriptorTable finds the rule of a descriptor among those of one domain. It
// never changes, and any number of goroutines may use it.
type DescriptorTable struct {
	name []byte // that of the domain, as counters begin
	top  descriptorLevel
}

// A descriptorLevel has the rules that lie beside each other below one rule.
type descriptorLevel struct {
	// exact has every rule with a value, a pattern by its own spelling too: it is
	// what matches that text best.
	exact    map[DescriptorEntry]*descriptorNode
	patterns map[string][]*descriptorNode // by key, in the order written
	any      map[string]*descriptorNode   // by key: rules without a value
}

type descriptorNode struct {
	rule  *DescriptorRule
	below descriptorLevel
}

// NewDescriptorTable compiles the rules of a domain.
func NewDescriptorTable(l *RateLimits) *DescriptorTable {
	return &DescriptorTable{
		name: append(appendEscaped(nil, l.Domain, false), '?'),
		top:  newDescriptorLevel(l.Rules),
	}
}

func newDescriptorLevel(rules []DescriptorRule) descriptorLevel {
	var l descriptorLevel
	if len(rules) > 0 {
		l = descriptorLevel{map[DescriptorEntry]*descriptorNode{}, map[string][]*descriptorNode{}, map[string]*descriptorNode{}}
	}
	for i := range rules {
		r := &rules[i]
		n := &descriptorNode{rule: r, below: newDescriptorLevel(r.Rules)}
		switch {
		case r.Value == "":
			l.any[r.Key] = n
			continue
		case strings.Contains(r.Value, "*"):
			l.patterns[r.Key] = append(l.patterns[r.Key], n)
		}
		l.exact[r.Entry()] = n
	}
	return l
}

// Match returns the rule of a descriptor: entry by entry the one with exactly this
// value, else the first pattern in the order written, else the one without a value.
// A choice is never taken back, and the rule must be as deep as the descriptor; where
// there is none it returns nil, and counter as it is. The rule may have no limit.
//
// It appends to counter the name of what the rule counts in: the domain and all keys
// with their values, or in place of a value the pattern whose matches share a counter.
// Two descriptors have one name only if they have one counter. The name is printable
// ASCII without "/". Nothing is allocated if counter has room for it.
func (t *DescriptorTable) Match(entries []DescriptorEntry, counter []byte) (*DescriptorRule, []byte) {
	var room [maxNesting / 2]*descriptorNode
	chosen := room[:0]
	level := &t.top
	for i := range entries {
		n := level.find(&entries[i])
		if n == nil {
			return nil, counter
		}
		chosen, level = append(chosen, n), &n.below
	}
	if len(chosen) == 0 {
		return nil, counter
	}
	counter = append(counter, t.name...)
	for i := range entries {
		if r := chosen[i].rule; r.ShareThreshold {
			counter = appendEntry(counter, i, r.Key, r.Value, true)
		} else {
			counter = appendEntry(counter, i, entries[i].Key, entries[i].Value, false)
		}
	}
	return chosen[len(chosen)-1].rule, counter
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

func (l *descriptorLevel) find(e *DescriptorEntry) *descriptorNode {
	if n := l.exact[*e]; n != nil {
		return n
	}
	for _, n := range l.patterns[e.Key] {
		if MatchPattern(n.rule.Value, e.Value) {
			return n
		}
	}
	return l.any[e.Key]
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
