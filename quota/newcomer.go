package quota

import (
	"sync"
	"time"
)

// newShare is the part, in quarters, of the operations under way that purses of new names
// may take up: the others always find room.
const newShare = 3

// A ration bounds how many accounts new names may open in a minute.
type ration struct {
	mu     sync.Mutex
	minute int64
	taken  int
}

// Ration takes n accounts of what names without a document may newly open in this minute.
// ok is false, and nothing is taken, if that is used up. The minute is to be given to
// Newcomer, or back to ReturnRation.
func (k *Keeper) Ration(now Instant, n int) (minute int64, ok bool) {
	minute = max(0, now.Mono)/int64(time.Minute) + 1
	if k.cfg.NewAccounts <= 0 {
		return minute, true
	}
	r := &k.rations
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.minute < minute {
		r.minute, r.taken = minute, 0
	}
	if r.taken+n > k.cfg.NewAccounts {
		k.stats.rationed.Add(int64(n))
		return minute, false
	}
	r.taken += n
	return minute, true
}

// ReturnRation gives n accounts of a minute back: they are not opened after all, or were
// there before.
func (k *Keeper) ReturnRation(minute int64, n int) {
	r := &k.rations
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.minute == minute {
		r.taken = max(0, r.taken-n)
	}
}

// Newcomer says of a purse that has just been opened that its name has no document and is
// new until a monotonic time: its leases come after those of others. ration is the minute
// of the Ration that its account takes up, 0 without one: it is given back if the store
// turns out to know the account.
func (p *Purse) Newcomer(until, ration int64) {
	p.newUntil = until
	switch {
	case ration == 0:
	case p.ration != 0 || p.contacted || p.op != nil:
		p.keeper.ReturnRation(ration, 1)
	default:
		p.ration = ration
	}
}

// Declared says of a purse that its name has a document after all.
func (p *Purse) Declared() { p.newUntil = 0 }

// meets takes in the first answer of the store about an account: whether others have used
// it, or lease from it, or this replica did before.
func (p *Purse) meets(known bool) {
	if p.ration == 0 {
		return
	}
	if known {
		p.keeper.ReturnRation(p.ration, 1)
	}
	p.ration = 0
}

// isLate reports whether p's leases come after those of others.
func (p *Purse) isLate(now Instant) bool { return now.Mono < p.newUntil }
