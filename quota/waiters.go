package quota

import "time"

// Await asks for a lease with room for n units and returns a channel that is
// closed when the store has answered or has failed to. All that wait for one purse
// wait for one operation (A19, case C114).
func (p *Purse) Await(n int64) <-chan struct{} {
	if p.wait == nil {
		p.wait = make(chan struct{})
	}
	if !p.waiting.set {
		p.waiting = since{p.keeper.now(), true}
	}
	p.need = max(p.need, n)
	p.needs = min(p.needs+n, MaxUnits)
	p.keeper.hurry(p)
	return p.wait
}

// Ask asks for a lease with room for n units, which nobody waits for.
func (p *Purse) Ask(n int64) {
	p.need = max(p.need, n)
	p.keeper.poke(p)
}

// Succeed makes p ask for its first lease as large as the demand of the purse before it
// needs. Nobody waits for it.
func (p *Purse) Succeed(before *Purse) {
	p.demand = before.demand
	p.Ask(1)
}

// Wait returns how long a request may wait for p's lease (A19, C21).
func (p *Purse) Wait() time.Duration {
	if p.terms.Wait > 0 {
		return p.terms.Wait
	}
	return p.keeper.cfg.Wait
}

// GaveUp records that a request waited in vain for p, and how long. It reports whether
// the store has said meanwhile that there is no more: then others hold the rest, and
// have not returned it in time. If the store has had an operation of p for as long as the
// keeper waits, or takes this replica for gone, it counts as failing (A61), also for
// requests that begin before the operation itself has given up. Otherwise p alone does:
// its terms are old, or it has less patience. So it does if nobody had as much time, but
// all together had. Where the store has not been asked, or not for as long, nothing
// does: others were before p, and the next request waits again.
func (p *Purse) GaveUp(now Instant, waited time.Duration) (spent bool) {
	if p.recall.until > 0 {
		p.refuse(now, p.recall.left)
		p.wake()
		return true
	}
	if p.Queued(now) {
		p.keeper.stats.queuers.Add(1)
		return false
	}
	if waited >= p.Wait() || p.waiting.set && now.since(p.waiting.at) >= p.Wait() {
		p.failed = since{now, true}
	}
	if p.op != nil && now.since(p.opAsked) >= max(p.keeper.cfg.Wait, p.Wait()) || p.keeper.lostHolder() {
		p.keeper.Fail(now)
	}
	return false
}

// Queued reports whether requests wait for p in this process's own queue: the store has
// not been asked for its lease, or not for about as long as a request waits.
func (p *Purse) Queued(now Instant) bool {
	if p.stale || now.Mono < p.retryAt || p.FailingFor(now) > 0 || p.keeper.lostHolder() {
		return false
	}
	return p.op == nil || now.since(p.opAsked) < p.Wait()/10*9
}

// FailingFor returns for how long nobody should wait for p, since somebody did in
// vain or the store would not do its operation (A61); 0 if p may be waited for.
func (p *Purse) FailingFor(now Instant) time.Duration {
	if !p.failed.set {
		return p.keeper.AwayFor(now)
	}
	return max(p.keeper.AwayFor(now), p.keeper.cfg.UnavailableFor-now.since(p.failed.at), 0)
}

// wake lets the waiters look again.
func (p *Purse) wake() {
	p.crowd = p.needs
	p.need, p.needs = 0, 0
	if p.wait != nil {
		close(p.wait)
		p.wait = nil
	}
}
