package quota

import (
	"math"
	"slices"
	"sync"
	"time"
)

// Terms are what an account is worth to a purse.
type Terms struct {
	App     string
	Amount  int64 // the quota
	Ceiling int64 // admitted up to here: the amount, with its grace band
	// ExactBelow is how much of the end of the amount is lent only as it is spent
	// (Q45).
	ExactBelow int64
	// Counts says that the limit only counts: everything is admitted, and no
	// lease is needed (A5).
	Counts bool
	Rule   LeaseRule
	Wait   time.Duration // for a lease at most; 0: as long as the keeper says (C21)
	Cap    Cap           // of what is let on while the store is away
	// Version is the quota version, Void the part of it that was raised to void
	// leases.
	Version, Void int64
	Guards        []Guard
}

// worth reports whether a lease made under o is worth the same under t. Terms that
// differ in guards alone are: an edited comment closes no lease (case C019).
func (t *Terms) worth(o *Terms) bool {
	return t.Amount == o.Amount && t.Ceiling == o.Ceiling && t.Counts == o.Counts && t.Rule == o.Rule &&
		t.ExactBelow == o.ExactBelow && t.Void == o.Void
}

// A Verdict is what a purse says of a charge.
type Verdict int

// The verdicts.
const (
	Fits  Verdict = iota + 1
	Short         // a lease must be asked for first
	Spent         // the store has said, in the last moments, that there is no more
)

// A Purse is one replica's own side of an account. Its methods are to be called
// under the lock that it was opened with, which guards every field, so that one
// lock can guard all purses and buckets of a tenant.
type Purse struct {
	key    Key
	window Window
	keeper *Keeper
	mu     sync.Locker
	terms  *Terms
	local  bool // see NewLocal

	stock
	tally
	known
	flight
	waiters
	refusals
	recalls
	doubts
	newcomer
	agenda
	ending
	place
}

// Key returns the account that p belongs to.
func (p *Purse) Key() Key { return p.key }

// Window returns the window of p's account.
func (p *Purse) Window() Window { return p.window }

// Room reports whether n units can be charged now. It charges nothing.
func (p *Purse) Room(now Instant, n int64) Verdict {
	if p.terms.Counts || n == 0 {
		return Fits
	}
	if p.local {
		return p.localRoom(n)
	}
	spendable := p.spendable(now)
	switch {
	case spendable >= n && p.Used()+n > p.terms.Ceiling:
		return Spent // a lease that came after more was used than there is
	case spendable >= n:
		return Fits
	case p.refused(now) && spendable+p.refusal.left < n:
		return Spent
	case n > p.terms.Ceiling:
		return Spent // no lease can bring as much: the store need not be asked
	}
	return Short
}

// refused reports whether the last refusal is remembered (A35).
func (p *Purse) refused(now Instant) bool {
	return p.refusal.set && now.since(p.refusal.at) < p.keeper.cfg.RefusalMemory
}

// spendable returns the units of all lots that may still be spent from (A31).
func (p *Purse) spendable(now Instant) int64 {
	if p.local {
		return max(0, p.terms.Ceiling-p.used)
	}
	var units int64
	for i := range p.lots {
		if now.since(p.lots[i].asked) < p.terms.Rule.UsableFor {
			units += p.lots[i].left
		}
	}
	return units
}

// Charge charges n units, for which Room has just said Fits under the same lock,
// or which are to be charged whatever there is: it spends what the lots have,
// oldest first, and returns the units that no lot covered.
func (p *Purse) Charge(now Instant, n int64) (uncovered int64) {
	if p.local {
		p.addLocal(n)
		return 0
	}
	uncovered = n
	for i := range p.lots {
		if uncovered == 0 {
			break
		}
		if now.since(p.lots[i].asked) >= p.terms.Rule.UsableFor {
			continue
		}
		take := min(uncovered, p.lots[i].left)
		p.lots[i].left -= take
		uncovered -= take
	}
	if p.stale || p.doubt {
		p.suspect += n - uncovered
	}
	p.add(now, n)
	p.demand.add(now, n)
	p.spent = p.spent || n > 0
	if !p.poked && p.renewable(now) {
		p.poked = true
		p.keeper.poke(p)
	} else {
		p.planReport(now)
	}
	return uncovered
}

// add counts n units, below 0 if they are given back.
func (p *Purse) add(now Instant, n int64) {
	const most = math.MaxInt64 - 3*MaxUnits // so that no sum of these overflows
	used := p.used + p.past + n
	p.past = max(0, min(used-MaxUnits, most))
	p.count(now, min(used, MaxUnits))
}

// reportAfter is how long use waits to be reported (A47).
func (p *Purse) reportAfter() time.Duration {
	if every := p.terms.Rule.ReportEvery; every > 0 {
		return min(p.terms.Rule.RenewAfter, every)
	}
	return p.terms.Rule.RenewAfter
}

