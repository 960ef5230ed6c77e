package authz

import "time"

// A Reservation is what an admitted request was charged, as its token tells: Envoy
// carries the token from the answer to the access log.
type Reservation struct {
	Decision ID
	// Replica is the process that decided, and Number the reservation's number
	// there, from 1: together they tell a repeat.
	Replica uint64
	Number  uint64

	App, Root, Class, Route, Principal, Attribution string

	Charges []Charged
}

// A Charged is one quota that a request was charged to.
type Charged struct {
	Node, Limit, Unit string
	Window            string // its id
	Units             int64
	Uncovered         int64 // of Units, that no lease covered
}

// A Measured is what a request has used of each charge of its reservation, in the
// order of the charges.
type Measured struct {
	Used []int64
	Free bool // it does not cost
	Long bool // it took longer than leases are liable for (A48)
}

// Seal appends the token of what dec and more, all of one app, were charged to quotas.
// It appends nothing if that is nothing. A later GiveBack of dec makes it void.
func (d *Decider) Seal(dst []byte, now time.Time, dec *Decision, more []Decision) []byte { return dst }

// Open reads a token into r, whose strings may point into it. It returns
// SettledForged or SettledMalformed if it cannot be believed, else 0.
func (d *Decider) Open(token string, r *Reservation) Settled { return 0 }

// Measure finds out what a request has used, by how it ended.
func (d *Decider) Measure(r *Reservation, e *Ending, m *Measured) {}

// MeasureUnits is Measure where a number of units is all that is known of the end: they
// are what was used of unit, or what of it is given back. An empty unit is the one that
// the route measures, or else requests.
func (d *Decider) MeasureUnits(r *Reservation, unit string, n int64, giveBack bool, m *Measured) Settled {
	return 0
}

// Here tells whether this process has decided r.
func (d *Decider) Here(r *Reservation) bool { return false }

// Settle replaces what r reserved by what was measured, at most once. It is for the
// process that decided, or, once that is gone, for the one that takes its place.
func (d *Decider) Settle(now time.Time, r *Reservation, m *Measured) Settled { return 0 }
