package authz

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/meteproject/mete/plan"
)

// maxOpen is how many reservations that the app may report on are kept. Past it the
// oldest go, and what is known of them stays.
const maxOpen = 100_000

// An openReservation is one that the app may report on or extend.
type openReservation struct {
	id     ID
	made   time.Time
	leaf   string
	minute time.Time
	units  []string // that may be reported

	mu       sync.Mutex
	r        Reservation      // guarded by mu; Charges are what counts now
	reported map[string]int64 // guarded by mu
	told     map[string]bool  // guarded by mu: an earlier source has told the number
}

// openReservations are those of one process. They are safe for concurrent use.
type openReservations struct {
	mu    sync.Mutex
	byID  map[ID]*openReservation
	order []*openReservation // by age; forgotten ones before first
	first int
}

// reports tells whether the app may report what dec's request used.
func (d *Decision) reports() bool {
	return d.rule != nil && slices.ContainsFunc(d.rule.Units, canReport)
}

func canReport(res plan.Reserve) bool { return reported(&res) }

// put keeps a reservation of dec. It copies what r points to.
func (o *openReservations) put(now time.Time, dec *Decision, r *Reservation) {
	one := &openReservation{
		id: dec.ID, made: now, leaf: dec.leaf, minute: dec.minute,
		r: *r, reported: map[string]int64{}, told: map[string]bool{},
	}
	one.r.unescaped, one.r.Charges = nil, slices.Clone(r.Charges)
	one.r.Attribution = strings.Clone(r.Attribution) // all others outlive the request
	for i := range dec.rule.Units {
		if reported(&dec.rule.Units[i]) {
			one.units = append(one.units, dec.rule.Units[i].Unit)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID = make(map[ID]*openReservation)
	}
	o.forget(now)
	o.byID[one.id] = one
	o.order = append(o.order, one)
}

// forget drops what is too old or too many. The caller holds the lock.
func (o *openReservations) forget(now time.Time) {
	for o.first < len(o.order) {
		oldest := o.order[o.first]
		if len(o.order)-o.first < maxOpen && now.Sub(oldest.made) < openFor {
			break
		}
		delete(o.byID, oldest.id)
		o.order[o.first] = nil
		o.first++
	}
	if o.first > len(o.order)/2 {
		o.order = slices.Delete(o.order, 0, o.first)
		o.first = 0
	}
}

// find returns an open reservation, or nil.
func (o *openReservations) find(id ID) *openReservation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byID[id]
}

// drop forgets a reservation whose request was given back.
func (o *openReservations) drop(id ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.byID, id)
}

// add adds a charge to what is reserved.
func (o *openReservation) add(c *charge) {
	if c.purse == nil {
		return
	}
	key := c.purse.Key()
	for i := range o.r.Charges {
		if have := &o.r.Charges[i]; have.Node == key.Tenant && have.Limit == key.Limit && have.Window == key.Window {
			have.Units += c.n
			have.Uncovered += c.uncovered
			return
		}
	}
	o.r.Charges = append(o.r.Charges, Charged{
		Node: key.Tenant, Limit: key.Limit, Unit: c.unit, Window: key.Window, Units: c.n, Uncovered: c.uncovered,
	})
}

// heirs are the numbers of processes that are gone, whose reservations are settled here.
type heirs struct {
	mu  sync.Mutex
	all map[uint64]*numbers
	use []uint64 // the least lately used first
}

// maxHeirs is how many gone processes are remembered: 8 KiB and more each.
const maxHeirs = 256

func (h *heirs) of(process uint64) *numbers {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.all[process]; n != nil {
		return n
	}
	if h.all == nil {
		h.all = make(map[uint64]*numbers)
	}
	if len(h.use) == maxHeirs {
		delete(h.all, h.use[0])
		h.use = h.use[1:]
	}
	n := new(numbers)
	h.all[process], h.use = n, append(h.use, process)
	return n
}
