package authz

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/meteproject/mete/plan"
)

// An openReservation is one that the app may report on or extend.
type openReservation struct {
	id     ID
	made   time.Time
	leaf   string
	minute time.Time
	checks bool // false: it is charged whatever there is
	only   []string
	units  []string // that may be reported

	age, own openLink // guarded by the lock of openReservations

	mu       sync.Mutex
	r        Reservation      // guarded by mu; Charges are what counts now
	reported map[string]int64 // guarded by mu
	told     map[string]bool  // guarded by mu: an earlier source has told the number
	extended bool             // guarded by mu
	ended    bool             // guarded by mu: the log has told of the end
	void     bool             // guarded by mu: forgotten, or given back: nothing is reported any more
}

// reports reports whether the app may report what dec's request used.
func (d *Decision) reports() bool {
	return d.rule != nil && slices.ContainsFunc(d.rule.Units, canReport)
}

func canReport(res plan.Reserve) bool { return reported(&res) }

// put keeps a reservation of dec. It copies what r points to.
func (o *openReservations) put(now time.Time, dec *Decision, r *Reservation) {
	one := &openReservation{
		id: dec.ID, made: now, leaf: dec.leaf, minute: dec.minute, checks: dec.check, only: dec.only,
		r: *r, reported: map[string]int64{}, told: map[string]bool{},
	}
	one.r.unescaped, one.r.Charges = nil, slices.Clone(r.Charges)
	one.r.Attribution = strings.Clone(r.Attribution) // all others outlive the request
	for i := range dec.rule.Units {
		if reported(&dec.rule.Units[i]) {
			one.units = append(one.units, dec.rule.Units[i].Unit)
		}
	}
	o.add(one)
}

// forget forgets what is too old or too many. What the app has reported stays: nothing
// that comes later may be reckoned from what was reserved at first.
func (d *Decider) forget(now time.Time) {
	for o := d.open.next(now); o != nil; o = d.open.next(now) {
		o.mu.Lock()
		o.void = true
		reported := len(o.reported) > 0
		if reported {
			d.numbers.settle(o.r.Number, now)
		}
		o.mu.Unlock()
		d.open.pass(now, o, reported)
	}
}

// void makes dec's token void. It reports whether it could: not if somebody has heard the
// answer.
func (d *Decider) void(now time.Time, dec *Decision) bool {
	number := dec.number
	dec.number = 0
	o := d.open.find(dec.ID)
	if o == nil {
		return d.numbers.settle(number, now) == 0
	}
	o.mu.Lock()
	o.void = !o.extended && len(o.reported) == 0 && d.numbers.settle(number, now) == 0
	void := o.void
	o.mu.Unlock()
	if void {
		d.open.drop(o.id)
	}
	return void
}

// add adds a charge to what is reserved. The caller holds o's lock.
func (o *openReservation) add(c *Charged) {
	for i := range o.r.Charges {
		have := &o.r.Charges[i]
		if have.Node == c.Node && have.Root == c.Root && have.Limit == c.Limit && have.Window == c.Window {
			have.Units += c.Units
			have.Uncovered += c.Uncovered
			return
		}
	}
	o.r.Charges = append(o.r.Charges, *c)
}

// heirs are the numbers of processes that are gone, whose reservations are settled here.
type heirs struct {
	room func(PageName) *Page // as of numbers

	mu      sync.Mutex
	all     map[uint64]*numbers
	use     []uint64 // the least lately used first
	missing int64    // of those that are forgotten
}

// maxHeirs is how many gone processes are remembered: 8 KiB and more each.
const maxHeirs = 256

// drop forgets the least lately used. The caller holds the lock.
func (h *heirs) drop() {
	n := h.all[h.use[0]]
	delete(h.all, h.use[0])
	h.use = slices.Delete(h.use, 0, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	for index := range n.pages {
		n.giveUp(index)
	}
	h.missing += n.missing
	n.floor = n.top + 1 // somebody may just be about to settle one
}

func (h *heirs) of(process uint64) *numbers {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n := h.all[process]; n != nil {
		if i := slices.Index(h.use, process); i < len(h.use)-1 {
			h.use = append(slices.Delete(h.use, i, i+1), process)
		}
		return n
	}
	if h.all == nil {
		h.all = make(map[uint64]*numbers)
	}
	if len(h.use) == maxHeirs {
		h.drop()
	}
	n := &numbers{process: process, gone: true, room: h.room}
	h.all[process], h.use = n, append(h.use, process)
	return n
}
