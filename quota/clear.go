package quota

// Cleared returns a as if nothing of it had been used, and how much had been (P36). What
// holders may still spend stays lent, so that used + leased is past no ceiling that it was
// within; and what they report counts from here on, each unit once, for the account knows
// what they had reported: that is the base, which is below 0 then. So is what is used,
// once a holder gives back what it had been charged before.
//
// The caller stores the result only if a is still as it was read, and makes the
// replicas void their leases ([Terms].Void), for they remember that nothing is left. A
// repeat clears what was used since.
func (a Account) Cleared() (cleared Account, used int64) {
	used = a.Used()
	a.Base -= used
	return a, used
}

// learn notes what an answer of the store tells of others. It tells nothing if leases
// were voided meanwhile: the account may have been cleared after the answer.
func (p *Purse) learn(now Instant, res Result) {
	p.others = res.Used - res.Own
	p.contacted, p.lastContact = true, now
	if p.opTerms.Void != p.terms.Void {
		p.unlearn()
	}
}

// unlearn forgets what others have used, as a purse that has never heard of them: leases
// were voided, and the account may have been cleared. Where somebody only looks whether
// anything is left nobody asks the store.
func (p *Purse) unlearn() { p.others, p.contacted = -p.reported, false }
