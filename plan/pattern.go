package plan

import "strings"

// MatchPattern reports whether s is spelled like pattern, in which "*" stands for
// any run of characters, also none. Everything else stands for itself.
func MatchPattern(pattern, s string) bool {
	first, rest, star := strings.Cut(pattern, "*")
	if !star {
		return pattern == s
	}
	s, ok := strings.CutPrefix(s, first)
	if !ok {
		return false
	}
	for {
		part, more, star := strings.Cut(rest, "*")
		if !star {
			return strings.HasSuffix(s, part)
		}
		// The leftmost place leaves the most for what follows.
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}
