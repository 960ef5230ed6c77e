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

	LetOnUnits    int64           // let on without a lease while the store was away
	QueuedUnits   int64           // let on without a lease, since the store was not asked in time
	Queuers       int64           // times that a request gave up before the store was asked for its lease
	Rationed      int64           // accounts that new names did not get, see Ration
	DroppedUnits  int64           // used, held for more than 10 min and never reported (A59)
	Recalls       int64           // sent to other replicas
	ReturnedUnits int64           // given back because another replica asked for them
	Overshoot     map[Cause]int64 // units past the ceiling; every cause is there (A50)
}

type keeperStats struct {
	granted, refused, reported, stale, gone, failed, units, lost atomic.Int64

	letOn, dropped, recalls, returned, overdrawn, long, unavailable, terms atomic.Int64

	letQueue, queue, queuers, rationed atomic.Int64
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
	purses := len(k.purses)
	for _, late := range k.late {
		purses += len(late)
	}
	return KeeperStats{
		Granted: k.stats.granted.Load(), Refused: k.stats.refused.Load(), Reported: k.stats.reported.Load(),
		Stale: k.stats.stale.Load(), Gone: k.stats.gone.Load(), Failed: k.stats.failed.Load(),
		Purses: purses, Queued: k.lanes.len(), InFlight: k.inFlight,
		Away: k.Away(now), GrantedUnits: k.stats.units.Load(),
		LetOnUnits: k.stats.letOn.Load(), QueuedUnits: k.stats.letQueue.Load(),
		Queuers: k.stats.queuers.Load(), Rationed: k.stats.rationed.Load(), DroppedUnits: k.stats.dropped.Load(),
		Recalls: k.stats.recalls.Load(), ReturnedUnits: k.stats.returned.Load(),
		Overshoot: map[Cause]int64{
			UnderReserved: k.stats.overdrawn.Load(), LongRequest: k.stats.long.Load(),
			TermsChange: k.stats.terms.Load(), UnavailableStore: k.stats.unavailable.Load(), QueuedLease: k.stats.queue.Load(), ReplicaLost: k.stats.lost.Load(),
		},
	}
}

// A LimitReading is how the purses of one limit of one app are, all tenants together.
type LimitReading struct {
	App, Limit string
	Leased     int64 // units that the store counts as leased to this replica
	Pending    int64 // used and not reported yet
	// Bound is by how much the tenants can go past their quotas should this replica
	// be lost now (Q40).
	Bound int64
}

// Limits returns how the purses are by app and limit, in no order. It takes the lock
// of one purse after the other.
func (k *Keeper) Limits() []LimitReading {
	k.mu.Lock()
	open := k.open()
	k.mu.Unlock()
	type name struct{ app, limit string }
	all := map[name]*LimitReading{}
	for _, p := range open {
		p.mu.Lock()
		n := name{p.terms.App, p.key.Limit}
		r := all[n]
		if r == nil {
			r = &LimitReading{App: n.app, Limit: n.limit}
			all[n] = r
		}
		r.Leased += p.held
		r.Pending += max(0, p.used-p.reported)
		r.Bound += p.bound()
		p.mu.Unlock()
	}
	out := make([]LimitReading, 0, len(all))
	for _, r := range all {
		out = append(out, *r)
	}
	return out
}
