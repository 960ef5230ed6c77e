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
	patterns map[string][]*descriptorNode // by key, in the order written; regular expressions too
	any      map[string]*descriptorNode   // by key: rules without a value
}

type descriptorNode struct {
	DescriptorMatch

	below descriptorLevel
}

// A DescriptorMatch is a rule as its table has it.
type DescriptorMatch struct {
	Rule *DescriptorRule
	// Limit is the rule's limit with everything filled in; nil: there is none, or it is
	// unlimited.
	Limit *EffectiveLimit
	// Account names what the limit counts in beside the counter; "" without one.
	Account string
	above   *DescriptorMatch // the rule of the entry before
}

// NewDescriptorTable compiles the rules of a domain.
func NewDescriptorTable(l *RateLimits) *DescriptorTable {
	s := DefaultDomainSettings()
	if l.Settings != nil {
		s = *l.Settings
	}
	return newDescriptorTable(l, &s)
}

func newDescriptorTable(l *RateLimits, s *DomainSettings) *DescriptorTable {
	return &DescriptorTable{
		name: append(appendEscaped(nil, l.Domain, false), '?'),
		top:  newDescriptorLevel(l.Rules, nil, s),
	}
}

func newDescriptorLevel(rules []DescriptorRule, above *DescriptorMatch, s *DomainSettings) descriptorLevel {
	var l descriptorLevel
	if len(rules) > 0 {
		l = descriptorLevel{map[DescriptorEntry]*descriptorNode{}, map[string][]*descriptorNode{}, map[string]*descriptorNode{}}
	}
	for i := range rules {
		r := &rules[i]
		n := &descriptorNode{DescriptorMatch: DescriptorMatch{Rule: r, above: above}}
		if r.Limit != nil && !r.Limit.Unlimited {
			n.Limit, n.Account = r.Limit.Effective(s), r.Limit.Account()
		}
		n.below = newDescriptorLevel(r.Rules, &n.DescriptorMatch, s)
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

// Match returns the rule of a descriptor: entry by entry the one with exactly this
// value, else the first pattern or regular expression in the order written, else the
// one without a value.
// A choice is never taken back, and the rule must be as deep as the descriptor; where
// there is none it returns nil, and counter as it is. The rule may have no limit.
//
// It appends to counter the name of what the rule counts in: the domain and all keys
// with their values, or in place of a value the pattern whose matches share a counter.
// Two descriptors have one name only if they have one counter. The name is printable
// ASCII without "/". Nothing is allocated if counter has room for it.
func (t *DescriptorTable) Match(entries []DescriptorEntry, counter []byte) (*DescriptorMatch, []byte) {
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
		counter = chosen[i].Rule.appendEntry(counter, i, &entries[i])
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

func (l *descriptorLevel) find(e *DescriptorEntry) *descriptorNode {
	if n := l.exact[*e]; n != nil {
		return n
	}
	for _, n := range l.patterns[e.Key] {
		if n.Rule.matches(e.Value) {
			return n
		}
	}
	return l.any[e.Key]
}

// matches tells whether a value is one of the rule's pattern or regular expression.
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
	if i > 0 {
		b = append(b, '&')
	}
	b = append(appendEscaped(b, r.Key, false), "*="...) // no key has a star of its own
	return appendEscaped(b, r.Regex, false)
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
