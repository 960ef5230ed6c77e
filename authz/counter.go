package authz

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
	"unsafe"
	"weak"

	"github.com/meteproject/mete/plan"
)

// CountDescriptors fills c, which must be Reset, with the answer to the descriptors of
// one request to a rate limit domain. All limits are charged or, if one refuses, none
// (case C030), unless the domain's refused hits are charged. Refunds are given whatever
// becomes of the others. It waits for leases as Decide does, and returns at once when ctx
// ends: then c is Undecided and nothing is charged.
//
// With onlyLook nothing is charged: something else refuses the request already.
func (d *Decider) CountDescriptors(ctx context.Context, now time.Time, domain string, asks []DescriptorAsk, onlyLook bool, c *Count) {
	patience := patience{keeper: d.keeper, since: now}
	for {
		t := counting{d: d, cur: d.current.Load(), asks: asks, onlyLook: onlyLook, Count: c}
		if !t.begin(domain) {
			break
		}
		// A wait changes no window: that is where the request began (A17).
		t.moment = moment{now, d.keeper.Instant(now), minute(patience.since, time.Time{})}
		t.leasing = leasing{impatient: patience.over, waited: now.Sub(patience.since)}
		if t.run() {
			t.noteLooks()
			d.stats.rules.count(&t)
			break
		}
		c.again() // the documents or the purses changed: decide again
		if t.short != nil {
			patience.wait(ctx, now, t.short, t.wait)
		}
		if errors.Is(ctx.Err(), context.Canceled) {
			break
		}
		now = d.now()
	}
	d.waitEnded(&patience)
}

// GiveBackCount undoes what c charged, for an answer that nobody will hear. Refunds
// stay: they tell of what is over. A repeat changes nothing.
func (d *Decider) GiveBackCount(now time.Time, c *Count) {
	c.charges = d.giveBack(now, ID{}, c.charges)
}

// countScratch is memory that a Count keeps for the next one.
type countScratch struct {
	names []byte
	items []countItem
	held  []heldCounter
}

// mostNamesKept is how much memory for names is kept. Values may be long, and with them the
// names before they are shortened.
const mostNamesKept = 64 << 10

func (s countScratch) reset() countScratch {
	if cap(s.names) > mostNamesKept {
		s.names = nil
	}
	clear(s.items)
	clear(s.held)
	return countScratch{names: s.names[:0], items: s.items[:0], held: s.held[:0]}
}

// again forgets what was found out, but not the refunds that were given.
func (c *Count) again() {
	items := c.scratch.items
	c.scratch.items = nil // out of Reset's reach
	c.Reset()
	c.scratch.items = items
}

// A countItem is one descriptor of a request that is being counted.
type countItem struct {
	account  string // "": nothing is counted
	override bool   // by a limit of Envoy's, which knows nothing of the rule's flags
	held     int    // in the scratch's held; -1: nowhere, for want of an account
	from, to int    // of the counter's name in the scratch's names
	units    int64  // that the counter must have for it, with those of the descriptors before
	over     bool   // refused, were it alone
	unruled  bool   // it cannot be read, and no rule says how much it may have
	denied   bool   // nobody can tell, and the domain says deny
	refunded bool
}

// A heldCounter is a counter that the request holds the lock of.
type heldCounter struct {
	item  int // the first of its descriptors
	node  *node
	slot  *slot
	taken int64 // by the descriptors so far
}

// A counterState is what a slot of a descriptor's limit was last made to follow.
type counterState struct {
	generation uint64
	domain     weak.Pointer[plan.Domain] // what nobody asks for any more must not keep old documents
	void       int64
}

// A counting is one try to charge the descriptors of a request.
type counting struct {
	*Count
	moment
	leasing

	d        *Decider
	cur      *current
	asks     []DescriptorAsk
	onlyLook bool

	refunding bool // a refund waits for word of what others have used
	refused   bool
	lenient   bool // some quota rule has room, so that those without refuse and deny nothing
}

// begin finds the domain. It reports whether there is anything to count.
func (t *counting) begin(domain string) bool {
	if t.cur.snapshot == nil {
		t.Outcome, t.Why = NotReady, "no documents have been read from etcd yet"
		return false
	}
	t.Domain = t.cur.snapshot.Domain(domain)
	switch {
	case t.Domain == nil:
		t.Outcome, t.Why = NoApp, "no document limits this domain"
	case t.Domain.Broken != "":
		t.Outcome, t.Why = Unavailable, t.Domain.Broken
	default:
		return true
	}
	if t.Domain != nil && t.Domain.Settings.OnUnavailable == plan.Allow {
		t.Outcome = UnavailableAllowed
	}
	return false
}

