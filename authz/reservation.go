package authz

import (
	"time"
	"unsafe"

	"github.com/meteproject/mete/plan"
)

// maxUnits is the most that one request can be charged or have used.
const maxUnits = plan.MaxAmount

// A Reservation is what an admitted request was charged, as its token tells: Envoy
// carries the token from the answer to the access log.
type Reservation struct {
	Decision ID
	// Replica is the process that decided, and Number the reservation's number
	// there, from 1: together they tell a repeat.
	Replica uint64
	Number  uint64
	Hits    int64 // what the costs of the route were multiplied by

	App, Class, Route, Principal, Attribution string

	// Replay is the hash of the request's idempotency key; zero: it had none.
	Replay  [16]byte
	Charges []Charged

	unescaped []byte
}

// A Charged is one limit that a request was charged to: a quota, or a rate limit of a
// unit that the route measures.
type Charged struct {
	Node, Limit, Unit string
	Root              string // of the tree that the node's account is in; "": a rate limit
	Window            string // its id; "": a rate limit
	Units             int64
	Uncovered         int64 // of Units, that no lease covered
}

// Reset makes r the zero Reservation, keeping its memory.
func (r *Reservation) Reset() {
	*r = Reservation{Charges: r.Charges[:0], unescaped: r.unescaped[:0]}
}

// Seal appends the token of what dec and more, all of one app, were charged to quotas
// at now. It appends nothing if that is nothing, or if there is no key yet. A later
// GiveBack of dec makes the token void; a second Seal is one of the same reservation.
func (d *Decider) Seal(dst []byte, now time.Time, dec *Decision, more []Decision) []byte {
	keys := d.seals.Load()
	charged := dec.charged()
	for i := range more {
		charged += more[i].charged()
	}
	switch {
	case charged == 0:
		return dst
	case keys == nil:
		d.forgetRunning(now, dec, more)
		d.stats.unsealed.Add(1)
		return dst
	}
	r, ok := d.reservations.Get().(*Reservation)
	if !ok {
		r = new(Reservation)
	}
	d.reserve(now, r, dec, more)
	head := len(dst)
	dst = append(dst, make([]byte, headSize)...)
	dst = r.put(dst)
	if len(dst)-head > maxToken {
		d.withdraw(now, dec, more)
		dst = dst[:head]
	} else {
		keys.sign.putSeal(dst[head:head+headSize], dst[head+headSize:])
		if d.keep != nil {
			d.keep(dst[head:])
		}
	}
	r.Reset()
	d.reservations.Put(r)
	return dst
}

// withdraw makes a reservation of dec and more void whose token nobody would read.
func (d *Decider) withdraw(now time.Time, dec *Decision, more []Decision) {
	_ = d.numbers.settle(dec.number, now)
	d.open.drop(dec.ID)
	dec.number = 0
	d.stats.unsealed.Add(1)
	d.forgetRunning(now, dec, more)
}

// forgetRunning makes what dec and more were charged that of running requests no more:
// nothing will say when they end.
func (d *Decider) forgetRunning(now time.Time, dec *Decision, more []Decision) {
	for i := range dec.charges {
		d.endOne(now, &dec.charges[i], dec.ID)
	}
	for i := range more {
		for j := range more[i].charges {
			d.endOne(now, &more[i].charges[j], more[i].ID)
		}
	}
}

// charged returns how many charges of dec can be settled.
func (d *Decision) charged() (n int) {
	if d.shared {
		return 0
	}
	for i := range d.charges {
		if d.settles(&d.charges[i]) {
			n++
		}
	}
	return n
}

// settles reports whether a charge can be settled. A bucket is about when a request came:
// only units that nobody knows before it has ended are put right.
func (d *Decision) settles(c *charge) bool {
	if c.purse != nil {
		return true
	}
	res := reserveOf(d.rule, c.unit)
	return res != nil && len(res.Use) > 0
}

// reserve numbers a reservation of dec and more, and fills r in.
func (d *Decider) reserve(now time.Time, r *Reservation, dec *Decision, more []Decision) {
	again := dec.number > 0
	if !again {
		dec.number = d.numbers.take(now)
	}
	r.Decision, r.Replica, r.Number, r.Hits = dec.ID, d.process, dec.number, dec.hits
	r.App, r.Class, r.Route, r.Principal, r.Attribution = dec.App.Name, dec.Class, dec.Route, dec.Principal, dec.attribution
	if dec.rule != nil {
		r.Route = d.current.Load().snapshot.Settlement(dec.rule)
	}
	r.Replay = dec.replayKey
	r.add(dec)
	for i := range more {
		r.add(&more[i])
	}
	if !again && dec.reports() {
		d.forget(now)
		d.open.put(now, dec, r)
	}
}

func (r *Reservation) add(dec *Decision) {
	if dec.shared {
		return
	}
	for i := range dec.charges {
		if c := &dec.charges[i]; dec.settles(c) {
			r.Charges = append(r.Charges, c.charged())
		}
	}
}

// charged returns what a token says of c.
func (c *charge) charged() Charged {
	if c.purse == nil {
		return Charged{Node: c.node.tenant, Limit: c.limit, Unit: c.unit, Units: c.n}
	}
	key := c.purse.Key()
	return Charged{
		Node: key.Tenant, Root: key.Root, Limit: key.Limit, Unit: c.unit, Window: key.Window, Units: c.n, Uncovered: c.uncovered,
	}
}

// Open reads a token into r, whose strings may point into it. It returns
// SettledForged or SettledMalformed if it cannot be believed, else 0.
func (d *Decider) Open(token string, r *Reservation) Settled {
	r.Reset()
	keys := d.seals.Load()
	switch {
	case len(token) <= headSize || len(token) > maxToken:
		return SettledMalformed
	case keys == nil:
		return SettledForged
	}
	b := unsafe.Slice(unsafe.StringData(token), len(token)) // read only
	if !keys.believes(b[:headSize], b[headSize:]) {
		return SettledForged
	}
	if !r.read(token[headSize:]) {
		return SettledMalformed
	}
	return 0
}

// Here reports whether this process has decided r.
func (d *Decider) Here(r *Reservation) bool { return r.Replica == d.process }

// reserveOf returns what rule says of a unit, or nil.
func reserveOf(rule *plan.Rule, unit string) *plan.Reserve {
	if rule == nil {
		return nil
	}
	for i := range rule.Units {
		if rule.Units[i].Unit == unit {
			return &rule.Units[i]
		}
	}
	return nil
}
