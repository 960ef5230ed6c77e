package authz

import (
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// refund gives back what refunds tell of: at most what is used, and each once, however
// often the request is decided again.
func (t *counting) refund() {
	for i := range t.asks {
		it := &t.scratch.items[i]
		if !t.asks[i].Refund || it.refunded || it.held < 0 || !t.Domain.Settings.Refunds {
			continue
		}
		n, s := t.asks[i].Hits, t.scratch.held[it.held].slot
		if s.limit.Kind == plan.Rate {
			s.bucket.Give(t.at.Mono, n)
			it.refunded = true
			continue
		}
		purse := t.purse(it)
		if n > purse.Used() && !purse.Contacted(t.at) && !t.over(purse, t.at) {
			t.await(purse, 1) // others may have used what is given back here
			t.refunding = true
			continue
		}
		if n = min(n, purse.Used()); n > 0 {
			// What is used past the amount goes first: no lease has covered that.
			purse.Refund(t.at, n, min(n, max(0, purse.Used()-s.limit.Amount)))
		}
		it.refunded = true
	}
}

// purse returns the purse of an item's window.
func (t *counting) purse(it *countItem) *quota.Purse {
	h := &t.scratch.held[it.held]
	return t.d.purse(h.node, h.slot, h.node.counter(), t.moment)
}

// examine looks at every limit without taking anything. Buckets are looked at first, so
// that no lease is asked for on behalf of a request that a bucket refuses.
func (t *counting) examine() {
	for _, kind := range [...]plan.LimitKind{plan.Rate, plan.Quota} {
		for i := range t.scratch.items {
			it := &t.scratch.items[i]
			if it.held < 0 || t.asks[i].Refund {
				continue
			}
			h := &t.scratch.held[it.held]
			if h.slot.limit.Kind != kind {
				continue
			}
			it.units = h.taken + t.asks[i].Hits
			if t.bills(i) {
				it.over = t.lacks(it, h) // it is charged all the same, and waits for no lease
				continue
			}
			it.over = !t.fits(it, h, t.asks[i].Hits)
			h.taken = min(it.units, plan.MaxAmount)
		}
		t.judge()
	}
}

// fits reports whether a counter has room for n more than the descriptors before have
// taken. A look, of 0, asks whether anything at all was left before the request.
func (t *counting) fits(it *countItem, h *heldCounter, n int64) bool {
	s := h.slot
	switch {
	case s.limit.Kind == plan.Rate && n == 0:
		return s.bucket.Has(t.at.Mono, 1)
	case s.limit.Kind == plan.Rate:
		return s.bucket.Has(t.at.Mono, it.units)
	case n == 0:
		return s.anyLeft(t.moment)
	case t.refused || t.onlyLook:
		return true // as far as the store need be asked; see review
	}
	purse, units := t.purse(it), it.units
	switch purse.Room(t.at, units) {
	case quota.Fits:
	case quota.Spent:
		return false
	case quota.Short:
		switch {
		case t.gaveUp(purse, t.at):
			return false
		case t.over(purse, t.at) && t.usedUp(purse, units):
			return false
		case t.over(purse, t.at):
			it.denied = s.limit.OnUnavailable != plan.Allow || !purse.LetsOn(t.at, units)
			t.letOn(purse, t.at, units, true) // unless judge says that this one counts
		default:
			t.await(purse, units)
		}
	}
	return true
}

// review finds out, once the request is refused, which quotas would refuse it too: those
// that have no lease were not asked.
func (t *counting) review() {
	for i := range t.scratch.items {
		it := &t.scratch.items[i]
		if it.held < 0 || t.asks[i].Refund || t.asks[i].Hits == 0 || t.bills(i) {
			continue
		}
		s := t.scratch.held[it.held].slot
		if s.limit.Kind == plan.Rate {
			continue
		}
		it.over = it.over || t.lacks(it, &t.scratch.held[it.held])
	}
	t.judge()
}

// lacks reports whether a counter has less than a descriptor asks for, as far as is known
// here: no lease is asked for.
func (t *counting) lacks(it *countItem, h *heldCounter) bool {
	s := h.slot
	if s.limit.Kind == plan.Rate {
		return !s.bucket.Has(t.at.Mono, it.units)
	}
	if purse := s.at(t.minute); purse != nil {
		return purse.Lacks(t.at, it.units)
	}
	return it.units > s.terms.Ceiling
}

// judge tells by what was examined so far whether the request is refused, or denied for
// want of etcd. Shadow rules do neither (P1), and quota rules only if none of them has room
// (P5).
func (t *counting) judge() {
	var strict countItem
	full, away, quotas := 0, 0, 0
	for i := range t.scratch.items {
		it := &t.scratch.items[i]
		switch {
		case it.unruled:
			strict.over = strict.over || !t.shadows(i)
		case it.held < 0 || t.asks[i].Refund:
		case t.quotaMode(i):
			quotas++
			switch {
			case t.shadows(i):
			case it.over:
				full++
			case it.denied:
				away++
			}
		case t.shadows(i):
		default:
			strict.over, strict.denied = strict.over || it.over, strict.denied || it.denied
		}
	}
	t.lenient = full+away < quotas
	t.refused = strict.over || quotas > 0 && full == quotas
	t.denied = strict.denied || quotas > 0 && !t.lenient && away > 0
}

func (t *counting) shadows(i int) bool {
	rule := t.rule(i)
	return t.cur.shadow || t.Domain.Settings.ShadowMode || rule != nil && rule.Shadow
}

func (t *counting) quotaMode(i int) bool {
	rule := t.rule(i)
	return rule != nil && rule.QuotaMode
}

// settle charges everything, if nothing refuses, and notes how every limit is then.
func (t *counting) settle() {
	if t.refused || t.onlyLook {
		t.review()
	}
	charged := !t.onlyLook && !t.denied && (!t.refused || t.Domain.Settings.ChargeRefused)
	for i := range t.scratch.items {
		it, item := &t.scratch.items[i], &t.Items[i]
		if it.unruled {
			item.Over, item.Shadowed = !t.shadows(i), t.shadows(i)
			item.State.Reset = -1 // no time helps
			continue
		}
		if it.held < 0 {
			continue
		}
		h := &t.scratch.held[it.held]
		refuses := it.over && !t.shadows(i) && (!t.quotaMode(i) || !t.lenient)
		item.Over, item.Shadowed, item.Full = refuses, it.over && t.shadows(i), it.over
		took := charged && !t.asks[i].Refund && (!it.over || t.Domain.Settings.ChargeRefused)
		switch {
		case t.bills(i):
			took = true
			t.bill(it, h, t.asks[i].Hits)
		case took:
			t.charge(it, h, t.asks[i].Hits)
		}
		if took && h.node.shared {
			t.d.stats.uncounted.Add(t.asks[i].Hits)
		}
		t.describe(i, h, took)
	}
	t.conclude()
}

// charge takes n units of a counter.
func (t *counting) charge(it *countItem, h *heldCounter, n int64) {
	switch s := h.slot; {
	case n == 0:
	case s.limit.Kind == plan.Rate:
		n = min(n, s.bucket.Left(t.at.Mono))
		s.bucket.Take(t.at.Mono, n)
		t.charges = append(t.charges, charge{node: h.node, bucket: s, n: n})
	default:
		purse := t.purse(it)
		uncovered := purse.Charge(t.at, n)
		t.charges = append(t.charges, charge{node: h.node, purse: purse, n: n, uncovered: uncovered})
		switch {
		case uncovered == 0:
		case it.over || t.refused:
			purse.Overdraw(uncovered) // refused, and counted all the same
		default:
			t.charged(purse, uncovered)
		}
	}
}

// bill charges what was used already, in full: what is not there is a debt of a bucket,
// and use past the amount of a quota. Like a refund it stays, whatever becomes of the
// answer.
func (t *counting) bill(it *countItem, h *heldCounter, n int64) {
	if s := h.slot; s.limit.Kind == plan.Rate {
		t.d.stats.forgiven.Add(s.bucket.Owe(t.at.Mono, n))
		return
	}
	purse := t.purse(it)
	purse.Overdraw(purse.Charge(t.at, n))
}

// describe notes how a descriptor's limit is.
func (t *counting) describe(i int, h *heldCounter, took bool) {
	s, item := h.slot, &t.Items[i]
	state := &item.State
	*state = LimitState{
		Limit: s.limit, Tenant: h.node.counter(), Leaf: true, Shared: h.node.shared,
		Asked: max(t.asks[i].Hits, 1), Refused: item.Over, Looked: !took || t.asks[i].Hits == 0,
	}
	asked := state.Asked
	if item.Over && t.asks[i].Hits > 0 {
		asked = t.scratch.items[i].units
	}
	if s.limit.Kind == plan.Rate {
		state.ofBucket(&s.bucket, t.at.Mono, asked)
		return
	}
	state.ofQuota(s, t.moment)
	state.tooLarge(asked, state.Limit.Amount)
}

// conclude says in one word what happened, and how long to wait.
func (t *counting) conclude() {
	switch {
	case t.refused:
	case t.denied:
		t.Outcome, t.RetryAfter = Unavailable, max(t.failing, time.Second)
		t.Why = "etcd does not answer and the domain says on_unavailable: deny"
		return
	case t.unavailable:
		t.Outcome = UnavailableAllowed
		return
	default:
		t.Outcome = Allowed
		return
	}
	for i := range t.Items {
		if t.Items[i].Over && (t.Worst < 0 || longer(&t.Items[i].State, &t.Items[t.Worst].State)) {
			t.Worst = i
		}
	}
	worst := &t.Items[t.Worst].State
	if worst.Limit == nil {
		t.Outcome = RateLimited // by what cannot be read: another try is read no better
		return
	}
	t.RetryAfter = max(0, worst.Reset)
	if worst.Reset == 0 { // the window of the request is over: the next one may have room
		t.RetryAfter = time.Second
	}
	switch {
	case worst.Reset < 0 && worst.Limit.Amount > 0:
		t.Outcome = RequestTooLarge
	case worst.Limit.Kind == plan.Quota:
		t.Outcome = QuotaExceeded
	default:
		t.Outcome = RateLimited
	}
}
