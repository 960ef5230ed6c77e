package authz

import (
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/ratelimit"
)

// refund gives back what refunds tell of: at most what is used, and each once, however
// often the request is decided anew.
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
		if n > purse.Used() && !purse.Contacted() && !t.over(purse, t.at) {
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
	return t.d.purse(h.node, h.slot, h.slot.account.Tenant, t.moment)
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
			it.over = !t.fits(it, h, t.asks[i].Hits)
			h.taken = min(h.taken+t.asks[i].Hits, plan.MaxAmount)
		}
		t.judge()
	}
}

// fits tells whether a counter has room for n more than the descriptors before have
// taken. A look, of 0, asks whether anything at all was left before the request.
func (t *counting) fits(it *countItem, h *heldCounter, n int64) bool {
	s := h.slot
	switch {
	case s.limit.Kind == plan.Rate && n == 0:
		return s.bucket.Has(t.at.Mono, 1)
	case s.limit.Kind == plan.Rate:
		return s.bucket.Has(t.at.Mono, h.taken+n)
	case n == 0:
		return s.anyLeft(t.moment)
	}
	purse := t.purse(it)
	switch units := h.taken + n; purse.Room(t.at, units) {
	case quota.Fits:
	case quota.Spent:
		return false
	case quota.Short:
		switch {
		case t.gaveUp(purse, t.at):
			return false
		case t.over(purse, t.at):
			t.letOn(purse, t.at, units, s.limit.OnUnavailable == plan.Allow && purse.LetsOn(t.at, units))
		case !t.refused:
			t.await(purse, units)
		}
	}
	return true
}

// review finds out, once the request is refused, which quotas would refuse it too: those
// that have no lease were not asked.
func (t *counting) review() {
	for i := range t.scratch.held {
		t.scratch.held[i].taken = 0
	}
	for i := range t.scratch.items {
		it := &t.scratch.items[i]
		if it.held < 0 || t.asks[i].Refund || t.asks[i].Hits == 0 {
			continue
		}
		h := &t.scratch.held[it.held]
		h.taken = min(h.taken+t.asks[i].Hits, plan.MaxAmount)
		if purse := h.slot.at(t.minute); purse != nil && h.slot.limit.Kind == plan.Quota {
			it.over = it.over || purse.Lacks(t.at, h.taken)
		}
	}
	t.judge()
}

// judge tells by what was examined so far whether the request is refused. Shadow rules
// refuse nothing (P1), and quota rules only if none of them has room (P5).
func (t *counting) judge() {
	strict, full, quotas := false, 0, 0
	for i := range t.scratch.items {
		it := &t.scratch.items[i]
		switch {
		case it.held < 0 || t.asks[i].Refund:
		case t.quotaMode(i):
			quotas++
			if it.over && !t.shadows(i) {
				full++
			}
		case t.shadows(i):
		default:
			strict = strict || it.over
		}
	}
	t.lenient = full < quotas
	t.refused = strict || quotas > 0 && !t.lenient
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
	if t.refused {
		t.review()
	}
	for i := range t.scratch.held {
		t.scratch.held[i].taken = 0
	}
	charged := !t.onlyLook && !t.denied && (!t.refused || t.Domain.Settings.ChargeRefused)
	for i := range t.scratch.items {
		it, item := &t.scratch.items[i], &t.Items[i]
		if it.held < 0 {
			continue
		}
		h := &t.scratch.held[it.held]
		refuses := it.over && !t.shadows(i) && (!t.quotaMode(i) || !t.lenient)
		item.Over, item.Shadowed = refuses, it.over && t.shadows(i)
		took := charged && !t.asks[i].Refund && (!it.over || t.Domain.Settings.ChargeRefused)
		if took {
			t.charge(it, h, t.asks[i].Hits)
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
		case it.over:
			purse.Overdraw(uncovered) // refused, and counted all the same
		default:
			purse.LetOn(uncovered)
		}
	}
}

// describe notes how a descriptor's limit is.
func (t *counting) describe(i int, h *heldCounter, took bool) {
	s, item := h.slot, &t.Items[i]
	state := &item.State
	*state = LimitState{
		Limit: s.limit, Tenant: s.account.Tenant, Leaf: true,
		Asked: max(t.asks[i].Hits, 1), Refused: item.Over, Looked: !took || t.asks[i].Hits == 0,
	}
	if s.limit.Kind == plan.Rate {
		t.describeRate(state, &s.bucket)
	} else {
		t.describeQuota(state, s)
	}
}

func (t *counting) describeRate(state *LimitState, b *ratelimit.Bucket) {
	state.Window, state.Left = state.Limit.Window, b.Left(t.at.Mono)
	wait := b.UntilFull(t.at.Mono)
	if state.Refused || state.Left == 0 {
		wait = b.Wait(t.at.Mono, state.Asked)
	}
	if state.Reset = wait; wait == ratelimit.Never {
		state.Reset = -1
	}
}

func (t *counting) describeQuota(state *LimitState, s *slot) {
	purse, window := s.at(t.minute), s.window
	if purse == nil {
		window = s.calendar.Window(t.minute)
		state.Left = state.Limit.Amount
	} else {
		state.Used, state.Left = purse.Used(), purse.Left(t.at)
	}
	state.WindowID, state.ResetsAt, state.Window = window.ID, window.End, window.End.Sub(window.Start)
	state.Reset = window.RetryAfter(t.now)
	if state.Refused && state.Asked > state.Limit.Amount && state.Limit.Amount > 0 {
		state.Reset = -1 // more than the whole quota: waiting cannot help
	}
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
