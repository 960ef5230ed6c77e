package envoy

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// assign finds out who answers each descriptor of a domain with an app bound to it,
// rules of its own, both or neither. An error says what is wrong with the request;
// nothing was settled or counted then. What a caller may have sent is never an error: it
// would void all limits of the request where the filter fails open.
func (c *limitCall) assign(app *plan.App, domain *plan.Domain) error {
	c.bound, c.words = app != nil, app
	if domain != nil {
		c.words = domain.App
	}
	if c.beyond > 0 && c.words != nil {
		c.misread = uint64(c.beyond) //nolint:gosec // never below 0
		c.unread = &wireError{"descriptors", "more than 1000; all are refused"}
		return nil
	}
	for i := range c.items {
		var err error
		switch d := &c.items[i]; {
		case d.settles && !c.ruled(d, domain):
			d.to = toSettler
		case app != nil && d.named:
			err = c.toApp(i, app)
		case d.from < d.until || d.over.given:
			err = c.toRules(i, app, domain)
		}
		if err != nil {
			return err
		}
	}
	if n := len(c.apps); cap(c.decs) >= n {
		c.decs = c.decs[:n]
	} else {
		c.decs = make([]authz.Decision, n)
	}
	return nil
}

// ruled reports whether the domain's documents have a rule for a descriptor: the author who wrote
// one for entries called "reservation" means their own.
func (c *limitCall) ruled(d *descriptor, domain *plan.Domain) bool {
	if domain == nil || domain.Table == nil {
		return false
	}
	var m *plan.DescriptorMatch
	m, c.scratch = domain.Table.Match(c.entries[d.from:d.until], c.scratch[:0])
	return m != nil
}

// unnamedRefund would mint units.
func unnamedRefund(i int) error {
	return &wireError{
		fmt.Sprintf("descriptors[%d].is_negative_hits", i),
		"a refund must name its request: add an entry \"reservation\" with the text of that name from the metadata of the answer that admitted it",
	}
}

// toApp lets the app that is bound to the domain decide descriptor i. An override is
// ignored: the tenant's plan holds.
func (c *limitCall) toApp(i int, app *plan.App) error {
	d := &c.items[i]
	if d.giveBack {
		return unnamedRefund(i)
	}
	if d.tenant == "" {
		return nil
	}
	c.readUnits(i, app)
	d.to, d.at = toApp, len(c.apps)
	c.apps = append(c.apps, i)
	return nil
}

// toRules lets the domain's own rules count descriptor i. Where there are none, nothing
// limits it.
func (c *limitCall) toRules(i int, app *plan.App, domain *plan.Domain) error {
	d := &c.items[i]
	if d.giveBack && app != nil && domain == nil {
		return unnamedRefund(i)
	}
	ask := authz.DescriptorAsk{Entries: c.entries[d.from:d.until:d.until], Hits: c.hits, Refund: d.giveBack}
	if d.own {
		ask.Hits = d.hits
	}
	var wrong error
	if d.cut {
		wrong = &wireError{fmt.Sprintf("descriptors[%d].entries", i), "more than 64, or more than 64 KiB in a key or value"}
	}
	if d.over.given && domain != nil && domain.Settings.Overrides {
		over, err := d.over.limit(i)
		if ask.HasOverride = err == nil; ask.HasOverride {
			ask.Override = over
		} else {
			wrong = err
		}
	}
	if wrong != nil && domain != nil {
		ask.Unreadable = !ask.HasOverride
		c.unread = cmp.Or(c.unread, wrong)
		c.misread++
	}
	d.to, d.at = toRules, len(c.asks)
	c.asks = append(c.asks, ask)
	return nil
}

// readUnits reads the entry "units" of descriptor i: a whole number is that of hits, for
// where Envoy sends no hits_addend, and else NAME=N, for as many units as there are,
// tells what the request reserves. What nobody can read is as if it were not there, and
// counted: callers may have sent it, and an error would void all limits of the request.
func (c *limitCall) readUnits(i int, app *plan.App) {
	d := &c.items[i]
	if d.reserves == "" {
		return
	}
	if !strings.Contains(d.reserves, "=") {
		n, ok := wholeNumber(d.reserves)
		switch {
		case !ok:
			c.unreadable++
		case !d.own:
			d.hits, d.own = n, true
		}
		return
	}
	from := len(c.units)
	for part := range strings.SplitSeq(d.reserves, ",") {
		name, number, _ := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		n, ok := wholeNumber(number)
		if !ok || !hasUnit(app, name) || said(c.units[from:], name) {
			c.units = c.units[:from]
			c.unreadable++
			return
		}
		c.units = append(c.units, authz.UnitAmount{Unit: name, Amount: n})
	}
	d.unitsFrom, d.unitsUntil = from, len(c.units)
}

func hasUnit(app *plan.App, name string) bool {
	for i := range app.Units {
		if app.Units[i].Name == name {
			return true
		}
	}
	return name == plan.DefaultUnit
}

func said(units []authz.UnitAmount, name string) bool {
	for i := range units {
		if units[i].Unit == name {
			return true
		}
	}
	return false
}

// wholeNumber reads a number that is written as digits. One that is larger than any
// limit is as good as the largest.
func wholeNumber(s string) (n int64, ok bool) {
	s = strings.TrimSpace(s)
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		n = min(10*n+int64(s[i]-'0'), plan.MaxAmount)
	}
	return n, s != ""
}

// request makes c.req the request that the k-th descriptor of the app speaks of.
func (c *limitCall) request(k int) {
	d := &c.items[c.apps[k]]
	c.req = authz.Request{
		Domain: c.domain, Method: d.method, Path: d.path,
		Tenant: d.tenant, Route: d.route, Class: d.class, Hits: c.hits,
		Units: c.units[d.unitsFrom:d.unitsUntil],
	}
	if d.own {
		c.req.Hits, c.req.CheckOnly = d.hits, d.hits == 0
	}
}
