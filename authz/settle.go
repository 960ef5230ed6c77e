package authz

import (
	"strings"
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// Settle replaces what r reserved by what was measured, at most once: a repeat returns
// SettledBefore and changes nothing. It is for the process that decided, or, once that
// is gone, for the one that takes its place: each keeps its own memory of repeats.
//
// Units go back to, or are taken from, this replica's own purse of the account,
// though another replica charged them. Use of a window that is over goes to that window's account. It does no
// I/O and is safe for concurrent use.
func (d *Decider) Settle(now time.Time, r *Reservation, m *Measured) Settled {
	result := d.settle(now, r, m)
	d.stats.settled.Count(result)
	return result
}

func (d *Decider) settle(now time.Time, r *Reservation, m *Measured) Settled {
	if len(m.Used) != len(r.Charges) {
		return SettledMalformed
	}
	for _, used := range m.Used {
		if used < unreported || used > maxUnits {
			return SettledMalformed
		}
	}
	o := d.open.find(r.Decision) // first: once it is forgotten its number is settled, see forget
	if result := d.numbersOf(r).settle(r.Number, now); result != 0 {
		return result
	}
	if r.Replay != ([16]byte{}) && (m.Replayed || !m.Free) {
		d.replays.add(r.App, plan.RouteName(r.Route), r.Replay, m.Replayed, now)
	}
	if o == nil {
		d.released(now, r, r.Charges, allUnits)
	}
	var reserved, used int64
	if o != nil {
		reserved, used = d.settleOpen(now, o, r, m)
	} else {
		reserved, used = d.settleAll(now, r, m)
	}
	switch {
	case m.Free && used == 0:
		return SettledFree
	case used < reserved:
		return SettledLess
	case used > reserved:
		return SettledMore
	}
	return SettledAsReserved
}

// settleAll settles each charge of r. It returns the units reserved and used.
func (d *Decider) settleAll(now time.Time, r *Reservation, m *Measured) (reserved, used int64) {
	for i := range r.Charges {
		c := &r.Charges[i]
		n := m.Used[i]
		if n == unreported { // what could have told is gone
			n = d.unreported(r, c, m.Free)
		}
		if _, ok := d.correct(now, r, c, quota.Settlement{Charged: c.Units, Uncovered: c.Uncovered, Used: n, Long: m.Long}); ok {
			reserved, used = reserved+c.Units, used+n
		}
	}
	return reserved, used
}

// unreported returns what counts as used of a charge that nobody has reported.
func (d *Decider) unreported(r *Reservation, c *Charged, free bool) int64 {
	if free {
		return 0
	}
	tariff := d.tariffOf(r)
	if res := tariff.Unit(c.Unit); res != nil {
		return assumed(tariff, res, r, c)
	}
	return c.Units
}

// numbersOf returns the numbers of the process that decided r.
func (d *Decider) numbersOf(r *Reservation) *numbers {
	if r.Replica == d.process {
		return &d.numbers
	}
	return d.heirs.of(r.Replica)
}

// correct settles one charge at this replica's purse of the account that was charged,
// wherever its tenant is now. It returns what of the use no lease covers, and reports
// whether it could settle: not a bucket that is gone.
func (d *Decider) correct(now time.Time, r *Reservation, c *Charged, s quota.Settlement) (uncovered int64, ok bool) {
	if s.Used == s.Charged {
		return s.Uncovered, true
	}
	at := d.keeper.Instant(now)
	if c.Window == "" {
		return 0, d.Here(r) && d.correctRate(at, r, c, s)
	}
	key := quota.Key{Root: c.Root, Tenant: c.Node, Limit: c.Limit, Window: c.Window}
	for {
		n := d.active.node(c.Node, at)
		n.mu.Lock()
		p, terms := n.purseOf(key), (*quota.Terms)(nil)
		if p == nil {
			n.mu.Unlock()
			terms = d.termsOf(now, at, n, r.App, c.Limit)
			n.mu.Lock()
			p = n.purseOf(key) // somebody may have opened it meanwhile
		}
		switch {
		case p != nil:
			uncovered = p.Settle(at, s)
		case n.dead:
			n.mu.Unlock()
			continue
		default:
			uncovered = d.settleLate(at, n, terms, key, s)
		}
		n.mu.Unlock()
		d.tellCorrection(r, c, s.Used-s.Charged)
		return uncovered, true
	}
}

// correctRate settles one charge at this process's own bucket, if it still has it. Use
// beyond what is in the bucket is a debt, which the next requests wait for (case C151).
func (d *Decider) correctRate(at quota.Instant, r *Reservation, c *Charged, s quota.Settlement) bool {
	n := d.active.find(c.Node, at)
	if n == nil {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, slot := range n.slots {
		if slot.app != r.App || slot.limit.Name != c.Limit || slot.limit.Kind != plan.Rate || slot.limit.Unit != c.Unit {
			continue
		}
		if extra := s.Used - s.Charged; extra > 0 {
			d.stats.forgiven.Add(slot.bucket.Owe(at.Mono, extra))
		} else {
			slot.bucket.Give(at.Mono, -extra)
		}
		return true
	}
	return false
}

// purseOf returns the purse of an account, or nil. The caller holds n's lock.
func (n *node) purseOf(key quota.Key) *quota.Purse {
	for _, p := range n.purses {
		if !p.Gone() && p.Key() == key {
			return p
		}
	}
	return nil
}

// termsOf returns the terms of a node's limit that hold now, or, if there is no such
// limit any more, terms that only count. It makes the node follow what holds for it.
func (d *Decider) termsOf(now time.Time, at quota.Instant, n *node, appName, limit string) *quota.Terms {
	cur := d.current.Load()
	if cur.snapshot != nil {
		if app := cur.snapshot.App(appName); app != nil {
			d.path(cur, app, n, now, at)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.slots {
		if s.app == appName && s.limit.Name == limit && s.limit.Kind == plan.Quota {
			return s.terms
		}
	}
	return &quota.Terms{
		App: strings.Clone(appName), Amount: quota.MaxUnits, Ceiling: quota.MaxUnits, Counts: true, Rule: quota.DefaultLeaseRule(),
	}
}

// settleLate settles a charge of which no purse is here: its window is over, its tenant
// has moved to another tree since, or no request of it came here. The purse reports it and is
// forgotten. The caller holds n's lock.
func (d *Decider) settleLate(at quota.Instant, n *node, terms *quota.Terms, key quota.Key, s quota.Settlement) (uncovered int64) {
	key = quota.Key{ // the purse outlives the token
		Root: strings.Clone(key.Root), Tenant: n.tenant, Limit: strings.Clone(key.Limit), Window: strings.Clone(key.Window),
	}
	p := d.keeper.OpenLate(key, n.root, terms, &n.mu)
	n.opened(p)
	uncovered = p.Settle(at, s)
	n.close(p)
	return uncovered
}
