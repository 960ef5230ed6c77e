package envoy

import "github.com/meteproject/mete/authz"

// Names in the metadata that come back by the access log.
const (
	metaOutcome     = "outcome"
	metaReservation = "reservation"
)

// metadata appends the dynamic metadata of the answer as field num: flat texts, since
// Envoy's rate limit actions and log formatters read nothing else. Entries of the
// access log carry it too, which is how a request is settled.
//
//	v            "1", the version of this list
//	decision     the id
//	outcome      "allowed", "grace", "rate_limited"...
//	app, tenant, principal, class, route
//	reservation  the token of what was charged to quotas, also those of more.
//	             Absent on refusals, and where that is nothing
//	limit, node  what refused. Absent on admission
func (a *answer) metadata(b []byte, num fieldNumber, by Decider, more []authz.Decision) []byte {
	b, m := open(b, num)
	return shut(a.decided(b, by, more), m)
}

// decided appends the fields of the metadata.
func (a *answer) decided(b []byte, by Decider, more []authz.Decision) []byte {
	b = metaText(b, "v", "1")
	a.scratch = a.d.ID.Append(a.scratch[:0])
	b = metaText(b, "decision", text(a.scratch))
	b = metaText(b, metaOutcome, a.d.Outcome.Word())
	b = metaText(b, "app", a.app.Name)
	b = metaText(b, "tenant", a.d.Tenant)
	b = metaText(b, "principal", a.d.Principal)
	b = metaText(b, "class", a.d.Class)
	b = metaText(b, "route", a.d.Route)
	if a.d.Outcome.Admits() {
		a.scratch = by.Seal(a.scratch[:0], a.now, a.d, more)
		b = metaText(b, metaReservation, text(a.scratch))
	} else if w := a.worst(); w != nil {
		b = metaText(b, "limit", w.Limit.Name)
		b = metaText(b, "node", w.Tenant)
	}
	return b
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
