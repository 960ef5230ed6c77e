package quota

import (
	"errors"
)

// next returns the operation that p needs now, or nil. The caller holds p's lock.
// An operation of unknown outcome is repeated as it was, until it is known.
func (p *Purse) next(now Instant, k *Keeper) *Operation {
	p.poked = false
	if p.reviewAt <= now.Mono {
		p.reviewAt = 0
	}
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
	p.op, p.opTerms, p.opAsked, p.doubt = op, p.terms, now, false
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
	p.lookAt(max(from+int64(p.terms.Rule.RenewAfter), now.Mono+1))
}

// lookAt plans a look at p, unless an earlier one is planned: that plans the next.
func (p *Purse) lookAt(at int64) {
	if p.reviewAt == 0 || at < p.reviewAt {
		p.keeper.review(p, at)
	}
}

// done takes in what became of p's operation. The caller holds p's lock. It tells
// whether the store is to be counted as failing.
func (p *Purse) done(now Instant, res Result, err error) (failed bool) {
	switch op := p.op; {
	case err == nil && p.inquest != nil:
		p.close(res)
		return false // the waiters are answered under the next holder
	case err == nil && op.Seq == 0:
		p.resume(now, res)
	case err == nil:
		p.applied(now, op, res)
	case errors.Is(err, ErrStale):
		p.withdraw(op)
		return false // the waiters look again a moment later, see Keeper.perform
	case errors.Is(err, ErrGone):
		p.inquire(op)
		return false
	case errors.Is(err, ErrNotApplied):
		p.notApplied(now)
	default:
		p.doubt = true
		p.wake()
		return true
	}
	p.wake()
	return false
}

// withdraw goes on with what needs no terms of an operation whose terms are old: its
// report, under the same number. If an earlier try was applied after all, the store
// answers with that. Terms that came while the operation was under way are not old.
func (p *Purse) withdraw(op *Operation) {
	p.stale = p.opTerms == p.terms
	report := *op
	report.Want, report.Min, report.Guards = 0, 0, nil
	p.op = &report
}

// inquire goes on after op was refused because its holder is gone. If a try of it may
// have been applied before that, the store is asked what it knows of it.
func (p *Purse) inquire(op *Operation) {
	p.op = nil
	if p.doubt && op.Seq > 0 {
		p.inquest = op
		p.op = &Operation{Key: op.Key, App: op.App, Holder: op.Holder, Ceiling: op.Ceiling, Replicas: op.Replicas}
		return
	}
	p.keeper.poke(p)
}

// close ends an inquest. Where the account knows the holder it tells. Where it does
// not, the holder has been folded away, and nobody can tell whether its last report
// was in time: then the higher of the last two counts as made, for use may be lost
// with a replica (A45) but is never billed twice.
func (p *Purse) close(res Result) {
	if res.Seq == 0 {
		unknown := max(0, p.inquest.Used-p.reported)
		p.keeper.stats.lost.Add(unknown)
		p.reported += unknown
	} else {
		p.reported = res.Own
	}
	p.op, p.inquest = nil, nil
	p.keeper.poke(p)
}

// notApplied drops an operation that the store would not do; the next one carries
// what it reported. One that may have been applied before is repeated.
func (p *Purse) notApplied(now Instant) {
	p.failed = refusal{at: now, set: true}
	p.retryAt = now.Mono + int64(probeEvery)
	if !p.doubt {
		p.op = nil
	}
	p.lookAt(p.retryAt)
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
	p.reported, p.held = res.Own, sum(op.Hold)+res.Granted
	p.others = res.Used - res.Own
	p.contacted, p.lastContact = true, now
	if op.Want > 0 {
		p.failed = refusal{} // a report alone does not tell that leases are to be had
	}
	if op.Want > 0 && !p.closing && p.terms.worth(p.opTerms) && op.Holder == p.keeper.incarnation() {
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
	p.refusal, p.waiting = refusal{}, refusal{}
	if res.Granted > 0 {
		p.lots = append(p.lots, lot{id: op.Seq, left: res.Granted, asked: p.opAsked})
	} else {
		p.refusal = refusal{at: now, left: max(0, res.Left), set: true}
	}
	p.filled, p.spent = p.opAsked, false
	p.batch = p.spendable(now)
}
