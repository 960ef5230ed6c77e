package plan

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// readName reads a name that people choose.
func (r *reader) readName(n *node, path string) (string, bool) {
	s, ok := r.text(n, path)
	if !ok || r.checkName(n, path, s) {
		return s, ok
	}
	return "", false
}

func (o *object) name(name string) string {
	n := o.field(name)
	if n == nil {
		return ""
	}
	s, _ := o.readName(n, o.at(name))
	return s
}

func (r *reader) checkName(n *node, path, s string) bool {
	if isName(s) {
		return true
	}
	r.fail(n, path, "names are a-z, 0-9, _ and -, and start with a letter; write %s", suggestName(s))
	return false
}

func isName(s string) bool {
	if s == "" || len(s) > 63 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

func suggestName(s string) string {
	s = strings.Map(func(c rune) rune {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
			return c
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		}
		return '_'
	}, s)
	s = strings.TrimLeft(s, "0123456789_-")
	if s = s[:min(len(s), 63)]; s == "" {
		return "a name such as per_second"
	}
	return s
}

// MaxTenantName is how many bytes the name of a tenant may have.
const MaxTenantName = 256

// tenant reads the name of a tenant.
func (r *reader) tenant(n *node, path string) (string, bool) {
	s, ok := r.text(n, path)
	if ok && !IsTenant(s) {
		r.fail(n, path, "%q is not a tenant; write 1 to %d bytes, such as org:acme, without commas and without blanks at the ends", short(s), MaxTenantName)
		return "", false
	}
	return s, ok
}

// IsTenant reports whether s may be the name of a tenant: 1 to MaxTenantName bytes of
// UTF-8 without control characters, commas, and blanks at its ends. Every other spelling
// is another tenant.
func IsTenant(s string) bool {
	if s == "" || len(s) > MaxTenantName || s[0] == ' ' || s[len(s)-1] == ' ' {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; {
		case c >= utf8.RuneSelf:
			return isWideTenant(s)
		case c < ' ' || c == ',' || c == 0x7f:
			return false
		}
	}
	return true
}

// isWideTenant is IsTenant for names that are not ASCII.
func isWideTenant(s string) bool {
	first, _ := utf8.DecodeRuneInString(s)
	last, _ := utf8.DecodeLastRuneInString(s)
	return utf8.ValidString(s) && !unicode.IsSpace(first) && !unicode.IsSpace(last) &&
		!strings.ContainsFunc(s, func(c rune) bool { return c == ',' || isControl(c) })
}

// isTypedTenant reports whether s is spelled as versions below level 5 want a tenant's
// name: "org:acme".
func isTypedTenant(s string) bool {
	const (
		lower = "abcdefghijklmnopqrstuvwxyz"
		id    = lower + "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
	)
	kind, rest, ok := strings.Cut(s, ":")
	return ok && kind != "" && strings.Trim(kind, lower) == "" && rest != "" && len(rest) <= 120 && strings.Trim(rest, id) == ""
}
