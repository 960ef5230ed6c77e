package envoy

import (
	"strings"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// A CGI or WSGI server makes HTTP_X_METE_CLASS of X-Mete-Class and of X_Mete_Class alike, so
// that what mete tells the API could be forged by the other spelling (case C154). Envoy
// passes both unless it is told otherwise.

// ownUnderscored are the spellings of mete's own headers with underscores.
func ownUnderscored() [15]string {
	return [...]string{
		"x_mete_tenant", "x-mete_tenant", "x_mete-tenant",
		"x_mete_principal", "x-mete_principal", "x_mete-principal",
		"x_mete_class", "x-mete_class", "x_mete-class",
		"x_quota_decision", "x-quota_decision", "x_quota-decision",
		"x_quota_state", "x-quota_state", "x_quota-state",
	}
}

// unforge appends, to the headers that Envoy removes, the spellings with underscores of
// mete's own headers, whether the request has them or not, and of the headers that the
// app trusts as sources: the one with underscores alone, and what else the request has.
func (a *answer) unforge(b []byte, seen []authz.Field) []byte {
	own := ownUnderscored()
	for i := range own {
		b = putText(b, 5, own[i])
	}
	id := &a.app.Identity
	for _, sources := range [...][]plan.Source{id.Tenant, id.Principal} {
		for i := range sources {
			if ownHeader(&sources[i]) {
				b = a.unforgeSource(b, sources[i].Name, seen)
			}
		}
	}
	return b
}

// unforgeSource appends the spellings of one header.
func (a *answer) unforgeSource(b []byte, name string, seen []authz.Field) []byte {
	if !strings.Contains(name, "-") {
		return b
	}
	b = putUnderscored(b, name)
	for i := range seen {
		if other := seen[i].Name; other != name && strings.Contains(other, "_") && sameButUnderscores(other, name) {
			b = putText(b, 5, other)
		}
	}
	return b
}

// putUnderscored appends name with an underscore for each hyphen.
func putUnderscored(b []byte, name string) []byte {
	b, m := open(b, 5)
	for i := range len(name) {
		if name[i] == '-' {
			b = append(b, '_')
			continue
		}
		b = append(b, name[i])
	}
	return shut(b, m)
}

// sameButUnderscores reports whether two names are one for a server that makes an
// underscore of each hyphen and does not compare capitals.
func sameButUnderscores(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if x, y := underscored(a[i]), underscored(b[i]); x != y {
			return false
		}
	}
	return true
}

func underscored(c byte) byte {
	switch {
	case c == '-':
		return '_'
	case c >= 'A' && c <= 'Z':
		return c + 'a' - 'A'
	}
	return c
}
