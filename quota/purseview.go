package quota

// Lacks reports whether n units are more than is left, as far as this replica knows: a
// request that is refused elsewhere would be refused here too. Whether it really is
// so the store tells, when it is asked.
func (p *Purse) Lacks(now Instant, n int64) bool {
	v := p.Room(now, n)
	return v == Spent || v == Short && n > p.terms.Ceiling-p.Used()
}

// Any reports whether anything at all is left, as far as this replica knows, up to
// the ceiling (case C046).
func (p *Purse) Any(now Instant) bool {
	spendable := p.spendable(now)
	switch {
	case p.terms.Counts || spendable > 0:
		return true
	case p.refused(now):
		return p.refusal.left > 0 && p.terms.Ceiling > p.Used()
	}
	return p.terms.Ceiling > p.Used()
}

// Left returns the units that are left of the amount as far as this replica knows,
// never below 0. After a refusal it is what could be had, not what others hold.
func (p *Purse) Left(now Instant) int64 {
	left := max(0, p.terms.Amount-p.Used())
	if p.refused(now) {
		return min(left, p.spendable(now)+p.refusal.left)
	}
	return left
}

// Settled reports whether the store knows all there is to know: nothing is held,
// nothing is unreported, nothing is under way and no request is said to run.
func (p *Purse) Settled() bool {
	return p.op == nil && p.wait == nil && p.reserved.told == 0 && p.held == 0 && p.used == p.reported && len(p.lots) == 0
}

// unfinished reports whether p has an operation to bring to an end, somebody to answer
// or an account to leave.
func (p *Purse) unfinished() bool {
	return p.op != nil || p.wait != nil && p.recall.until == 0 || p.closing && (p.held > 0 || p.used != p.reported || p.reserved.told > 0)
}

// Contacted reports whether the store has told what others have used, no longer ago than a
// lease is spent from.
func (p *Purse) Contacted(now Instant) bool {
	return p.local || p.contacted && now.since(p.lastContact) < p.terms.Rule.UsableFor
}
