package authz

import (
	"time"

	"github.com/meteproject/mete/plan"
)

// A Use is one change of what a quota counts: the sum of all is what the accounts say.
type Use struct {
	// At is when the request was decided, also of what is given back or charged later:
	// it belongs to that hour.
	At                       time.Time
	App, Tenant, Limit, Unit string // Tenant is the node that was charged
	Window                   string // its id
	Class, Principal, Route  string
	Attribution              string // the value of the header that the app attributes by
	Units                    int64  // below 0: given back
}

// maxAttribution is the longest value that usage is attributed to; more is cut off.
const maxAttribution = 128

// attribution returns the value of the header that usage is attributed by.
func attribution(req *Request, header string) string {
	value, _ := req.Header(header)
	return value[:min(len(value), maxAttribution)]
}

// tellCharges tells what dec was charged.
func (d *Decider) tellCharges(dec *Decision) { d.tell(dec, 1) }

// tellGivenBack tells that dec's charges are undone.
func (d *Decider) tellGivenBack(dec *Decision) { d.tell(dec, -1) }

func (d *Decider) tell(dec *Decision, sign int64) {
	if d.told == nil || dec.shared {
		return
	}
	for i := range dec.charges {
		c := &dec.charges[i]
		if c.purse == nil || c.n == 0 {
			continue
		}
		key := c.purse.Key()
		d.told(&Use{
			At: dec.ID.Time(), App: dec.App.Name, Tenant: key.Tenant, Limit: key.Limit, Unit: c.unit, Window: key.Window,
			Class: dec.Class, Principal: dec.Principal, Route: dec.Route, Attribution: dec.attribution, Units: sign * c.n,
		})
	}
}

// tellCorrection tells what a settlement changed.
func (d *Decider) tellCorrection(r *Reservation, c *Charged, units int64) {
	if d.told == nil || units == 0 {
		return
	}
	d.told(&Use{
		At: r.Decision.Time(), App: r.App, Tenant: c.Node, Limit: c.Limit, Unit: c.Unit, Window: c.Window,
		Class: r.Class, Principal: r.Principal, Route: plan.RouteName(r.Route), Attribution: r.Attribution, Units: units,
	})
}
