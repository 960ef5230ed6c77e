package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/meteproject/mete/plan"
)

// whenEntry begins the condition of the rule that matches the entry before it. No key of an
// entry is shown with a star in front.
const whenEntry = "*when="

// parseDescriptor reads KEY=VALUE[,KEY=VALUE]... as the command line and our own output
// have it: %XX is a byte, and "*" in a value, or at the end of a key, tells of what shares
// a counter.
func parseDescriptor(text string) ([]plan.CounterEntry, error) {
	var entries []plan.CounterEntry
	for part := range strings.SplitSeq(text, ",") {
		if when, is := strings.CutPrefix(part, whenEntry); is && len(entries) > 0 && entries[len(entries)-1].When == "" {
			raw, ok := percentDecoded(when)
			if !ok || raw == "" {
				return nil, usageError(fmt.Sprintf("%q names no condition", part), "write it as metectl counter ls does, %20 for a space")
			}
			entries[len(entries)-1].When = raw
			continue
		}
		key, value, found := strings.Cut(part, "=")
		if !found || key == "" {
			return nil, usageError(fmt.Sprintf("%q is not an entry of a descriptor", part),
				"write KEY=VALUE, a comma between entries, and %2C for a comma in a value")
		}
		var e plan.CounterEntry
		key, e.Regex = strings.CutSuffix(key, "*")
		e.Shared = e.Regex || strings.Contains(value, "*")
		for _, from := range []struct {
			text string
			to   *string
		}{{key, &e.Key}, {value, &e.Value}} {
			raw, ok := percentDecoded(from.text)
			if !ok {
				return nil, usageError(fmt.Sprintf("%q has a percent sign that is not of a byte", part), "write %FF for a byte and %25 for a percent sign")
			}
			*from.to = raw
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// percentDecoded replaces every %XX by its byte.
func percentDecoded(s string) (string, bool) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "%")
		b.WriteString(before)
		if !found {
			return b.String(), true
		}
		if len(after) < 2 {
			return "", false
		}
		c, err := strconv.ParseUint(after[:2], 16, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(c))
		s = after[2:]
	}
}

// descriptorText is the inverse of parseDescriptor. It can be pasted into a shell between
// quotes, and shows whatever bytes there are.
func descriptorText(entries []plan.CounterEntry) string {
	var b strings.Builder
	for i, e := range entries {
		if i > 0 {
			b.WriteByte(',')
		}
		writeEscaped(&b, e.Key, "=*")
		if e.Regex {
			b.WriteByte('*')
		}
		b.WriteByte('=')
		if e.Shared && !e.Regex {
			writeEscaped(&b, e.Value, "")
		} else {
			writeEscaped(&b, e.Value, "*")
		}
		if e.When != "" {
			b.WriteByte(',')
			b.WriteString(whenEntry)
			writeEscaped(&b, e.When, "")
		}
	}
	return b.String()
}

// writeEscaped writes s with what would be misread, or cannot be seen, as %XX.
func writeEscaped(b *strings.Builder, s, more string) {
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 || !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(`%,'"`+more, r) {
			for _, c := range []byte(s[:size]) {
				fmt.Fprintf(b, "%%%02X", c)
			}
		} else {
			b.WriteString(s[:size])
		}
		s = s[size:]
	}
}

// counterOf finds the counter of a descriptor, and the rule that counts there: nil where
// only limits do that Envoy sends along.
func counterOf(table *plan.DescriptorTable, entries []plan.CounterEntry) (name string, m *plan.DescriptorMatch) {
	literal := make([]plan.DescriptorEntry, 0, len(entries))
	for _, e := range entries {
		if e.Regex { // a counter as we show it, or else a key that ends in a star
			literal = append(literal, plan.DescriptorEntry{Key: e.Key + "*", Value: e.Value})
		} else {
			literal = append(literal, plan.DescriptorEntry{Key: e.Key, Value: e.Value})
		}
		if e.Shared {
			shown := string(table.AppendName(nil, entries))
			if _, m, _ := table.Counter(shown); m != nil {
				return shown, m
			}
		}
	}
	if m, b := table.Match(literal, nil); m != nil {
		return string(b), m
	}
	return string(table.AppendCounter(nil, literal)), nil
}
