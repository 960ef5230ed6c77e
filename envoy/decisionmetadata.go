package envoy

import (
	"strconv"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// metadata appends the dynamic metadata of the answer: flat texts, since Envoy's
// rate limit actions and log formatters read nothing else. Entries of the access
// log carry it too, which is how a request is settled.
//
//	v          "1", the version of this list
//	decision   the id
//	outcome    "allowed", "grace", "rate_limited"...
//	app, tenant, principal, class, route
//	limits     what was charged to quotas; see charges. Absent on refusals
//	limit, node  what refused. Absent on admission
func (a *answer) metadata(b []byte) []byte {
	b, m := open(b, 4)
	b = metaText(b, "v", "1")
	a.scratch = a.d.ID.Append(a.scratch[:0])
	b = metaText(b, "decision", text(a.scratch))
	b = metaText(b, "outcome", a.d.Outcome.Word())
	b = metaText(b, "app", a.app.Name)
	b = metaText(b, "tenant", a.d.Tenant)
	b = metaText(b, "principal", a.d.Principal)
	b = metaText(b, "class", a.d.Class)
	b = metaText(b, "route", a.d.Route)
	if a.d.Outcome.Admits() {
		a.scratch = charges(a.scratch[:0], a.d.Limits)
		b = metaText(b, "limits", text(a.scratch))
	} else if w := a.worst(); w != nil {
		b = metaText(b, "limit", w.Limit.Name)
		b = metaText(b, "node", w.Tenant)
	}
	return shut(b, m)
}

// metaText appends a field of a Struct. Without a value there is no field.
func metaText(b []byte, key, value string) []byte {
	if value == "" {
		return b
	}
	b, e := open(b, 1)
	b = putText(b, 1, key)
	b, v := open(b, 2)
	b = putText(b, 3, valid(value))
	b = shut(b, v)
	return shut(b, e)
}

// charges appends what a request was charged to quotas, as
//
//	node|limit|units|window;node|limit|units|window
//
// with "%", "|" and ";" in names written as %25, %7C and %3B.
func charges(b []byte, limits []authz.LimitState) []byte {
	for i := range limits {
		l := &limits[i]
		if l.Limit.Kind != plan.Quota || l.Asked == 0 || l.Looked {
			continue
		}
		if len(b) > 0 {
			b = append(b, ';')
		}
		b = append(escaped(b, l.Tenant), '|')
		b = append(escaped(b, l.Limit.Name), '|')
		b = append(strconv.AppendInt(b, l.Asked, 10), '|')
		b = escaped(b, l.WindowID)
	}
	return b
}

func escaped(b []byte, s string) []byte {
	for i := range len(s) {
		switch s[i] {
		case '%':
			b = append(b, "%25"...)
		case '|':
			b = append(b, "%7C"...)
		case ';':
			b = append(b, "%3B"...)
		default:
			b = append(b, s[i])
		}
	}
	return b
}
