package plan

import "strings"

// normalize returns path as rules must be written (case C025): without a query, with
// escaped letters, digits, "-", ".", "_" and "~" resolved, other escapes in capitals,
// bytes beyond ASCII escaped, without dot segments and empty ones. How requests are
// compared with rules is told by [Snapshot.Route].
//
// It reports false for what has no one meaning, see inspect. A path that is normal
// already is returned as it is, without allocation.
func normalize(path string) (string, bool) {
	path, found := inspect(path)
	if found&unreadable != 0 {
		return "", false
	}
	return mergeSlashes(resolveDots(unescape(path, isUnreserved))), true
}

// A trait is something in a path that servers read in different ways.
type trait uint8

const (
	unreadable   trait = 1 << iota // it is not a path
	hostile                        // an escape of what no path holds
	escaped                        // an escape, or a byte that should be one
	escapedDot                     // %2E
	escapedSlash                   // %2F or %5C
	parameter                      // ";" or %3B
	doubled                        // "//"
	dotted                         // a dot segment, or what may be one
)

// inspect returns a path without its query, and what is in it.
//
// Unreadable is a path that does not begin with "/", or has broken escapes, "#", "\",
// spaces or control characters. Hostile are escapes of control characters and of bytes
// that no text has: C0 and C1, with which a dot or a slash could be spelled overlong.
func inspect(path string) (bare string, found trait) {
	if i := strings.IndexByte(path, '?'); i >= 0 {
		path = path[:i]
	}
	if path == "" || path[0] != '/' {
		return path, unreadable
	}
	for i := range len(path) {
		switch c := path[i]; {
		case c <= ' ' || c == 0x7f || c == '#' || c == '\\':
			return path, unreadable
		case c == '%':
			found |= escaped | inspectEscape(path[i:])
		case c >= 0x80:
			found |= escaped
		case c == ';':
			found |= parameter
		case c != '/' || i+1 == len(path):
		case path[i+1] == '/':
			found |= doubled
		case isDotted(path[i+1:]):
			found |= dotted
		}
	}
	return path, found
}

// isDotted reports whether the segment at the beginning of s is a dot segment for some
// server: one or two dots, and what a server may leave out or read as another dot.
func isDotted(s string) bool {
	if s == "" || s[0] != '.' {
		return false
	}
	s = strings.TrimPrefix(s[1:], ".")
	return s == "" || s[0] == '/' || s[0] == ';' || s[0] == '%'
}

// inspectEscape returns what the escape at the beginning of s is.
func inspectEscape(s string) trait {
	c, ok := escapeAt(s, 0)
	switch {
	case !ok:
		return unreadable
	case c < ' ', c == 0x7f, c == 0xc0, c == 0xc1:
		return hostile
	case c == '.':
		return escapedDot
	case c == '/', c == '\\':
		return escapedSlash
	case c == ';':
		return parameter
	}
	return 0
}

// escapeAt returns the byte that an escape at i of s stands for.
func escapeAt(s string, i int) (c byte, ok bool) {
	if i+2 >= len(s) || s[i] != '%' {
		return 0, false
	}
	high, low := unhex(s[i+1]), unhex(s[i+2])
	return high<<4 | low, high <= 15 && low <= 15
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

// unescape resolves the escapes of letters. All others are written in capitals, and
// bytes beyond ASCII are escaped. It returns s itself if that changes nothing.
func unescape(s string, letter func(byte) bool) string {
	const hex = "0123456789ABCDEF"
	at := strings.IndexFunc(s, func(c rune) bool { return c == '%' || c >= 0x80 })
	if at < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 8)
	b.WriteString(s[:at])
	for i := at; i < len(s); i++ {
		c, ok := escapeAt(s, i)
		switch {
		case ok && letter(c):
			b.WriteByte(c)
			i += 2
			continue
		case ok:
			i += 2
		default:
			c = s[i]
		}
		if ok || c >= 0x80 {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	if b.String() == s {
		return s
	}
	return b.String()
}

func isUnreserved(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// isLetter reports whether an escaped byte is one of a segment for every server that
// resolves escapes at all.
func isLetter(c byte) bool {
	return c > ' ' && c < 0x7f && !strings.ContainsRune(`%/\?#`, rune(c))
}

// unescapePercent makes one escape of what is escaped twice: %252E becomes %2E.
func unescapePercent(s string) string {
	if !strings.Contains(s, "%25") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		b.WriteByte(s[i])
		if c, ok := escapeAt(s, i); ok && c == '%' && i+4 < len(s) && unhex(s[i+3]) <= 15 && unhex(s[i+4]) <= 15 {
			i += 2
		}
	}
	return b.String()
}

// unescapeSlashes makes separators of escaped slashes, and unescapeBackslashes of escaped
// backslashes, which few servers do.
func unescapeSlashes(s string) string { return unescapeTo(s, '/') }

func unescapeBackslashes(s string) string { return unescapeTo(s, '\\') }

// unescapeTo makes separators of the escapes of one byte.
func unescapeTo(s string, separator byte) string {
	if !strings.Contains(s, "%") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := 0; i < len(s); i++ {
		if c, ok := escapeAt(s, i); ok && c == separator {
			b.WriteByte('/')
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// cutParameters removes what follows ";" in each segment.
func cutParameters(s string) string {
	if !strings.Contains(s, ";") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	cut := false
	for i := range len(s) {
		if s[i] == ';' || s[i] == '/' {
			cut = s[i] == ';'
		}
		if !cut {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// cutQuery ends a path at an escaped "?" or "#", as a server that resolves escapes, writes a
// path of that, and has it read again.
func cutQuery(s string) string {
	for i := 0; ; i++ {
		next := strings.IndexByte(s[i:], '%')
		if next < 0 {
			return s
		}
		i += next
		if c, ok := escapeAt(s, i); ok && i > 0 && (c == '?' || c == '#') {
			return s[:i]
		}
	}
}

// cutBlanks ends a path before the bytes at its end that are blanks in Latin 1, as
// servers do which read a request's line in that.
func cutBlanks(s string) string {
	for s != "" && (s[len(s)-1] == 0x85 || s[len(s)-1] == 0xa0) {
		s = s[:len(s)-1]
	}
	return s
}

// mergeSlashes makes one slash of each run of them.
func mergeSlashes(s string) string {
	if !strings.Contains(s, "//") {
		return s
	}
	var b strings.Builder
	b.Grow(len(s))
	for i := range len(s) {
		if s[i] != '/' || i == 0 || s[i-1] != '/' {
			b.WriteByte(s[i])
		}
	}
	return b.String()
}

// resolveDots removes dot segments; an empty segment is one like others. What ends in a
// dot segment ends in a slash. It returns s itself if there is none.
func resolveDots(s string) string {
	if !strings.Contains(s, "/.") {
		return s
	}
	out := make([]byte, 0, len(s)+1)
	changed := false
	for rest := s; rest != ""; {
		segment := rest[1:]
		end := strings.IndexByte(segment, '/')
		if end >= 0 {
			segment, rest = segment[:end], segment[end:]
		} else {
			rest = ""
		}
		switch segment {
		case ".", "..":
			changed = true
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
	switch {
	case !changed:
		return s
	case len(out) == 0:
		return "/"
	}
	return string(out)
}
