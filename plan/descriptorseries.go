package plan

import (
	"cmp"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxSeries is how many bytes the name of a rule in metrics has at most.
const MaxSeries = 200

// AppendSeries appends the rule's name in metrics, without its domain, as
// envoyproxy/ratelimit spells it: "org_northwind.route_export", by level the key and,
// after "_", the value. Of a level the value is
//
//   - the pattern or the regular expression where all that match it share a counter;
//   - else the value as sent, if the level has value_to_metric, or the rule itself has
//     detailed_metric, which says so of all its levels (P6);
//   - else what the rule has: value, pattern or regular expression, or nothing.
//
// entries are those that Match has found the rule for. A nil m, for a limit that Envoy
// sends along to where no rule is, names the keys alone: its values are not a rule's.
//
// The name is printable UTF-8 of at most [MaxSeries] bytes: other bytes are written as
// \xFF, and a longer name ends in "~" and a hash of the whole, the same on all replicas.
// Two rules may have one name and one series: by dots and underscores of their own, as in
// envoyproxy/ratelimit, or where nothing but a condition tells them apart. Nothing is
// allocated if b has room for the name and 32 bytes more.
func (m *DescriptorMatch) AppendSeries(b []byte, entries []DescriptorEntry) []byte {
	if m != nil && m.series != "" {
		return append(b, m.series...)
	}
	var room [maxNesting / 2]*DescriptorRule
	rules := m.path(room[:0])
	from, detailed := len(b), m != nil && m.Rule.DetailedMetric
	for i := range entries {
		value := seriesValue(rules, i, &entries[i], detailed)
		b = appendLevel(b, i, entries[i].Key, value, from+MaxSeries)
		if len(b) > from+MaxSeries {
			return endInHash(b[:from+MaxSeries], seriesHash(rules, entries, detailed))
		}
	}
	return b
}

// path appends the rules that lead to m, the first entry's first.
func (m *DescriptorMatch) path(rules []*DescriptorRule) []*DescriptorRule {
	if m == nil {
		return rules
	}
	return append(m.above.path(rules), m.Rule)
}

// seriesValue returns the value of one level in metrics; "": none.
func seriesValue(rules []*DescriptorRule, i int, sent *DescriptorEntry, detailed bool) string {
	switch {
	case i >= len(rules):
		return ""
	case rules[i].showsSent(detailed):
		return sent.Value
	}
	return cmp.Or(rules[i].Value, rules[i].Regex)
}

// showsSent reports whether metrics show a level's value as sent. detailed is what the
// rule with the limit says.
func (r *DescriptorRule) showsSent(detailed bool) bool {
	return !r.ShareThreshold && (detailed || r.ValueToMetric)
}

// fixedSeries returns the rule's name in metrics if no value as sent is in it, else "".
func (m *DescriptorMatch) fixedSeries() string {
	rules := m.path(nil)
	entries := make([]DescriptorEntry, len(rules))
	for i, r := range rules {
		one := r.Regex == "" && r.Value != "" && !strings.Contains(r.Value, "*")
		if !one && r.showsSent(m.Rule.DetailedMetric) {
			return ""
		}
		entries[i] = DescriptorEntry{r.Key, r.Value}
	}
	return string(m.AppendSeries(nil, entries))
}

func appendLevel(b []byte, i int, key, value string, end int) []byte {
	if i > 0 {
		b = append(b, '.')
	}
	b = appendPrintable(b, key, end)
	if value == "" {
		return b
	}
	return appendPrintable(append(b, '_'), value, end)
}

// appendPrintable appends s, and stops once b is longer than end.
func appendPrintable(b []byte, s string, end int) []byte {
	const digits = "0123456789ABCDEF"
	for len(b) <= end {
		plain := plainStart(s[:min(len(s), end+1-len(b))])
		b, s = append(b, s[:plain]...), s[plain:]
		if s == "" {
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 || !unicode.IsPrint(r) {
			for i := range size {
				b = append(b, '\\', 'x', digits[s[i]>>4], digits[s[i]&15])
			}
		} else {
			b = append(b, s[:size]...)
		}
		s = s[size:]
	}
	return b
}

// plainStart returns how many bytes s begins with that are printable ASCII.
func plainStart(s string) int {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return i
		}
	}
	return len(s)
}

// endInHash replaces the end of a name that is as long as names may be.
func endInHash(b []byte, hash uint64) []byte {
	var sum [8]byte
	for i := range sum {
		sum[i] = byte(hash >> (56 - 8*i))
	}
	cut := len(b) - 1 - hex.EncodedLen(len(sum))
	for !utf8.RuneStart(b[cut]) {
		cut--
	}
	return hex.AppendEncode(append(b[:cut], '~'), sum[:])
}

// seriesHash is the hash of a name before it is made printable.
func seriesHash(rules []*DescriptorRule, entries []DescriptorEntry, detailed bool) uint64 {
	sum := uint64(fnvOffset)
	for i := range entries {
		sum = hashed(hashed(sum, entries[i].Key), "_")
		sum = hashed(hashed(sum, seriesValue(rules, i, &entries[i], detailed)), ".")
	}
	return sum
}

const (
	fnvOffset = 14695981039346656037
	fnvPrime  = 1099511628211
)

// hashed goes on with an FNV-1a hash: the hashes of the standard library allocate, or
// differ from process to process.
func hashed(sum uint64, s string) uint64 {
	for i := range len(s) {
		sum = (sum ^ uint64(s[i])) * fnvPrime
	}
	return sum
}
