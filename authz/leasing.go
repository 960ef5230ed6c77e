package authz

import (
	"time"

	"github.com/meteproject/mete/quota"
)

// A moment is when a request is decided: by both clocks, and by the instant that
// decides its windows.
type moment struct {
	now    time.Time
	at     quota.Instant
	minute time.Time
}

// A leasing is what one try to charge a request has to do with leases that are not
// there.
type leasing struct {
	impatient bool          // the caller gives no more time
	waited    time.Duration // for leases

	short       <-chan struct{} // a lease that the request has to wait for
	wait        time.Duration   // for how long at most, since the request came
	denied      bool            // etcd is away and a limit says deny
	unavailable bool            // etcd is away and a limit says allow
	queued      bool            // one of those leases was not asked for in time
	failing     time.Duration   // for how long nobody will wait again
}

// gaveUp reports whether the request has waited in vain for a purse, and is refused.
func (l *leasing) gaveUp(p *quota.Purse, at quota.Instant) bool {
	return l.outOfTime(p) && p.GaveUp(at, l.waited)
}

// over reports whether there is no use in waiting: it has been enough, or etcd is away.
func (l *leasing) over(p *quota.Purse, at quota.Instant) bool {
	return l.outOfTime(p) || p.FailingFor(at) > 0
}

func (l *leasing) outOfTime(p *quota.Purse) bool { return l.impatient || l.waited >= p.Wait() }

// usedUp reports whether a request that has no lease of n units and waits for none is
// refused whatever the limit's choice: the quota is known to be used up.
func (l *leasing) usedUp(p *quota.Purse, n int64) bool {
	if !p.UsedUp(n) {
		return false
	}
	p.Ask(n) // once etcd answers, it may have come to know of refunds
	return true
}

// letOn decides a request that has no lease of n units and waits for none: the limit's
// choice says whether it may.
func (l *leasing) letOn(p *quota.Purse, at quota.Instant, n int64, allowed bool) {
	l.failing = max(l.failing, p.FailingFor(at))
	l.queued = l.queued || p.Queued(at)
	p.Ask(n) // the keeper goes on trying behind our back
	if allowed {
		l.unavailable = true
	} else {
		l.denied = true
	}
}

// await makes the request wait for a lease.
func (l *leasing) await(p *quota.Purse, n int64) { l.short, l.wait = p.Await(n), p.Wait() }

// charged notes that a purse was charged units that no lease covers.
func (l *leasing) charged(p *quota.Purse, uncovered int64) {
	if l.queued {
		p.LetOnQueued(uncovered)
	} else {
		p.LetOn(uncovered)
	}
}
