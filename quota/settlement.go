package quota

// A Settlement replaces what a request was charged to one account by what it used.
type Settlement struct {
	Charged   int64 // 0 or more
	Uncovered int64 // of Charged, that no lease covered
	Used      int64 // 0 or more
	Long      bool  // the request has outlived what leases are liable for (A48)
}

// Settle settles a request that p, or a purse of the same account anywhere, was charged.
// What it did not use can be spent again at once where p has a lease to put it into: the
// account counts it as used, or as leased, to the replica that was charged. The uncovered units
// go back first, and into no lease. What it used beyond its charge counts in full, and
// is taken from the leases as far as they go (A40, A41): the rest is a debt that the
// account knows with the next operation, before it lends anything.
//
// It returns what of the use no lease covers: should that be settled again, as another
// charge, its Uncovered. A repeat settles again: the caller makes sure that there is
// none.
func (p *Purse) Settle(now Instant, s Settlement) (stillUncovered int64) {
	switch extra := s.Used - s.Charged; {
	case extra < 0:
		p.Refund(now, -extra, min(-extra, s.Uncovered))
		return max(0, s.Uncovered+extra)
	case extra > 0:
		uncovered := p.Charge(now, extra)
		stillUncovered = uncovered
		if !p.terms.Counts && s.Long {
			p.over.long += uncovered
		} else if !p.terms.Counts {
			p.over.reserved += uncovered
		}
		if p.closing {
			p.keeper.poke(p)
		}
	}
	return stillUncovered + s.Uncovered
}
