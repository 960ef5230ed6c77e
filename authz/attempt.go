package authz

import (
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/ratelimit"
)

// An attempt is one try to charge a request to its whole path.
type attempt struct {
	d    *Decider
	cost cost
	path *path
	leaf *node
	moment
	leasing

	// extend, if not nil, are the units that are asked for beside what the request has
	// reserved before, by unit.
	extend map[string]int64

	refused bool
}

// run charges the request or finds out why not. It reports whether dec holds the
// answer; if not, the path was out of date or there is a lease to be waited for.
func (a *attempt) run(dec *Decision) (done bool) {
	if !a.path.lock(a.at) {
		a.leaf.path.CompareAndSwap(a.path, nil)
		return false
	}
	a.examine()
	if !a.refused && !a.denied && a.short != nil {
		a.path.unlock()
		return false
	}
	a.short = nil
	admitted := !a.refused && !a.denied || !a.cost.check
	if admitted && !a.cost.dry {
		a.charge(dec)
	}
	a.describe(dec, !admitted)
	a.path.unlock()
	a.settleOutcome(dec, admitted)
	return true
}

// examine looks at every limit without taking anything. Buckets are looked at
// first, so that no lease is asked for on behalf of a request that a bucket
// refuses.
func (a *attempt) examine() {
	for i := range a.path.steps {
		s := &a.path.steps[i]
		for j := range s.terms.Limits {
			l := &s.terms.Limits[j]
			if l.Kind != plan.Rate || l.Unlimited || !l.Charged {
				continue
			}
			if units, concerned := a.units(l); concerned && !s.slots[j].bucket.Has(a.at.Mono, a.wanted(units)) {
				a.refused = true
			}
		}
	}
	for i := range a.path.steps {
		s := &a.path.steps[i]
		for j := range s.terms.Limits {
			l := &s.terms.Limits[j]
			if l.Kind != plan.Quota || !l.Charged {
				continue
			}
			if units, concerned := a.units(l); concerned {
				a.examineQuota(s, l, s.slots[j], a.wanted(units))
			}
		}
	}
}

// units returns what the request takes of l, and whether l is concerned.
func (a *attempt) units(l *plan.EffectiveLimit) (n int64, concerned bool) {
	if a.extend == nil {
		return a.cost.units(l)
	}
	if l.Kind != plan.Quota || !spends(l.Classes, a.cost.class) || !a.cost.charges(l.Unit) {
		return 0, false // a rate limit is about when, and the request has begun
	}
	n = a.extend[l.Unit]
	return n, n > 0
}

// wanted returns how much must be there: a dry request asks for anything at all, and so
// does one that takes nothing before it has run.
func (a *attempt) wanted(units int64) int64 {
	if a.cost.dry {
		return 1
	}
	return max(1, units)
}

func (a *attempt) examineQuota(s *step, l *plan.EffectiveLimit, slot *slot, units int64) {
	if a.cost.dry {
		a.refused = a.refused || !a.cost.replay && !slot.anyLeft(a.moment)
		return
	}
	purse := a.d.purse(s.node, slot, a.path.root(), a.moment)
	if a.cost.replay {
		return
	}
	switch purse.Room(a.at, units) {
	case quota.Fits:
	case quota.Spent:
		a.refused = true
	case quota.Short:
		switch {
		case !a.cost.check: // charged whatever there is
		case a.gaveUp(purse, a.at):
			a.refused = true
		case a.over(purse, a.at) && a.usedUp(purse, units):
			a.refused = true
		case a.over(purse, a.at):
			a.letOn(purse, a.at, units, a.choice(l) == plan.Allow && a.withinCap(purse, units))
		case !a.refused:
			a.await(purse, units)
		}
	}
}

// withinCap reports whether a limit's cap lets a request on while etcd is away. A choice
// that the route makes has no cap.
func (a *attempt) withinCap(purse *quota.Purse, units int64) bool {
	return a.cost.choice != plan.ChoiceUnset || purse.LetsOn(a.at, units)
}

// anyLeft reports whether a quota has anything left, without opening a purse: a
// check takes no lease (case C046).
func (s *slot) anyLeft(m moment) bool {
	if purse := s.at(m.minute); purse != nil {
		return purse.Any(m.at)
	}
	return s.terms.Counts || s.terms.Ceiling > 0
}

// choice returns what happens to l while etcd is away (A56, A62).
func (a *attempt) choice(l *plan.EffectiveLimit) plan.Choice {
	if a.cost.choice != plan.ChoiceUnset {
		return a.cost.choice
	}
	return l.OnUnavailable
}

// charge takes everything. Nothing can refuse any more.
func (a *attempt) charge(dec *Decision) {
	for i := range a.path.steps {
		s := &a.path.steps[i]
		for j := range s.terms.Limits {
			l := &s.terms.Limits[j]
			if !l.Charged {
				continue
			}
			units, concerned := a.units(l)
			switch {
			case !concerned || l.Kind == plan.Rate && l.Unlimited:
			case l.Kind == plan.Rate && a.cost.check:
				s.slots[j].bucket.Take(a.at.Mono, units)
				dec.charges = append(dec.charges, charge{node: s.node, bucket: s.slots[j], limit: l.Name, unit: l.Unit, n: units})
			case l.Kind == plan.Quota:
				purse := s.slots[j].purse
				uncovered := purse.Charge(a.at, units)
				held := a.hold(dec, purse, l.Unit, units)
				dec.charges = append(dec.charges, charge{node: s.node, purse: purse, unit: l.Unit, n: units, uncovered: uncovered, held: held})
				switch {
				case uncovered == 0 || s.slots[j].terms.Counts:
				case !a.cost.quotas(): // it has reserved nothing
					purse.Overdraw(uncovered)
				default:
					a.charged(purse, uncovered)
				}
			}
		}
	}
}

