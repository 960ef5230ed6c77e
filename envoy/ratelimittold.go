package envoy

import (
	"time"

	"github.com/meteproject/mete/authz"
)

// mostTold is how many limits of a request headers and bodies tell of.
const mostTold = 32

// tell makes c.told what clients are told of c.count: each counter once, none that
// nobody is refused by, and in place of the names of counters, which hold what Envoy
// read from the request (an API key, say), that of the domain.
func (c *limitCall) tell(now time.Time) {
	n, d := &c.count, &c.told
	if n.Domain == nil {
		return // told is empty
	}
	d.Reset()
	d.Outcome, d.Why, d.App, d.RetryAfter = n.Outcome, n.Why, n.Domain.App, n.RetryAfter
	if n.Refused() {
		d.ID = authz.NewID(now)
	}
	for i := range n.Items {
		if it := &n.Items[i]; it.State.Limit != nil && !it.Replaced && !c.shadowed(i) {
			c.tellOf(i)
		}
	}
}

// shadowed reports whether a limit is on trial: clients that keep to it would spoil the
// trial. A limit of Envoy's own stands alone, whatever the rule in whose place it holds.
func (c *limitCall) shadowed(i int) bool {
	it := &c.count.Items[i]
	return it.Shadowed || c.count.Domain.Settings.ShadowMode || it.Match != nil && it.Match.Rule.Shadow && !c.asks[i].HasOverride
}

func (c *limitCall) tellOf(i int) {
	n, d := &c.count, &c.told
	st := n.Items[i].State
	st.Refused = n.Items[i].Over && n.Refused()
	counter := st.Tenant
	st.Tenant = n.Domain.Name
	at := 0
	for at < len(d.Limits) && (c.counters[at] != counter || d.Limits[at].Limit.Name != st.Limit.Name) {
		at++
	}
	room := mostTold
	if n.Worst > i {
		room-- // for that one
	}
	switch {
	case at < len(d.Limits):
		if nearer(&st, &d.Limits[at]) {
			d.Limits[at] = st
		}
	case at >= room:
		return
	default:
		d.Limits, c.counters = append(d.Limits, st), append(c.counters, counter)
	}
	if i == n.Worst && n.Refused() {
		d.Worst = at
	}
}
