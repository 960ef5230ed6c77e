package plan

import "strings"

// normalize returns path as it is compared with the rules of routes (case C025):
//
//   - the query is dropped;
//   - escaped letters, digits, "-", ".", "_" and "~" are resolved, other escapes
//     are written in capitals, and bytes beyond ASCII are escaped;
//   - "." and ".." segments are resolved, then runs of slashes become one, in
//     Envoy's order.
//
// A trailing slash, capitals, ";a=b" and escaped reserved characters such as %2F
// and %3F are significant: they make another path, as for most upstreams.
//
// It reports false for what has no one meaning: a path that does not begin with
// "/", broken escapes, "#", "\", spaces and control characters. A path that is
// normal already is returned as it is, without allocation.
func normalize(path string) (string, bool) {
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	if path == "" || path[0] != '/' {
		return "", false
	}
	normal := true
	for i := range len(path) {
		switch c := path[i]; {
		case c <= ' ' || c == 0x7f || c == '#' || c == '\\':
			return "", false
		case c == '%' || c >= 0x80:
			normal = false
		case c == '/' && i+1 < len(path) && (path[i+1] == '/' || path[i+1] == '.'):
			normal = false
		}
	}
	if normal {
		return path, true
	}
	unescaped, ok := unescape(path)
	if !ok {
		return "", false
	}
	return resolve(unescaped), true
}

// unescape resolves the escapes of unreserved characters.
func unescape(path string) (string, bool) {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.Grow(len(path) + 8)
	for i := 0; i < len(path); i++ {
		c := path[i]
		escaped := c == '%'
		if escaped {
			if i+2 >= len(path) {
				return "", false
			}
			high, low := unhex(path[i+1]), unhex(path[i+2])
			if high > 15 || low > 15 {
				return "", false
			}
			c = high<<4 | low
			i += 2
		}
		if c >= 0x80 || escaped && !isUnreserved(c) {
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
			continue
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 255
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// resolve removes dot segments and then empty ones. What ends in a dot segment
// or a slash ends in a slash.
func resolve(path string) string {
	out := make([]byte, 0, len(path)+1)
	for rest := path; rest != ""; {
		segment := rest[1:]
		end := strings.IndexByte(segment, '/')
		if end >= 0 {
			segment, rest = segment[:end], segment[end:]
		} else {
			rest = ""
		}
		switch segment {
		case ".", "..":
			if segment == ".." {
				out = out[:max(0, strings.LastIndexByte(string(out), '/'))]
			}
			if rest == "" {
				out = append(out, '/')
			}
		default:
			out = append(out, '/')
			out = append(out, segment...)
		}
	}
	merged := out[:0]
	for i, c := range out {
		if c != '/' || i == 0 || out[i-1] != '/' {
			merged = append(merged, c)
		}
	}
	if len(merged) == 0 {
		return "/"
	}
	return string(merged)
}
