package authz

import "time"

// Outstanding returns how many reservations of processes before this one are not
// settled, as far as it is known, those that count as missing among them.
func (d *Decider) Outstanding() (unsettled int64) {
	d.heirs.each(func(n *numbers) {
		for _, p := range n.pages {
			if p.kept != nil && p.kept.Own {
				unsettled += max(0, p.kept.Taken.Load()-int64(p.set))
			}
		}
	})
	return unsettled
}

// OpenLeft reads the token of a process before this one into r, like Open. It reports
// whether that reservation is known not to be settled: not where nothing is known.
func (d *Decider) OpenLeft(token string, r *Reservation) (unsettled, ok bool) {
	if d.Open(token, r) != 0 || d.Here(r) {
		return false, false
	}
	return d.heirs.unsettled(r.Replica, r.Number)
}

// unsettled reports whether a number of a process before this one is not settled, and
// whether that is known.
func (h *heirs) unsettled(process, number uint64) (unsettled, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.all[process]
	if n == nil {
		return false, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.pages[number/pageNumbers]
	switch {
	case p == nil || p.kept == nil || !p.kept.Own:
		return false, false
	case p.bits == nil: // none is set, or all are
		return p.set == 0, true
	}
	at := number % pageNumbers
	return p.bits[at/64]&(1<<(at%64)) == 0, true
}

// Forgive settles r, which OpenLeft has read, as if its request had cost nothing: what it
// was charged is given back, of quotas alone, since its process's buckets are gone. A
// repeat returns SettledBefore and changes nothing.
func (d *Decider) Forgive(now time.Time, r *Reservation) Settled {
	return d.Settle(now, r, &Measured{Used: make([]int64, len(r.Charges)), Free: true})
}