// run charges the descriptors or finds out why not. It reports whether the Count holds the
// answer; if not, the documents are out of date or there is a lease to be waited for.
func (t *counting) run() (done bool) {
	t.match()
	t.replace()
	t.gather()
	if !t.lock() {
		return false
	}
	defer t.unlock(len(t.scratch.held))
	t.refund()
	t.examine()
	if t.short != nil && (t.refunding || !t.refused && !t.denied) {
		return false
	}
	t.short = nil
	t.settle()
	return true
}

// match finds the rule of each descriptor and what it counts in.
func (t *counting) match() {
	s := &t.scratch
	kept := len(s.items) // from a try before
	for i := range t.asks {
		ask := &t.asks[i]
		if i >= kept {
			s.items = append(s.items, countItem{})
		}
		it := &s.items[i]
		*it = countItem{from: len(s.names), refunded: it.refunded}
		var m *plan.DescriptorMatch
		m, s.names = t.Domain.Table.Match(ask.Entries, s.names)
		t.Items = append(t.Items, Counted{Match: m})
		switch {
		case ask.HasOverride && t.Domain.Settings.Overrides:
			it.override = true
			if m == nil {
				s.names = t.Domain.Table.AppendCounter(s.names, ask.Entries)
			}
			it.account = ask.Override.Override()
			t.Items[i].Named = ask.Override.Name != ""
		case m == nil || m.Rule.Limit == nil:
			it.unruled = ask.Unreadable && !ask.Refund
		case m.Rule.Limit.Unlimited:
			t.Items[i].Unlimited = true
		default:
			it.account = m.Account
			t.Items[i].Named = m.Rule.Limit.Name != ""
		}
		if it.account != "" {
			s.names = appendAccount(s.names, it.from, it.account)
		}
		it.to = len(s.names)
	}
}

// appendAccount completes the name of a counter, which begins at from, by what its limit
// counts in.
func appendAccount(names []byte, from int, account string) []byte {
	return append(append(shorten(names, from), '#'), account...)
}

// replace takes out the descriptors whose limits others replace (P4).
func (t *counting) replace() {
	for i := range t.Items {
		l := t.ruleLimit(i)
		if l == nil || len(l.Replaces) == 0 {
			continue
		}
		for j := range t.Items {
			other := t.ruleLimit(j)
			if j != i && other != nil && !other.Unlimited && slices.Contains(l.Replaces, other.Name) {
				t.Items[j].Replaced, t.Items[j].Named = true, false
				t.scratch.items[j].account = ""
			}
		}
	}
}

// ruleLimit returns the limit of the rule by which a descriptor is counted; nil if there
// is none, or Envoy has sent one along.
func (t *counting) ruleLimit(i int) *plan.DescriptorLimit {
	if rule := t.rule(i); rule != nil {
		return rule.Limit
	}
	return nil
}

// rule returns the rule by which a descriptor is counted, or nil.
func (t *counting) rule(i int) *plan.DescriptorRule {
	if m := t.Items[i].Match; m != nil && !t.scratch.items[i].override {
		return m.Rule
	}
	return nil
}

// gather finds the counters, in the order of their names, in which they are locked; those
// that share a slot come last.
func (t *counting) gather() {
	s := &t.scratch
	s.held = s.held[:0]
	for i := range s.items {
		it := &s.items[i]
		if it.held = -1; it.account == "" {
			continue
		}
		n := t.counterNode(i)
		s.held = append(s.held, heldCounter{item: i, node: n})
	}
	if len(s.held) > 1 {
		slices.SortStableFunc(s.held, func(a, b heldCounter) int { return a.node.before(b.node) })
	}
	held := s.held[:0]
	for _, h := range s.held {
		if last := len(held) - 1; last < 0 || held[last].node != h.node {
			held = append(held, h)
		}
		s.items[h.item].held = len(held) - 1
	}
	s.held = held
}

// before compares two counters' nodes by the order in which they are locked.
func (n *node) before(o *node) int {
	if n.shared || o.shared {
		return n.order - o.order // 0 of those that are not shared
	}
	return strings.Compare(n.tenant, o.tenant)
}

// key returns the name of an item's counter, in the memory of the scratch.
func (t *counting) key(it *countItem) string {
	b := t.scratch.names[it.from:it.to]
	return unsafe.String(unsafe.SliceData(b), len(b))
}
