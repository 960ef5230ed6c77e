package quota

import (
	"errors"
)

// next returns the operation that p needs now, or nil. The caller holds p's lock.
// An operation of unknown outcome is repeated as it was, until it is known.
func (p *Purse) next(now Instant, k *Keeper) *Operation {
	p.reviewAt, p.poked = 0, false
	if p.op != nil {
		return p.op
	}
	p.join(k.incarnation())
	p.dropSpoiled(now)
	want, least := p.wish(now)
	p.dropSpoiled(now) // an empty lot is closed: nothing may be put back into it
	if want == 0 && p.idle(now) {
		p.lots, p.batch = nil, 0 // idle purses are closed, not renewed
	}
	hold := p.hold()
	if want == 0 && p.held == sum(hold) && p.used == p.reported {
		p.plan(now)
		return nil
	}
	op := &Operation{
		Key: p.key, App: p.terms.App, Holder: p.holder, Seq: p.seq + 1,
		Used: p.used, Hold: hold, Want: want, Min: least,
		Ceiling: p.terms.Ceiling, Replicas: k.replicas(), Version: p.terms.Version,
	}
	if want > 0 {
		op.Guards = p.terms.Guards
	}
	if p.seq == 0 && !p.contacted && k.mayHaveForerunner() {
		op.Seq, op.Want, op.Used, op.Hold, op.Guards = 0, 0, 0, nil, nil
	}
	p.op, p.opTerms, p.opAsked = op, p.terms, now
	return op
}

// join makes p count under the keeper's present incarnation. What the last one
// reported stays where it was reported; only the rest goes on (design 6.4).
func (p *Purse) join(holder string) {
	if p.holder == holder {
		return
	}
	if p.holder != "" {
		p.used -= p.reported
		p.others += p.reported
		p.lots, p.batch = nil, 0
		p.held, p.contacted = 0, false
	}
	p.holder, p.seq, p.reported = holder, 0, 0
}

// wish returns how many units to ask for, and the least that is of use.
func (p *Purse) wish(now Instant) (want, least int64) {
	if p.closing || p.terms.Counts || p.stale {
		return 0, 0
	}
	spendable := p.spendable(now)
	size := p.terms.Rule.Size(p.terms.Amount, p.demand.over(now, p.terms.Rule.Demand), p.need)
	switch {
	case p.need > spendable:
		least = p.need - spendable
		return max(size-spendable, least), least
	case p.spent && p.due(now) && !p.refused(now):
		p.trim(now, size-1) // what demand does not need any more goes back
		return size - p.spendable(now), 1
	}
	return 0, 0
}

// due tells whether the lease is to be renewed, by use or by age (A28, A29).
func (p *Purse) due(now Instant) bool {
	return p.renewable(now) || p.age(now) >= p.terms.Rule.RenewAfter
}

// idle tells whether p holds units that nobody has touched for as long as a lease
// is renewed after.
func (p *Purse) idle(now Instant) bool {
	return !p.spent && p.need == 0 && len(p.lots) > 0 && p.age(now) >= p.terms.Rule.RenewAfter
}

func (p *Purse) hold() []Lease {
	if len(p.lots) == 0 {
		return nil
	}
	hold := make([]Lease, 0, len(p.lots))
	for _, l := range p.lots {
		hold = append(hold, Lease{ID: l.id, Units: l.left})
	}
	return hold
}

func sum(leases []Lease) int64 { return Holder{Leases: leases}.leased() }

// plan sets the time of the next look at p: when its lease comes of age, or when
// what it used is due to be reported.
func (p *Purse) plan(now Instant) {
	if len(p.lots) == 0 && p.used == p.reported {
		return
	}
	from := max(p.filled.Mono, p.lastContact.Mono)
	p.keeper.review(p, max(from+int64(p.terms.Rule.RenewAfter), now.Mono+1))
}

// done takes in what became of p's operation. The caller holds p's lock. It tells
// whether the store is to be counted as failing.
func (p *Purse) done(now Instant, res Result, err error) (failed bool) {
	switch op := p.op; {
	case err == nil && op.Seq == 0:
		p.resume(now, res)
	case err == nil:
		p.applied(now, op, res)
	case errors.Is(err, ErrStale):
		p.op, p.stale = nil, true
		return false // the waiters look again a moment later, see Keeper.perform
	case errors.Is(err, ErrGone):
		p.op = nil
		return false
	case errors.Is(err, ErrNotApplied):
		p.op = nil
		p.wake()
		return true
	default:
		p.wake()
		return true
	}
	p.wake()
	return false
}

// resume goes on where a forerunner of p under the same incarnation ended.
func (p *Purse) resume(now Instant, res Result) {
	p.op, p.seq = nil, res.Seq
	p.contacted, p.lastContact = true, now
	p.used += res.Own
	p.reported = res.Own
	p.others = res.Used - res.Own
	p.keeper.poke(p)
}

func (p *Purse) applied(now Instant, op *Operation, res Result) {
	p.op, p.seq = nil, op.Seq
	p.reported, p.held = op.Used, sum(op.Hold)+res.Granted
	p.others = res.Used - op.Used
	p.contacted, p.lastContact = true, now
	if op.Want > 0 && !p.closing && p.terms.worth(p.opTerms) {
		p.renewed(now, op, res)
	}
	p.dropSpoiled(now)
	if len(p.lots) == 0 && p.held > 0 {
		p.keeper.poke(p) // granted under terms, or for a window, that are over
		return
	}
	p.plan(now)
}

// renewed takes in a lease. The leases that went on are renewed with it: the store
// has found the terms and this replica's liability in force, which is all that a
// new lease in their place would say.
func (p *Purse) renewed(now Instant, op *Operation, res Result) {
	for i := range p.lots {
		p.lots[i].asked = p.opAsked
	}
	p.refusal = refusal{}
	if res.Granted > 0 {
		p.lots = append(p.lots, lot{id: op.Seq, left: res.Granted, asked: p.opAsked})
	} else {
		p.refusal = refusal{at: now, left: max(0, res.Left), set: true}
	}
	p.filled, p.spent = p.opAsked, false
	p.batch = p.spendable(now)
}
