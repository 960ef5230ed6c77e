package quota

import (
	"errors"
	"sync/atomic"
)

// KeeperStats are counts since the keeper began.
type KeeperStats struct {
	// Operations by what came of them.
	Granted, Refused, Reported, Stale, Gone, Failed int64
	Purses                                          int   // open now
	Queued                                          int   // waiting for the store now
	InFlight                                        int   // at the store now
	Away                                            bool  // the store counts as failing
	GrantedUnits                                    int64 // lent to this replica in all
	LostUnits                                       int64 // used, and perhaps lost with an incarnation (ReplicaLost)
}

type keeperStats struct {
	granted, refused, reported, stale, gone, failed, units, lost atomic.Int64
}

// count notes what became of op.
func (k *Keeper) count(op *Operation, res Result, err error) {
	switch {
	case errors.Is(err, ErrStale):
		k.stats.stale.Add(1)
	case errors.Is(err, ErrGone):
		k.stats.gone.Add(1)
	case err != nil:
		k.stats.failed.Add(1)
	case op.Want == 0:
		k.stats.reported.Add(1)
	case res.Granted == 0:
		k.stats.refused.Add(1)
	default:
		k.stats.granted.Add(1)
		k.stats.units.Add(res.Granted)
	}
}

// Stats returns the counts.
func (k *Keeper) Stats() KeeperStats {
	now := k.now()
	k.mu.Lock()
	defer k.mu.Unlock()
	return KeeperStats{
		Granted: k.stats.granted.Load(), Refused: k.stats.refused.Load(), Reported: k.stats.reported.Load(),
		Stale: k.stats.stale.Load(), Gone: k.stats.gone.Load(), Failed: k.stats.failed.Load(),
		Purses: len(k.purses), Queued: len(k.waitedFor) + len(k.ready), InFlight: k.inFlight,
		Away: k.Away(now), GrantedUnits: k.stats.units.Load(), LostUnits: k.stats.lost.Load(),
	}
}
