package authz

import (
	"strings"
	"weak"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/ratelimit"
)

// lock locks the counters and makes them follow their limits. If one is out of date
// nothing is locked.
func (t *counting) lock() bool {
	for i := range t.scratch.held {
		h := &t.scratch.held[i]
		h.node.mu.Lock()
		if h.node.dead || h.node.generation > t.cur.generation {
			t.unlock(i + 1)
			return false
		}
		t.follow(h)
	}
	return true
}

func (t *counting) unlock(n int) {
	for i := range t.scratch.held[:n] {
		t.scratch.held[i].node.mu.Unlock()
	}
}

// follow makes a counter follow the documents of now.
func (t *counting) follow(h *heldCounter) {
	n := h.node
	if len(n.slots) == 0 {
		n.slots = []*slot{{}}
	}
	s := n.slots[0]
	h.slot = s
	if s.counter.generation == t.cur.generation && s.limit != nil {
		return
	}
	n.generation, n.followed = t.cur.generation, t.at.Mono
	s.counter.generation = t.cur.generation
	domain, void := weak.Make(t.Domain), t.cur.snapshot.Void(n.counter())
	first, cleared := s.limit == nil, void > s.counter.void
	before := s.limit
	if first || cleared || s.counter.domain != domain {
		s.counter.domain, s.counter.void = domain, void
		s.limit = t.limitOf(h.item)
		if s.limit.Kind == plan.Quota {
			t.turn(n, s)
		}
	}
	if s.limit.Kind == plan.Rate {
		if first || cleared { // cleared by hand: full again (P36)
			s.bucket = ratelimit.NewBucket(rate(s.limit, t.cur.replicas), t.at.Mono)
		}
		t.d.stats.forgiven.Add(s.turnRate(t.cur, before))
	}
}

// limitOf returns the limit that the counter of a descriptor has to follow.
func (t *counting) limitOf(i int) *plan.EffectiveLimit {
	if ask := &t.asks[i]; ask.HasOverride && t.Domain.Settings.Overrides {
		return ask.Override.Effective(&t.Domain.Settings)
	}
	return t.Items[i].Match.Limit
}

// counter returns the tenant of the accounts of a counter that n is the node of.
func (n *node) counter() string {
	name, _, _ := strings.Cut(n.tenant, "#")
	return name
}

// turn makes a quota's slot follow its limit.
func (t *counting) turn(n *node, s *slot) {
	if s.quotaSlot == nil {
		counter, account, _ := strings.Cut(n.tenant, "#")
		s.quotaSlot = &quotaSlot{account: quota.Key{Tenant: counter, Limit: account}}
	}
	domain, void := t.Domain, s.counter.void
	s.terms = quotaTerms(&plan.NodeTerms{Guards: domain.Guards, Version: max(domain.Version, void), Void: void}, s.limit, domain.App)
	n.cut(s)
	for _, p := range s.purses() {
		if p != nil {
			p.SetTerms(t.at, s.terms)
		}
	}
}
