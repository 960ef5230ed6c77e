package quota

import (
	"slices"
	"time"
)

// heldFor is how long use may wait for its report. What waits longer is dropped and
// never billed (A59).
const heldFor = 10 * time.Minute

// markEvery is how exactly the age of use is known. It is dropped up to so much
// early, and never late.
const markEvery = 10 * time.Second

// A mark is the cumulative use at the end of a short while that began at a moment, and
// the least that it was meanwhile: what was used before cannot have waited past that.
type mark struct {
	at        Instant
	used, low int64
}

func (m *mark) shift(n int64) { m.used, m.low = m.used+n, m.low+n }

// count notes that the cumulative use is another one now.
func (p *Purse) count(now Instant, used int64) {
	p.used = used
	p.remember(now)
	if !p.pending.set {
		p.pending = since{now, true}
	}
	last := len(p.marks) - 1
	if last >= 0 && now.since(p.marks[last].at) < markEvery {
		p.marks[last].used, p.marks[last].low = used, min(p.marks[last].low, used)
		return
	}
	if last >= 1 && now.since(p.marks[1].at) > heldFor {
		p.marks = slices.Delete(p.marks, 0, 1) // dropped together with the next
	}
	p.marks = append(p.marks, mark{at: now, used: used, low: used})
}

// heldTooLong returns how much of the unreported use has waited too long.
func (p *Purse) heldTooLong(now Instant) int64 {
	old := p.reported
	for _, m := range p.marks {
		if now.since(m.at) > heldFor {
			old = m.used
		} else {
			old = min(old, m.low) // some of it was given back since
		}
	}
	return max(0, min(old, p.used)-p.reported)
}

// dropHeld drops use that has waited too long. What the store has of it must be known.
func (p *Purse) dropHeld(now Instant) {
	n := p.heldTooLong(now)
	if n == 0 {
		return
	}
	for i := range p.marks {
		p.marks[i].shift(-n)
	}
	p.used -= n
	p.over.unavailable = max(0, p.over.unavailable-n)
	p.remember(now)
	p.forgetMarks()
	p.keeper.stats.dropped.Add(n)
}

// forgetMarks forgets the marks of use that the store has.
func (p *Purse) forgetMarks() {
	n := 0
	for n < len(p.marks) && p.marks[n].used <= p.reported {
		n++
	}
	p.marks = slices.Delete(p.marks, 0, n)
}

// remember writes the use into the journal.
func (p *Purse) remember(now Instant) {
	if p.cell == nil {
		if p.keeper.cfg.Journal == nil {
			return
		}
		p.openCell()
	}
	used := p.used
	if p.unbased {
		used += Unbased
	}
	p.cell.Used(used, now.Wall)
}

// openCell opens the journal's cell for what p uses under the present incarnation, or
// goes on under the one that it counts for already.
func (p *Purse) openCell() {
	if p.holder == "" {
		p.holder = p.keeper.incarnation()
	}
	p.unbased = p.seq == 0 && !p.contacted && p.keeper.mayHaveForerunner()
	p.cell = p.keeper.cfg.Journal.Open(p.key, p.terms.App, p.holder)
	p.cell.Reported(p.reported)
}

// closeCell gives the cell back: there is nothing more to remember of p's holder.
func (p *Purse) closeCell() {
	if p.cell != nil {
		p.cell.Close()
		p.cell, p.unbased = nil, false
	}
}

// know notes how much of the use the store has.
func (p *Purse) know(now Instant, reported int64) {
	p.reported = reported
	p.forgetMarks()
	if p.cell == nil {
		return
	}
	if p.unbased {
		p.unbased = false
		p.remember(now)
	}
	p.cell.Reported(reported)
}
