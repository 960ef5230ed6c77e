package plan

import (
	"slices"
	"strings"
)

// A Shape is how a value becomes a name: `as: "org:{}"`. Its literals and what stands
// between them take turns, a literal first. The zero Shape leaves values as they are.
type Shape struct {
	literals []string
	groups   []int // of the pattern, see PeerPattern; -1: the whole value
}

// wholeValue stands in a Shape for the value itself.
const wholeValue = -1

// IsZero reports whether s leaves values as they are.
func (s *Shape) IsZero() bool { return len(s.literals) == 0 }

// Append appends the name that value and its groups make.
func (s *Shape) Append(dst []byte, value string, groups *Groups) []byte {
	for i, literal := range s.literals {
		dst = append(dst, literal...)
		switch {
		case i == len(s.groups):
		case s.groups[i] == wholeValue:
			dst = append(dst, value...)
		default:
			dst = append(dst, groups[s.groups[i]]...)
		}
	}
	return dst
}

// MaxGroups is how many groups the pattern of a peer may have.
const MaxGroups = 4

// Groups are what the groups of a PeerPattern stand for, in their order.
type Groups [MaxGroups]string

// A PeerPattern is a pattern of SPIFFE ids with groups: each {name} stands for a part of
// one segment, which has no other group. Nothing else in it is special. The zero
// PeerPattern has no groups, and none of its methods may be called.
type PeerPattern struct {
	literals []string // around the groups, one more than those
	names    []string
}

// HasGroups reports whether p is not the zero PeerPattern.
func (p *PeerPattern) HasGroups() bool { return len(p.names) > 0 }

// Match reports whether s is spelled like p, and fills in what its groups stand for: at
// least one byte each, and no slash. There is one way at most to read s.
func (p *PeerPattern) Match(s string, groups *Groups) bool {
	rest, ok := strings.CutPrefix(s, p.literals[0])
	if !ok {
		return false
	}
	for i := range p.names {
		segment, below, found := strings.Cut(rest, "/")
		after, belowAfter, more := strings.Cut(p.literals[i+1], "/")
		group, fits := strings.CutSuffix(segment, after)
		if !fits || group == "" || found != more {
			return false
		}
		groups[i] = group
		if rest = ""; found {
			if rest, ok = strings.CutPrefix(below, belowAfter); !ok {
				return false
			}
		}
	}
	return rest == ""
}

// splitBraces splits text at its {words}; ok is false if a brace has no partner.
func splitBraces(text string) (literals, words []string, ok bool) {
	for {
		before, rest, open := strings.Cut(text, "{")
		if strings.Contains(before, "}") {
			return nil, nil, false
		}
		literals = append(literals, before)
		if !open {
			return literals, words, true
		}
		word, after, closed := strings.Cut(rest, "}")
		if !closed || strings.Contains(word, "{") {
			return nil, nil, false
		}
		words, text = append(words, word), after
	}
}

// peerPattern reads the pattern of a peer that has groups.
func (o *object) peerPattern(n *node, path, text string) (p PeerPattern) {
	literals, words, ok := splitBraces(text)
	switch {
	case !ok:
		o.fail(n, path, "%q has a brace without its partner; write {name} for a part of a segment", short(text))
		return PeerPattern{}
	case len(words) > MaxGroups:
		o.fail(n, path, "has %d groups; write at most %d", len(words), MaxGroups)
		return PeerPattern{}
	case strings.Contains(text, "*"):
		o.fail(n, path, "has * beside a group, so that an id may be read in several ways; write a group for each part that differs")
		return PeerPattern{}
	}
	for i, word := range words {
		switch {
		case !isName(word):
			o.fail(n, path, "{%s} names no group; write a name such as {name}", short(word))
			return PeerPattern{}
		case slices.Contains(words[:i], word):
			o.fail(n, path, "has {%s} twice; choose two names", word)
			return PeerPattern{}
		case i > 0 && !strings.Contains(literals[i], "/"):
			o.fail(n, path, "has two groups in one segment, so that an id may be read in several ways; write a / between them")
			return PeerPattern{}
		}
	}
	return PeerPattern{literals: literals, names: words}
}

// shape reads the field as of a source with these groups.
func (o *object) shape(n *node, path string, groups []string) (s Shape) {
	text, ok := o.reader.text(n, path)
	if !ok {
		return Shape{}
	}
	literals, words, ok := splitBraces(text)
	switch {
	case !ok:
		o.fail(n, path, "%q has a brace without its partner; write {} for the value, as in org:{}", short(text))
		return Shape{}
	case len(words) == 0:
		o.fail(n, path, "%q is one name for all callers; write {} where the value belongs, as in org:{}", short(text))
		return Shape{}
	case !IsTenant(strings.Join(literals, "x")):
		o.fail(n, path, "%q makes no name of any value; leave out commas, and blanks at its ends", short(text))
		return Shape{}
	}
	for _, word := range words {
		at := slices.Index(groups, word)
		if word == "" {
			at = wholeValue
		} else if at < 0 {
			o.fail(n, path, "{%s} is not a group of peer_spiffe_id; write {} for the whole value%s", short(word), orGroups(groups))
			return Shape{}
		}
		s.groups = append(s.groups, at)
	}
	s.literals = literals
	return s
}

func orGroups(groups []string) string {
	if len(groups) == 0 {
		return ""
	}
	braced := make([]string, 0, len(groups))
	for _, g := range groups {
		braced = append(braced, "{"+g+"}")
	}
	return ", or " + listed(braced, "or")
}
