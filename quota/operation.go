package quota

import (
	"errors"
	"time"
)

// next returns the operation that p needs now, or nil. The caller holds p's lock.
// An operation of unknown outcome is repeated as it was, until it is known.
func (p *Purse) next(now Instant, k *Keeper) *Operation {
	p.poked = false
	if p.reviewAt <= now.Mono {
		p.reviewAt = 0
	}
	if p.op != nil {
		p.askAgain(now)
		return p.op
	}
	if p.recalling(now) && !p.returning {
		return nil
	}
	p.join(now, k.incarnation())
	p.dropHeld(now)
	p.dropSpoiled(now)
	gaveUp := p.giveUp(now)
	want, least := p.wish(now)
	p.returning = false
	if p.following && p.need == 0 && !p.refused(now) {
		p.unfollow()
	}
	p.dropSpoiled(now) // an empty lot is closed: nothing may be put back into it
	if want == 0 && p.idle(now) {
		p.lots, p.batch = nil, 0 // idle purses are closed, not renewed
	}
	hold := p.hold()
	unspent := p.held - sum(hold) - (p.used - p.reported) // goes back
	if want == 0 && unspent <= 0 && !gaveUp && !p.reportDue(now) {
		p.plan(now)
		return nil
	}
	op := &Operation{
		Key: p.key, App: p.terms.App, Holder: p.holder, Seq: p.seq + 1,
		Used: p.used, Reserved: p.reservedToTell(now), Hold: hold, Want: want, Min: least, ExactBelow: p.terms.ExactBelow,
		Ceiling: p.terms.Ceiling, Replicas: k.replicas(), Version: p.terms.Version,
	}
	if want > 0 {
		op.Guards = p.terms.Guards
	}
	if p.wait != nil { // of a crowd only the first are here again
		op.Waiting = max(least, max(p.needs, p.crowd)-p.spendable(now))
		p.crowd = 0
	}
	if p.seq == 0 && !p.contacted && k.mayHaveForerunner() {
		op.Seq, op.Want, op.Used, op.Reserved, op.Hold, op.Guards = 0, 0, 0, 0, nil, nil
	}
	p.op, p.opTerms, p.opAsked, p.doubt, p.opOver = op, p.terms, now, p.maybe, p.over
	return op
}

// putOff plans the look at p that comes too early now, see notApplied.
func (p *Purse) putOff(now Instant) {
	if p.reviewAt <= now.Mono {
		p.reviewAt = 0
	}
	p.lookAt(p.retryAt)
}

// askAgain makes of an operation of unknown outcome, which reports use that has waited
// too long by now, the question whether it was applied: if it was not, that use is
// dropped (A59).
func (p *Purse) askAgain(now Instant) {
	op := p.op
	if op.Seq == 0 || !p.doubt || op.Used <= p.reported || p.heldTooLong(now) == 0 {
		return
	}
	p.recount = op
	p.op = &Operation{Key: op.Key, App: op.App, Holder: op.Holder, Ceiling: op.Ceiling, Replicas: op.Replicas}
}

// recounted goes on after the question of askAgain was answered. A late try that is
// applied all the same changes nothing: the next operation has a higher number and
// closes what it granted. Of a holder that is gone there is none, see close.
func (p *Purse) recounted(now Instant, res Result) {
	op := p.recount
	if res.Seq == 0 && p.holder != p.keeper.incarnation() {
		p.recount, p.inquest = nil, op
		p.close(now, res)
		return
	}
	p.op, p.recount, p.seq = nil, nil, op.Seq
	p.maybe = res.Seq < op.Seq
	p.held = max(p.held, sum(op.Hold)+op.Want) // should that have been granted it goes back
	p.reserved.told = max(p.reserved.told, op.Reserved)
	p.contacted, p.lastContact = true, now
	if res.Seq > 0 {
		p.know(now, res.Own)
		p.learn(now, res)
	}
	p.keeper.poke(p)
}

// join makes p count under the keeper's present incarnation. What the last one
// reported stays where it was reported, and so does what counts as used because it was
// lent exactly; only the rest goes on (design 6.4).
func (p *Purse) join(now Instant, holder string) {
	if p.holder == holder {
		return
	}
	if p.holder == "" {
		p.holder = holder
		return
	}
	if covered := min(p.exact, p.used-p.reported); covered > 0 {
		p.know(now, p.reported+covered)
	}
	p.closeCell()
	for i := range p.marks {
		p.marks[i].shift(-p.reported)
	}
	p.used -= p.reported
	p.others += p.reported
	p.lots, p.batch = nil, 0
	p.held, p.exact, p.contacted, p.maybe = 0, 0, false, false
	p.holder, p.seq, p.reported, p.reserved.told = holder, 0, 0, 0
	if p.used != 0 {
		p.pending = since{now, true}
		p.remember(now)
	}
}

