package peers

import (
	"sync/atomic"
	"time"

	"github.com/meteproject/mete/authz"
)

type counters struct {
	settled, forwarded, received, inherited                authz.SettledTally
	rerouted, overflowed, doubtful, retries, asked, failed atomic.Uint64
}

// Stats are counts since the start, and what is queued now. The index of arrays is the
// authz.Settled; 0 is a result that nobody can tell.
type Stats struct {
	// Settled are the results of Settle and SettleUnits.
	Settled [authz.SettledKinds]uint64
	// Of those that were SettledElsewhere: Forwarded are the results that peers
	// answered, Inherited those of what was settled here after all, Overflowed had no room in the queue of the
	// peer that takes another's place, and Doubtful were dropped because nobody knows what became of them.
	// The rest is queued.
	Forwarded, Inherited [authz.SettledKinds]uint64
	Overflowed, Doubtful uint64
	// Received are the results of what peers passed on to this process.
	Received [authz.SettledKinds]uint64
	// Rerouted are entries that went from the queue of a peer that left, or could not be reached,
	// to another's.
	Rerouted uint64
	// Retries are calls to peers, or tries to connect, that failed.
	Retries uint64
	// Asked are calls of QuotaService that were passed on, and AskedFailed those of
	// them that were not answered.
	Asked, AskedFailed uint64

	Peers         int           // live ones beside this process
	Away          int           // of those, that cannot be reached: others take their place
	Queued        int           // settlements that wait for a peer's answer
	QueuedBytes   int           // that they take, about
	OldestWaiting time.Duration // how long the oldest of them has waited
}

// Stats returns the counts. They are read one by one while settlements go on.
func (r *Router) Stats() Stats {
	c := &r.stats
	s := Stats{
		Settled: c.settled.Read(), Forwarded: c.forwarded.Read(), Inherited: c.inherited.Read(), Received: c.received.Read(),
		Overflowed: c.overflowed.Load(), Doubtful: c.doubtful.Load(), Rerouted: c.rerouted.Load(), Retries: c.retries.Load(),
		Asked: c.asked.Load(), AskedFailed: c.failed.Load(),
	}
	now := r.cfg.Now()
	for _, p := range r.view.Load().peers {
		s.Peers++
		if p.away.Load() {
			s.Away++
		}
		n, size, oldest := p.queue.look()
		s.Queued, s.QueuedBytes = s.Queued+n, s.QueuedBytes+size
		if n > 0 {
			s.OldestWaiting = max(s.OldestWaiting, now.Sub(oldest))
		}
	}
	return s
}