// hold notes units that were charged as those of a request that runs, if its end will be
// told.
func (a *attempt) hold(dec *Decision, purse *quota.Purse, unit string, units int64) held {
	if units == 0 || purse.Local() || !a.d.Sealing() {
		return notHeld
	}
	h := heldFlat
	if res := reserveOf(a.cost.rule, unit); res != nil && res.Use != nil || a.extend != nil {
		h = heldMeasured
	}
	purse.Reserve(a.at, dec.ID.Time().UnixNano(), units, h == heldMeasured)
	return h
}

// describe notes the state of every limit as the request leaves it, the leaf's
// first.
func (a *attempt) describe(dec *Decision, refused bool) {
	for i := len(a.path.steps) - 1; i >= 0; i-- {
		s := &a.path.steps[i]
		for j := range s.terms.Limits {
			l := &s.terms.Limits[j]
			units, concerned := a.units(l)
			if !l.Charged || !concerned || l.Unlimited {
				continue
			}
			state := LimitState{Limit: l, Tenant: s.node.tenant, Plan: s.terms.Plan, Leaf: s.node == a.leaf, Asked: max(1, units)}
			if s.node.shared {
				state.Tenant, state.Shared = dec.Tenant, true
			}
			state.Looked = a.cost.dry || l.Kind == plan.Rate && !a.cost.check
			if l.Kind == plan.Rate {
				a.describeRate(&state, &s.slots[j].bucket, refused)
			} else {
				a.describeQuota(&state, s.slots[j], refused)
			}
			dec.Limits = append(dec.Limits, state)
		}
		if dec.UpgradeURL == "" {
			dec.UpgradeURL = s.terms.UpgradeURL
		}
	}
}

func (a *attempt) describeRate(state *LimitState, b *ratelimit.Bucket, refused bool) {
	wanted := a.wanted(state.Asked)
	state.Refused = refused && a.refused && !b.Has(a.at.Mono, wanted)
	state.ofBucket(b, a.at.Mono, wanted)
}

func (a *attempt) describeQuota(state *LimitState, slot *slot, refused bool) {
	if purse := state.ofQuota(slot, a.moment); purse != nil {
		if over := state.Used - state.Limit.Amount; over > 0 && !state.Limit.WhenUsedUp.Count {
			state.GraceLeft = max(0, slot.terms.Ceiling-state.Used)
		}
		state.Refused = refused && a.refused && !a.cost.replay && purse.Lacks(a.at, state.Asked)
	}
	if refused && a.cost.dry {
		state.Refused = !a.cost.replay && !slot.anyLeft(a.moment)
	}
	state.tooLarge(state.Asked, slot.terms.Ceiling)
	if purse := slot.at(a.minute); purse != nil && state.Refused && state.Reset >= 0 {
		a.returns(state, purse, slot)
	}
}

// How a refusal for want of reserved units is told to wait.
const (
	leastReturn    = time.Second
	mostReturn     = 30 * time.Second
	unknownReturn  = 5 * time.Second // where no request of the route has ended here
	returnPatience = 4               // so many times as long as usual: the log of the request is lost
)

// returns notes whether a refusal waits only for what running requests have reserved.
func (a *attempt) returns(state *LimitState, purse *quota.Purse, slot *slot) {
	units, since := purse.Returning(a.at)
	if units == 0 || purse.Used()-units+a.wanted(state.Asked) > slot.terms.Ceiling {
		return
	}
	usual, known := a.d.usual.of(slot.app, a.cost.route())
	if !known {
		usual = unknownReturn
	}
	if since <= max(mostReturn, returnPatience*usual) {
		state.Returns = min(max(usual, leastReturn), mostReturn)
	}
}

// settleOutcome says in one word what happened, and how long to wait.
func (a *attempt) settleOutcome(dec *Decision, admitted bool) {
	if admitted {
		dec.Outcome = a.admission(dec)
		return
	}
	if !a.refused {
		dec.Outcome = Unavailable
		dec.RetryAfter = max(a.failing, time.Second)
		return
	}
	for i := range dec.Limits {
		if dec.Limits[i].Refused && (dec.Worst < 0 || longer(&dec.Limits[i], &dec.Limits[dec.Worst])) {
			dec.Worst = i
		}
	}
	dec.Outcome = RateLimited
	if dec.Worst < 0 {
		return
	}
	worst := &dec.Limits[dec.Worst]
	dec.RetryAfter = max(0, worst.Wait())
	if worst.Reset == 0 { // the window of the request is over: the next one may have room
		dec.RetryAfter = time.Second
	}
	switch {
	case worst.Reset < 0 && worst.Limit.Amount > 0:
		dec.Outcome = RequestTooLarge
	case worst.Limit.Kind == plan.Quota:
		dec.Outcome = QuotaExceeded
	}
}

// longer reports whether a's wait is longer than b's; one that never ends is longest.
func longer(a, b *LimitState) bool {
	if a.Wait() < 0 || b.Wait() < 0 {
		return a.Wait() < 0 && b.Wait() >= 0
	}
	return a.Wait() > b.Wait()
}

// admission returns how a request was admitted.
func (a *attempt) admission(dec *Decision) Outcome {
	outcome := Allowed
	if a.unavailable {
		outcome = UnavailableAllowed
	}
	for i := range dec.Limits {
		l := &dec.Limits[i]
		if l.Limit.Kind != plan.Quota || l.Used <= l.Limit.Amount {
			continue
		}
		switch {
		case l.Limit.WhenUsedUp.Count || !a.cost.quotas():
			outcome = CountedOver
		case l.Limit.WhenUsedUp.Grace > 0 && outcome == Allowed:
			outcome = Grace
		}
	}
	return outcome
}
