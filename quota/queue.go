package quota

import "time"

// poke puts p into the queue and wakes Run. The caller holds p's lock.
func (k *Keeper) poke(p *Purse) {
	k.mu.Lock()
	k.enqueue(p)
	k.mu.Unlock()
	k.signal()
}

// hurry is poke for a purse that requests wait for: it goes before what is done
// behind the requests' back.
func (k *Keeper) hurry(p *Purse) {
	k.mu.Lock()
	k.enqueue(p)
	k.prefer(p)
	k.mu.Unlock()
	k.signal()
}

// lanes are the queues of purses to look at, the first one first. New names come after
// the others, and what requests wait for before what is done behind their backs.
type lanes [4][]*Purse

// The lanes. Of those of new names only some may be under way at once.
const (
	waitedLane = iota
	newWaitedLane
	readyLane
	newReadyLane
)

func (l *lanes) add(lane int, p *Purse) { l[lane] = append(l[lane], p) }

func (l *lanes) len() int {
	return len(l[waitedLane]) + len(l[newWaitedLane]) + len(l[readyLane]) + len(l[newReadyLane])
}

// prefer puts p, if it is queued, before those that nobody waits for.
func (k *Keeper) prefer(p *Purse) {
	if !p.queued || p.urgent {
		return
	}
	p.urgent = true
	if p.late {
		k.lanes.add(newWaitedLane, p)
	} else {
		k.lanes.add(waitedLane, p)
	}
}

func (k *Keeper) enqueue(p *Purse) {
	switch {
	case p.gone:
	case p.busy:
		p.again = true
	case !p.queued:
		p.queued = true
		if p.late = p.newUntil > 0 && p.isLate(k.now()); p.late {
			k.lanes.add(newReadyLane, p)
		} else {
			k.lanes.add(readyLane, p)
		}
	}
}

func (k *Keeper) signal() {
	select {
	case k.wakeUp <- struct{}{}:
	default: // a wake-up is already waiting
	}
}

// review plans a look at p. The caller holds p's lock.
func (k *Keeper) review(p *Purse, at int64) {
	p.reviewAt = at
	k.mu.Lock()
	earliest := len(k.reviews) == 0 || at < k.reviews[0].at
	k.reviews.push(review{at: at, purse: p})
	k.mu.Unlock()
	if earliest {
		k.signal()
	}
}

// take returns the next purse to look at, or nil if there is none or the store is
// as busy as it should be.
func (k *Keeper) take(now Instant) *Purse {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.reviews) > 0 && k.reviews[0].at <= now.Mono {
		k.enqueueReviewed(k.reviews.pop().purse)
	}
	if k.inFlight >= k.cfg.Parallel {
		return nil
	}
	probing := k.probing(now)
	if probing && (k.inFlight > 0 || now.Mono < k.probeAt) {
		return nil
	}
	p := k.first()
	if p == nil {
		return nil
	}
	if probing {
		k.probeAt = now.Mono + int64(probeEvery)
	}
	p.queued, p.urgent, p.busy, p.again = false, false, true, false
	k.inFlight++
	if p.late {
		k.newInFlight++
	}
	return p
}

// probing reports whether only one operation a second may go to the store.
func (k *Keeper) probing(now Instant) bool { return k.lost || k.Away(now) }

// first takes the first purse out of the lanes, in their order. A purse that stands in
// two has been taken once it comes up again.
func (k *Keeper) first() *Purse {
	for i := range k.lanes {
		if (i == newWaitedLane || i == newReadyLane) && k.newInFlight >= max(1, k.cfg.Parallel*newShare/4) {
			continue
		}
		lane := &k.lanes[i]
		for len(*lane) > 0 {
			p := (*lane)[0]
			(*lane)[0] = nil
			*lane = (*lane)[1:]
			if p.queued {
				return p
			}
		}
	}
	return nil
}

// enqueueReviewed queues a purse whose time has come, if it is still open.
func (k *Keeper) enqueueReviewed(p *Purse) {
	if k.has(p) {
		k.enqueue(p)
	}
}

// pause returns how long until there may be something to do.
func (k *Keeper) pause(now Instant) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	pause := 24 * time.Hour // nothing is planned: a poke ends it
	if len(k.reviews) > 0 {
		pause = min(pause, time.Duration(k.reviews[0].at-now.Mono))
	}
	if k.lanes.len() > 0 && k.inFlight == 0 {
		pause = min(pause, time.Duration(k.probeAt-now.Mono))
	}
	return max(pause, time.Millisecond)
}
