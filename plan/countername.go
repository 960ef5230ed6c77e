package plan

import (
	"slices"
	"strconv"
	"strings"
)

// A CounterEntry is one entry of a counter's name.
type CounterEntry struct {
	Key string
	// Value is the value that is counted, or the pattern or the regular expression whose
	// matches share the counter.
	Value string
	// Shared tells that Value is a pattern, and Regex that it is a regular expression.
	Shared, Regex bool
	// When is the condition of the rule, which is told where any entry is shared; "": none.
	When string
}

// Counter reads the name of a counter, as Match and AppendCounter append it: what it
// counts, and the rule that counts there now; nil where none does, because the rule is
// gone or Envoy sends the limit along. It returns false for what is not a name of t's domain.
func (t *DescriptorTable) Counter(name string) (entries []CounterEntry, m *DescriptorMatch, ok bool) {
	rest, ok := strings.CutPrefix(name, string(t.name))
	if !ok || rest == "" {
		return nil, nil, false
	}
	for part := range strings.SplitSeq(rest, "&") {
		if when, isWhen := strings.CutPrefix(part, "*when="); isWhen && len(entries) > 0 {
			entries[len(entries)-1].When, _ = unescapeEntry(when)
			continue
		}
		e, ok := readCounterEntry(part)
		if !ok {
			return nil, nil, false
		}
		entries = append(entries, e)
	}
	if string(t.AppendName(nil, entries)) != name {
		return nil, nil, false
	}
	return entries, t.counts(entries), true
}

// AppendName appends the name of the counter of some entries. It is the inverse of Counter.
func (t *DescriptorTable) AppendName(b []byte, entries []CounterEntry) []byte {
	b = append(b, t.name...)
	for i, e := range entries {
		if e.Regex {
			b = appendRegex(b, i, e.Key, e.Value)
		} else {
			b = appendEntry(b, i, e.Key, e.Value, e.Shared)
		}
		if e.When != "" {
			b = appendWhen(b, e.When)
		}
	}
	return b
}

func readCounterEntry(text string) (e CounterEntry, ok bool) {
	key, value, ok := strings.Cut(text, "=")
	if !ok {
		return e, false
	}
	key, e.Regex = strings.CutSuffix(key, "*")
	e.Shared = e.Regex || strings.Contains(value, "*")
	var known bool
	e.Key, ok = unescapeEntry(key)
	e.Value, known = unescapeEntry(value)
	return e, ok && known
}

// unescapeEntry is the inverse of appendEscaped.
func unescapeEntry(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		i += 2
	}
	return b.String(), true
}

// counts returns the rule that counts in the counter of some entries, or nil.
func (t *DescriptorTable) counts(entries []CounterEntry) *DescriptorMatch {
	level, ask := &t.top, descriptorAsk{entries: make([]DescriptorEntry, len(entries))}
	for i, e := range entries {
		ask.entries[i] = DescriptorEntry{e.Key, e.Value}
		if e.Shared { // what conditions have seen is not in the name
			ask.named = entries
		}
	}
	var n *descriptorNode
	for i := range entries {
		e := &entries[i]
		switch {
		case e.Regex:
			n = level.regex(e).first(&ask, i)
		case e.Shared:
			n = level.exact[ask.entries[i]].first(&ask, i)
		default:
			n = level.find(&ask, i)
		}
		if n == nil || n.Rule.ShareThreshold != e.Shared {
			return nil
		}
		level = &n.below
	}
	return &n.DescriptorMatch
}

// regex finds a rule by its regular expression.
func (l *descriptorLevel) regex(e *CounterEntry) *descriptorNode {
	for _, n := range l.patterns[e.Key] {
		if n.Rule.Regex == e.Value {
			return n
		}
	}
	return nil
}

// HasBuckets reports whether some limit is one per second or minute, so that no account
// tells of it.
func (t *DescriptorTable) HasBuckets() bool { return t.top.hasBuckets() }

func (l *descriptorLevel) hasBuckets() bool {
	has := func(n *descriptorNode) bool { return n.Limit != nil && n.Limit.Kind == Rate || n.below.hasBuckets() }
	for _, n := range l.exact {
		if has(n) {
			return true
		}
	}
	for _, n := range l.any {
		if has(n) {
			return true
		}
	}
	for _, some := range l.patterns {
		if slices.ContainsFunc(some, has) {
			return true
		}
	}
	return false
}

// ParseAccount reads what a limit of descriptors counts in, as Account and Override name
// it: the unit and the multiplier of the limit and, if Envoy has sent it along, the amount,
// which is -1 otherwise. It returns false for the limits of plans.
func ParseAccount(account string) (l DescriptorLimit, ok bool) {
	window, amount, override := strings.Cut(account, "=")
	window, ok = strings.CutPrefix(window, "ratelimit:per_")
	if !ok {
		return l, false
	}
	l.Multiplier, l.Amount = 1, -1
	if times, unit, several := strings.Cut(window, "_"); several {
		n, err := strconv.ParseInt(times, 10, 64)
		if err != nil {
			return l, false
		}
		l.Multiplier, window = n, unit
	}
	for i, word := range unitWords() {
		if word == window {
			l.Unit = UnitSecond + DescriptorUnit(i)
		}
	}
	written := l.Account()
	if override {
		n, err := strconv.ParseInt(amount, 10, 64)
		if err != nil || n < 0 {
			return l, false
		}
		l.Amount = n
		written = l.Override()
	}
	return l, l.Unit != 0 && written == account
}
