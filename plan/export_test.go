package plan

import (
	"encoding/json"
	"reflect"
	"strings"
)

// Plain returns the first document of text as encoding/json would decode it, for
// comparing the reader with the schema; ok is false if it is not YAML or JSON that
// documents may be. Numbers that documents may not hold become text.
func Plain(text []byte) (v any, ok bool) {
	chunks := split(text)
	n, errs := parse(chunks[len(chunks)-1].body())
	if n == nil || len(errs) > 0 {
		return nil, false
	}
	return n.plain()
}

// PlainAll is Plain for each document.
func PlainAll(text []byte) (all []any) {
	for _, c := range split(text) {
		if v, ok := Plain(c.body()); ok {
			all = append(all, v)
		}
	}
	return all
}

func (n *node) plain() (any, bool) {
	switch n.kind {
	case nullNode:
		return nil, true
	case boolNode:
		if n.text != "true" && n.text != "false" { // True is not a boolean of ours
			return n.text, true
		}
		return n.text == "true", true
	case numberNode:
		if digits := strings.TrimPrefix(n.text, "-"); strings.Trim(digits, "0123456789") == "" && (digits == "0" || digits[0] != '0') {
			return json.Number(n.text), true
		}
		return n.text, true
	case stringNode:
		return n.text, true
	case listNode:
		list := make([]any, 0, len(n.items))
		for _, item := range n.items {
			v, ok := item.plain()
			if !ok {
				return nil, false
			}
			list = append(list, v)
		}
		return list, true
	case mapNode:
	}
	m := map[string]any{}
	for i, key := range n.keys {
		v, ok := n.items[i].plain()
		if _, twice := m[key.text]; twice || !ok {
			return nil, false
		}
		m[key.text] = v
	}
	return m, true
}

// Normalize is normalize.
func Normalize(path string) (string, bool) { return normalize(path) }

// Covers reports whether rule a matches whatever b matches.
func Covers(a, b *Rule) bool { return a.covers(b) }

// Quick reports whether the quick reader reads text, and whether it and the full one
// then say the same to the last position.
func Quick(text []byte) (reads, same bool) {
	n := quick(text)
	if n == nil {
		return false, true
	}
	full, errs := parseYAML(text)
	return true, len(errs) == 0 && reflect.DeepEqual(n, full)
}

// NeedsOf is [Document.Needs] of a text that need not be a valid document.
func NeedsOf(text []byte) (level int, path string) {
	n, _ := parse(text)
	return n.needs()
}

// NewFields returns the paths of what documents may newly say, by level.
func NewFields() map[int][]string {
	all := map[int][]string{}
	for _, f := range newFields() {
		all[f.level] = append(all[f.level], strings.TrimSuffix(f.path, ".[]"))
	}
	return all
}

// NewDescriptorTable compiles the rules of one document.
func NewDescriptorTable(l *RateLimits) *DescriptorTable {
	s := DefaultDomainSettings()
	if l.Settings != nil {
		s = *l.Settings
	}
	return newDescriptorTable(l, &s)
}

// TariffID is tariffID.
func TariffID(text []byte) string { return tariffID(text) }
