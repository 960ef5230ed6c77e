package authz

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteproject/mete/quota"
)

// release notes that the request of c has ended, or was given back. The caller holds the
// lock of c's node.
func (c *charge) release(at quota.Instant, id ID) {
	if c.held != notHeld {
		c.purse.Release(at, id.Time().UnixNano(), c.n, c.held == heldMeasured)
		c.held = notHeld
	}
}

// endOne is release for one charge of a request that has ended.
func (d *Decider) endOne(now time.Time, c *charge, id ID) {
	c.node.mu.Lock()
	defer c.node.mu.Unlock()
	c.release(d.keeper.Instant(now), id)
}

// released notes that the request of r, which this process admitted, has ended: what it
// was charged of its units, as charges say, is that of a running one no more.
func (d *Decider) released(now time.Time, r *Reservation, charges []Charged, ended func(unit string) bool) {
	if !d.Here(r) {
		return
	}
	at, began := d.keeper.Instant(now), r.Decision.Time().UnixNano()
	tariff := d.tariffOf(r)
	for i := range charges {
		c := &charges[i]
		if c.Window == "" || c.Units == 0 || !ended(c.Unit) {
			continue
		}
		n := d.active.find(c.Node, at)
		if n == nil {
			continue
		}
		n.mu.Lock()
		if p := n.purseOf(quota.Key{Root: c.Root, Tenant: c.Node, Limit: c.Limit, Window: c.Window}); p != nil {
			p.Release(at, began, c.Units, tariff.Unit(c.Unit) != nil)
		}
		n.mu.Unlock()
	}
}

// allUnits is what to tell released of a request that has ended.
func allUnits(string) bool { return true }

// durations are how long the requests of routes usually run. It is safe for concurrent use.
type durations struct {
	routes sync.Map // routeOf to *atomic.Int64, nanoseconds
	known  atomic.Int64
}

type routeOf struct{ app, route string }

// mostDurations is how many routes are remembered. Their names are those of documents.
const mostDurations = 10_000

// note takes in how long a request ran; 0: it is not known. Each new one counts an eighth.
func (d *durations) note(app, route string, took time.Duration) {
	if took <= 0 {
		return
	}
	v, ok := d.routes.Load(routeOf{app, route})
	if !ok {
		if d.known.Add(1) > mostDurations {
			return
		}
		v, _ = d.routes.LoadOrStore(routeOf{strings.Clone(app), strings.Clone(route)}, new(atomic.Int64))
	}
	usual, ok := v.(*atomic.Int64)
	if !ok {
		return
	}
	if usual.CompareAndSwap(0, int64(took)) {
		return
	}
	before := usual.Load()
	usual.CompareAndSwap(before, before+(int64(took)-before)/8) // one that is lost in a race is one of many
}

// of returns how long requests of a route usually run, and whether that is known.
func (d *durations) of(app, route string) (usual time.Duration, known bool) {
	v, _ := d.routes.Load(routeOf{app, route})
	if n, ok := v.(*atomic.Int64); ok && n.Load() > 0 {
		return time.Duration(n.Load()), true
	}
	return 0, false
}
