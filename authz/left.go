package authz

// How a process has left a page of its numbers.
const (
	leftOpen    = iota // it runs, or was killed
	leftInOrder        // it has ended in order: the log of what was open goes to the next
	leftMissing        // what of it is not settled was counted as missing
)

// End notes that this process ends in order: the next process does not count as
// missing what is open now.
func (d *Decider) End() {
	d.numbers.mu.Lock()
	defer d.numbers.mu.Unlock()
	for _, p := range d.numbers.pages {
		if p.kept != nil {
			p.kept.Left.Store(leftInOrder)
		}
	}
}

// Killed returns how many reservations of processes before this one that were killed are
// not settled and not counted as missing yet.
func (d *Decider) Killed() (unsettled int64) {
	d.heirs.each(func(n *numbers) {
		for _, p := range n.pages {
			if p.kept != nil && p.kept.Left.Load() == leftOpen {
				unsettled += p.left()
			}
		}
	})
	return unsettled
}

// Miss counts as missing what processes before this one have left unsettled: those that
// were killed, or all. It returns how many. Each is counted once, also over restarts, and
// may be settled all the same.
func (d *Decider) Miss(all bool) (missing int64) {
	d.heirs.each(func(n *numbers) { missing += n.miss(all) })
	return missing
}

// left returns how many numbers of a page of a process that is gone are not settled and
// not counted as missing. The caller holds the lock of its numbers.
func (p *numberPage) left() int64 {
	if p.kept == nil || !p.kept.Own || p.kept.Left.Load() == leftMissing {
		return 0
	}
	return max(0, p.kept.Taken.Load()-int64(p.set))
}

// miss is Miss for one process that is gone. The caller holds the lock.
func (n *numbers) miss(all bool) (missing int64) {
	for _, p := range n.pages {
		if p.kept == nil || p.kept.Left.Load() != leftOpen && !all {
			continue
		}
		missing += p.left()
		p.kept.Left.Store(leftMissing)
	}
	n.missing += missing
	return missing
}

// each calls do with the numbers of each process that is gone, which are locked meanwhile.
func (h *heirs) each(do func(*numbers)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.all {
		n.mu.Lock()
		do(n)
		n.mu.Unlock()
	}
}

// open returns how many reservations of processes before this one are not settled, and
// how many of them this one has counted as missing.
func (h *heirs) open() (unsettled, missing int64) {
	h.each(func(n *numbers) {
		for _, p := range n.pages {
			unsettled += p.left()
		}
		missing += n.missing
	})
	h.mu.Lock()
	defer h.mu.Unlock()
	return unsettled, missing + h.missing
}