// wish returns how many units to ask for, and the least that is of use.
func (p *Purse) wish(now Instant) (want, least int64) {
	if p.closing || p.terms.Counts || p.stale || p.returning && (p.need == 0 || p.recall.until > 0) || p.keeper.learning(now) {
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

// due reports whether the lease is to be renewed, by use or by age (A28, A29).
func (p *Purse) due(now Instant) bool {
	return p.renewable(now) || p.age(now) >= p.terms.Rule.RenewAfter-p.early
}

// idle reports whether p holds units that nobody has touched for as long as a lease
// is renewed after.
func (p *Purse) idle(now Instant) bool {
	return !p.spent && p.need == 0 && len(p.lots) > 0 && p.age(now) >= p.terms.Rule.RenewAfter-p.early
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

// plan sets the time of the next look at p: when its lease comes of age, when what it
// used is due to be reported, or when its account need not be followed any more.
func (p *Purse) plan(now Instant) {
	if len(p.lots) > 0 {
		from := max(p.filled.Mono, p.lastContact.Mono)
		at := from + int64(p.terms.Rule.RenewAfter-p.early)
		if at <= now.Mono { // of age, but nothing can be asked for now
			at = p.lots[0].asked.Mono + int64(p.terms.Rule.UsableFor)
		}
		p.lookAt(max(at, now.Mono+1))
	}
	if p.following {
		p.lookAt(now.Mono + int64(p.keeper.cfg.RefusalMemory+followLonger))
	}
	switch {
	case p.reportDue(now):
		p.keeper.poke(p)
	case p.used != p.reported || p.reservedDiffers(now):
		p.planReport(now)
	case p.reserved.told > 0: // until it is forgotten, should nobody tell of the end
		p.lookAt(now.Mono + int64(reservedFor))
	}
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
		p.close(now, res)
		return false // the waiters are answered under the next holder
	case err == nil && p.recount != nil:
		p.recounted(now, res)
		return false // they wait for the next operation
	case err == nil && op.Seq == 0:
		p.resume(now, res)
		return false // and what they ask for
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
	if p.recall.until == 0 {
		p.wake()
	}
	return false
}

// withdraw goes on with what needs no terms of an operation whose terms are old: its
// report, under the same number. If an earlier try was applied after all, the store
// answers with that. Terms that came while the operation was under way are not old.
func (p *Purse) withdraw(op *Operation) {
	p.stale = p.opTerms == p.terms
	report := *op
	report.Want, report.Min, report.Waiting, report.Guards = 0, 0, 0, nil
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
func (p *Purse) close(now Instant, res Result) {
	if res.Seq == 0 {
		unknown := max(0, p.inquest.Used-p.reported)
		p.keeper.stats.lost.Add(unknown)
		p.know(now, p.reported+unknown)
	} else {
		p.know(now, res.Own)
	}
	p.op, p.inquest = nil, nil
	p.keeper.poke(p)
}

// notApplied drops an operation that the store would not do; the next one carries
// what it reported. One that may have been applied before is repeated.
func (p *Purse) notApplied(now Instant) {
	p.failed = since{now, true}
	p.retryAt = now.Mono + int64(probeEvery)
	if !p.doubt {
		p.op = nil
	}
	p.lookAt(p.retryAt)
}

// resume goes on where a forerunner of p under the same incarnation ended.
func (p *Purse) resume(now Instant, res Result) {
	p.meets(res.Seq > 0 || res.Used != 0 || res.Leased != 0)
	p.op, p.seq = nil, res.Seq
	for i := range p.marks {
		p.marks[i].shift(res.Own)
	}
	p.used += res.Own
	p.know(now, res.Own)
	p.learn(now, res)
	p.keeper.poke(p)
}

func (p *Purse) applied(now Instant, op *Operation, res Result) {
	p.op, p.seq, p.doubt, p.maybe, p.suspect = nil, op.Seq, false, false, 0
	p.held, p.exact = sum(op.Hold)+res.Granted, res.Exact
	p.reserved.told = op.Reserved
	p.meets(res.Used != res.Own || res.Leased > p.held)
	p.know(now, res.Own)
	p.pending = since{p.opAsked, p.used != p.reported}
	p.settleExcess(res)
	p.overdue = false
	if !p.stale && !p.keeper.learning(now) { // else a report alone is answered
		p.overdue, p.outage = p.outage.set, outage{} // what was let on meanwhile is not in op
	}
	p.learn(now, res)
	if op.Want > 0 {
		p.failed = since{} // a report alone does not tell that leases are to be had
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
	p.filled, p.spent, p.early = p.opAsked, false, p.jitter()
	p.inSlice = res.Left+res.Granted <= op.ExactBelow
	switch {
	case res.Granted > 0:
		p.refusal, p.dry, p.waiting, p.recall.until = refusal{}, since{}, since{}, 0
		p.lots = append(p.lots, lot{id: op.Seq, left: res.Granted, asked: p.opAsked})
	case p.mayRecall(now, op, res):
	case p.wait == nil && p.recallable(op, res):
		p.dry, p.waiting = since{now, true}, since{} // the next request will recall it
	default:
		p.refuse(now, res.Left)
		p.tellRefused(now)
	}
	p.batch = p.spendable(now)
}

// jitter returns how much before its time a grant is renewed: up to a tenth, so that
// purses that were filled together are not renewed together for ever (P69).
func (p *Purse) jitter() time.Duration {
	most := int64(p.terms.Rule.RenewAfter / 10)
	if most <= 0 {
		return 0
	}
	p.salt = p.salt*6364136223846793005 + 1442695040888963407 // Knuth's generator
	return time.Duration(int64(p.salt>>33) % most)
}
