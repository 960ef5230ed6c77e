package plan

import (
	"strings"
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

// tenant reads the name of a tenant.
func (r *reader) tenant(n *node, path string) (string, bool) {
	s, ok := r.text(n, path)
	if ok && !IsTenant(s) {
		r.fail(n, path, "%q is no tenant; write TYPE:ID, such as org:acme, with a-z before the colon and A-Z, a-z, 0-9, ., _ and - after it", short(s))
		return "", false
	}
	return s, ok
}

// IsTenant tells whether s is spelled as a tenant's name: "org:acme".
func IsTenant(s string) bool {
	kind, id, ok := strings.Cut(s, ":")
	if !ok || kind == "" || id == "" || len(id) > 120 {
		return false
	}
	for i := range len(kind) {
		if kind[i] < 'a' || kind[i] > 'z' {
			return false
		}
	}
	for i := range len(id) {
		c := id[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '.' && c != '_' && c != '-' {
			return false
		}
	}
	return true
}
