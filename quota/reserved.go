package quota

import "time"

// reservedFor is how long a reservation counts as one of a running request, at least; at
// most it is twice as long. Of requests that run longer, and of those whose end nobody
// tells, what was reserved counts as used.
const reservedFor = 16 * time.Minute

// reservations are what of a purse's use requests have reserved that run now.
type reservations struct {
	generation int64    // of the first of each two; the second are of the one before
	units      [2]int64 // of all
	measured   [2]int64 // of those that may come back though the request succeeds
	last       int64    // monotonic time of the last one that is measured; 0: none
	told       int64    // of units: what the account says
}

// at returns the place of a generation; -1 if it is over.
func (r *reservations) at(generation int64) int {
	switch {
	case generation > r.generation:
		if generation == r.generation+1 {
			r.units[1], r.measured[1] = r.units[0], r.measured[0]
		} else {
			r.units[1], r.measured[1] = 0, 0
		}
		r.generation, r.units[0], r.measured[0] = generation, 0, 0
		return 0
	case generation < r.generation-1:
		return -1
	}
	return int(r.generation - generation)
}

func generationOf(began int64) int64 { return began / int64(reservedFor) }

// Reserve notes that n units, which p was just charged, are those of a request that began
// at a wall clock time in nanoseconds and runs; measured says that it may use fewer. The
// caller holds p's lock.
func (p *Purse) Reserve(now Instant, began, n int64, measured bool) {
	if i := p.reserved.at(generationOf(began)); i >= 0 {
		p.reserved.units[i] += n
		if measured {
			p.reserved.measured[i] += n
			p.reserved.last = now.Mono
		}
	}
}

// Release undoes Reserve: the request has ended. What p has forgotten meanwhile does no
// harm. The caller holds p's lock.
func (p *Purse) Release(now Instant, began, n int64, measured bool) {
	if i := p.reserved.at(generationOf(began)); i >= 0 {
		p.reserved.units[i] = max(0, p.reserved.units[i]-n)
		if measured {
			p.reserved.measured[i] = max(0, p.reserved.measured[i]-n)
		}
	}
	if p.reservedDiffers(now) && !p.local && !p.gone {
		p.planReport(now)
	}
}

// Reserved returns the units that requests which this replica admitted, and which run, have
// reserved; they are part of what is used. The caller holds p's lock.
func (p *Purse) Reserved(now Instant) int64 {
	p.reserved.at(generationOf(now.Wall))
	return p.reserved.units[0] + p.reserved.units[1]
}

// Returning returns those of the reserved units that may come back though their requests
// succeed, and how long ago the last of those requests was admitted. The caller holds p's
// lock.
func (p *Purse) Returning(now Instant) (units int64, since time.Duration) {
	p.reserved.at(generationOf(now.Wall))
	return p.reserved.measured[0] + p.reserved.measured[1], time.Duration(now.Mono - p.reserved.last)
}

// reservedDiffers reports whether the account says that requests run, and none does: then
// it has to be told, be it by an operation for this alone.
func (p *Purse) reservedDiffers(now Instant) bool {
	return p.reserved.told > 0 && (p.closing || p.Reserved(now) == 0)
}

// reservedToTell is what an operation says of reservations. A purse that is closed says
// none: nothing runs there that it could tell of later.
func (p *Purse) reservedToTell(now Instant) int64 {
	if p.closing {
		return 0
	}
	return min(p.Reserved(now), max(0, p.used))
}
