package plan

import "strings"

// bareHost returns an authority without its port and final dot, which say nothing of
// who is meant.
func bareHost(authority string) string {
	if i := strings.LastIndexByte(authority, ':'); i >= 0 && strings.Trim(authority[i+1:], "0123456789") == "" {
		authority = authority[:i]
	}
	return strings.TrimSuffix(authority, ".")
}

// maxHostKey is how long a hostKey may be: a host of 253 bytes, and a dot.
const maxHostKey = 254

// hostKey returns what a host, or the end of one, is compared with: "*.a.org" becomes
// ".a.org", with which all that it stands for ends and which is not a host itself.
func hostKey(pattern string) string { return strings.TrimPrefix(pattern, "*") }

// lowerHost appends the last maxHostKey bytes of a bare host in lower case: no pattern
// looks at more, and nobody can make a long one cost much.
func lowerHost(dst []byte, host string) []byte {
	for _, c := range []byte(host[max(0, len(host)-maxHostKey):]) {
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		dst = append(dst, c)
	}
	return dst
}

// anyHost reports whether a bare host is one of patterns, which are in lower case,
// exact or with a leading "*."; no patterns match every host.
func anyHost(patterns []string, host string) bool {
	var room [maxHostKey]byte
	lower := lowerHost(room[:0], host)
	for _, p := range patterns {
		key := hostKey(p)
		if key == string(lower) || key != p && strings.HasSuffix(string(lower), key) {
			return true
		}
	}
	return len(patterns) == 0
}

// coversHosts reports whether every host of other is one of patterns.
func coversHosts(patterns, other []string) bool {
	if len(patterns) == 0 {
		return true
	}
	for _, h := range other {
		// "*.a" ends as all that it stands for does.
		if !anyHost(patterns, h) {
			return false
		}
	}
	return len(other) > 0
}