// planReport plans a look at p for when what it used is due to be reported, unless an
// earlier one is planned.
func (p *Purse) planReport(now Instant) {
	from := p.pending.at
	if p.used == p.reported { // it is about reservations alone
		from = p.lastContact
	}
	at := max(from.Mono+int64(p.reportAfter()), now.Mono+1)
	if p.reviewAt == 0 || p.reviewAt > at {
		p.keeper.review(p, at)
	}
}

// reportDue reports whether what p used has waited for long enough.
func (p *Purse) reportDue(now Instant) bool {
	if p.used == p.reported {
		return p.reservedDiffers(now) && (p.closing || now.since(p.lastContact) >= p.reportAfter())
	}
	return p.closing || p.overdue || !p.contacted || now.since(p.pending.at) >= p.reportAfter()
}

// renewable reports whether the hot path should wake the keeper: a good part of the
// lease is used (A28), or the purse only counts and has never heard of others.
func (p *Purse) renewable(now Instant) bool {
	if p.terms.Counts {
		return !p.contacted
	}
	if p.stale || p.inSlice || p.refused(now) || p.dry.set && now.since(p.dry.at) < p.keeper.cfg.RefusalMemory {
		return false // there is nothing to be had now
	}
	left := p.spendable(now)
	return p.batch-left >= share(p.batch, p.terms.Rule.RenewAtUsed)
}

// Refund undoes a charge of n units of which uncovered were not taken from a lot.
// Units that a lot covered can be spent again at once: until the next report the
// store counts them as used or as leased to this replica. For a purse that was
// forgotten the one in its place takes them back; without one they stay used.
func (p *Purse) Refund(now Instant, n, uncovered int64) {
	if p.local {
		p.addLocal(-n)
		return
	}
	if p.gone {
		if next := p.keeper.inPlaceOf(p); next != nil {
			next.Refund(now, n, n)
		}
		return
	}
	p.add(now, -n)
	p.takeBack(uncovered)
	if i := len(p.lots) - 1; i >= 0 && now.since(p.lots[i].asked) < p.terms.Rule.UsableFor {
		p.lots[i].left += n - uncovered
		n = uncovered
	}
	if p.refusal.set {
		// The next operation brings it there, but for what was used past the end.
		p.refusal.left = min(p.refusal.left+n, max(0, p.terms.Ceiling-p.Used()))
	}
	if p.closing {
		p.keeper.poke(p)
	} else {
		p.planReport(now)
		p.offer(now)
	}
}

// SetTerms makes p follow new terms. Leases that are worth something else under
// them are not spent from any more; what was used is settled (design 6.5).
func (p *Purse) SetTerms(now Instant, t *Terms) {
	if t == p.terms {
		return
	}
	if p.local {
		p.terms = t
		return
	}
	same, voided := t.worth(p.terms), t.Void != p.terms.Void
	if p.stale {
		p.stale, p.failed, p.waiting = false, since{}, since{}
	}
	counted := p.terms.Counts // until now: no lease was spent from, and no quota passed
	p.terms = t
	if same {
		return
	}
	if voided {
		p.unlearn()
	}
	if !counted {
		p.over.terms += p.suspectUse(now)
	}
	p.suspect = 0
	p.lots, p.batch = nil, 0
	p.refusal, p.dry = refusal{}, since{}
	p.recall.until = 0
	p.unfollow()
	if p.held > 0 || p.used != p.reported || p.wait != nil {
		p.keeper.poke(p)
	}
}

// Close settles p for good: its window is over, or nobody needs it. A later Refund
// is settled too.
func (p *Purse) Close() {
	if p.local {
		p.gone = true
		return
	}
	p.shut()
	p.keeper.poke(p)
}

func (p *Purse) shut() {
	p.closing, p.closedAt = true, p.keeper.now()
	p.lots, p.batch, p.waiting = nil, 0, since{}
	p.recall.until = 0
	p.unfollow()
}

// Closed reports whether p is closed, or forgotten, so that it has to be opened again
// before it is charged.
func (p *Purse) Closed() bool { return p.closing || p.gone }

// Gone reports whether p is forgotten: another purse may have taken its place.
func (p *Purse) Gone() bool { return p.gone }

// Used returns the units used of the account, by all replicas as far as this one
// knows; never below 0, though an account that was cleared may be after a refund.
func (p *Purse) Used() int64 { return max(0, p.others+p.used) }

// trim gives up units, of the newest lots first, until no more than n can be spent.
func (p *Purse) trim(now Instant, n int64) {
	excess := p.spendable(now) - n
	for i := len(p.lots) - 1; i >= 0 && excess > 0; i-- {
		cut := min(excess, p.lots[i].left)
		p.lots[i].left -= cut
		excess -= cut
	}
}

// dropSpoiled forgets lots that are empty or too old.
func (p *Purse) dropSpoiled(now Instant) {
	p.lots = slices.DeleteFunc(p.lots, func(l lot) bool {
		return l.left <= 0 || now.since(l.asked) >= p.terms.Rule.UsableFor
	})
}

// age returns how old the last grant is.
func (p *Purse) age(now Instant) time.Duration { return now.since(p.filled) }
