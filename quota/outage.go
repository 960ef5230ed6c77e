package quota

import (
	"sync/atomic"
	"time"
)

// A Cap bounds what one replica lets on of one account while the store is away and the
// limit says allow (A57, P44). The zero Cap bounds nothing.
type Cap struct {
	Units int64         // in all; 0: any number
	For   time.Duration // since the first request that was let on; 0: for ever
}

// An outage is what was let on since the store last answered.
type outage struct {
	began Instant
	set   bool
	units int64
}

// excess is what of the unreported use may prove to be past the quota, by its cause.
// Whether it is the store tells.
type excess struct {
	reserved    int64 // more than what was reserved (A43)
	long        int64 // the same, of a request that outlived what leases are liable for (A48)
	unavailable int64 // that no lease covers, let on while the store was away (A49)
	queued      int64 // that no lease covers, let on since the store was not asked in time
	terms       int64 // spent from leases whose terms may have been over (A44)
}

// UsedUp reports whether there is no room for n units by what was used alone: by others,
// as the store last told, and here, but for what was let on without a lease while the
// store was away. What others hold on lease may come back meanwhile; what was used does
// not, unless it is refunded elsewhere, which the store tells once it answers.
func (p *Purse) UsedUp(n int64) bool {
	return !p.terms.Counts && n > p.terms.Ceiling-(p.others+p.used-p.over.unavailable)
}

// LetsOn reports whether a charge of n units, for which there is no lease because the
// store is away, is within the cap. The first question begins the cap's time.
func (p *Purse) LetsOn(now Instant, n int64) bool {
	if !p.outage.set {
		p.outage = outage{began: now, set: true}
	}
	limit := p.terms.Cap
	uncovered := n - p.spendable(now)
	return (limit.Units == 0 || p.outage.units+uncovered <= limit.Units) &&
		(limit.For == 0 || now.since(p.outage.began) < limit.For)
}

// LetOn records that units were let on that no lease covers, because the store is
// away. They come after the Charge that counted them.
func (p *Purse) LetOn(uncovered int64) {
	p.outage.units += uncovered
	p.over.unavailable += uncovered
	p.keeper.stats.letOn.Add(uncovered)
}

// LetOnQueued is LetOn for units of requests that gave up before the store was asked for
// their lease: it is not away.
func (p *Purse) LetOnQueued(uncovered int64) {
	p.outage.units += uncovered
	p.over.queued += uncovered
	p.keeper.stats.letQueue.Add(uncovered)
}

// Overdraw records that units were used that nothing was reserved for. They come after
// the Charge that counted them.
func (p *Purse) Overdraw(uncovered int64) { p.over.reserved += uncovered }

// takeBack undoes LetOn, LetOnQueued or Overdraw.
func (p *Purse) takeBack(uncovered int64) {
	p.outage.units = max(0, p.outage.units-uncovered)
	letOn := min(uncovered, p.over.unavailable)
	p.over.unavailable -= letOn
	queued := min(uncovered-letOn, p.over.queued)
	p.over.queued -= queued
	p.over.reserved = max(0, p.over.reserved-(uncovered-letOn-queued))
}

// settleExcess counts what of the reported use was past the quota. Leases are never
// granted past it, so that what is past it now has come there by such use: of this
// replica no more than it has reported.
func (p *Purse) settleExcess(res Result) {
	past := max(0, -res.Left)
	for _, cause := range []struct {
		units int64
		count *atomic.Int64
	}{
		{p.opOver.reserved, &p.keeper.stats.overdrawn},
		{p.opOver.long, &p.keeper.stats.long},
		{p.opOver.unavailable, &p.keeper.stats.unavailable},
		{p.opOver.queued, &p.keeper.stats.queue},
		{p.opOver.terms, &p.keeper.stats.terms},
	} {
		units := min(cause.units, past)
		cause.count.Add(units)
		past -= units
	}
	p.over.reserved = max(0, p.over.reserved-p.opOver.reserved)
	p.over.long = max(0, p.over.long-p.opOver.long)
	p.over.unavailable = max(0, p.over.unavailable-p.opOver.unavailable)
	p.over.queued = max(0, p.over.queued-p.opOver.queued)
	p.over.terms = max(0, p.over.terms-p.opOver.terms)
	p.opOver = excess{}
}

// suspectUse is what was spent from leases since terms may have changed without this
// replica knowing: since the store has not answered, or has said so, and in the
// two seconds before the change was heard of. It is counted from above.
func (p *Purse) suspectUse(now Instant) int64 {
	return min(max(p.suspect, p.demand.lately(now)), max(0, p.used-p.reported))
}

// bound returns by how many units p can take its account past the quota from now on,
// should this replica be lost (A45): what the store counts as leased to it, or may,
// and what it let on without a lease and has not reported; but no less than all that it
// has not reported, for what it held as another holder may be lent again already.
func (p *Purse) bound() int64 {
	if p.terms.Counts {
		return 0
	}
	asked := int64(0)
	if p.op != nil {
		asked = p.op.Want
	}
	return asked + max(p.held+p.over.unavailable+p.over.queued+p.over.reserved+p.over.long, p.used-p.reported)
}
