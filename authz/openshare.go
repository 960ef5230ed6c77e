package authz

import (
	"container/heap"
	"sync"
	"time"
)

// maxOpen is how many reservations that the app may report on are kept. Past it the
// tenant with the most of them loses its oldest: none can push out those of others that
// have fewer.
const maxOpen = 100_000

// openReservations are those of one process. They are safe for concurrent use. Their lock
// is held for no wait.
type openReservations struct {
	mu     sync.Mutex
	byID   map[ID]*openReservation
	ages   openList // all, the oldest first
	owners map[string]*openOwner
	most   openOwners // a heap: the tenant with the most is first

	pushedOut, expired int64 // forgotten before the app has reported on them
}

// An openOwner is the open reservations of one tenant, the oldest first.
type openOwner struct {
	tenant string
	list   openList
	at     int // in the heap
}

// An openLink links a reservation into a list.
type openLink struct{ before, after *openReservation }

// An openList is a list of reservations. which returns the link of one that it uses.
type openList struct {
	first, last *openReservation
	n           int
}

// byAge and byOwner return the links of the two lists that a reservation is in.
func byAge(o *openReservation) *openLink   { return &o.age }
func byOwner(o *openReservation) *openLink { return &o.own }

func (l *openList) push(o *openReservation, which func(*openReservation) *openLink) {
	*which(o) = openLink{before: l.last}
	if l.last != nil {
		which(l.last).after = o
	} else {
		l.first = o
	}
	l.last = o
	l.n++
}

func (l *openList) remove(o *openReservation, which func(*openReservation) *openLink) {
	link := *which(o)
	if link.before != nil {
		which(link.before).after = link.after
	} else {
		l.first = link.after
	}
	if link.after != nil {
		which(link.after).before = link.before
	} else {
		l.last = link.before
	}
	*which(o) = openLink{}
	l.n--
}

// add keeps a reservation. A second one of an id takes the place of the first.
func (o *openReservations) add(one *openReservation) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID == nil {
		o.byID, o.owners = make(map[ID]*openReservation), make(map[string]*openOwner)
	}
	if old := o.byID[one.id]; old != nil {
		o.remove(old)
	}
	o.byID[one.id] = one
	o.ages.push(one, byAge)
	owner := o.owners[one.leaf]
	if owner == nil {
		owner = &openOwner{tenant: one.leaf}
		o.owners[one.leaf] = owner
		owner.list.push(one, byOwner)
		heap.Push(&o.most, owner)
		return
	}
	owner.list.push(one, byOwner)
	heap.Fix(&o.most, owner.at)
}

// remove forgets a reservation that is there. The caller holds the lock.
func (o *openReservations) remove(one *openReservation) {
	delete(o.byID, one.id)
	o.ages.remove(one, byAge)
	owner := o.owners[one.leaf]
	owner.list.remove(one, byOwner)
	if owner.list.n == 0 {
		heap.Remove(&o.most, owner.at)
		delete(o.owners, owner.tenant)
		return
	}
	heap.Fix(&o.most, owner.at)
}

// next returns the reservation that is the next to be forgotten, or nil: one that is too
// old, or where there are too many the oldest of the tenant with the most.
func (o *openReservations) next(now time.Time) *openReservation {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case o.ages.n == 0:
		return nil
	case now.Sub(o.ages.first.made) >= openFor:
		return o.ages.first
	case o.ages.n >= maxOpen:
		return o.most[0].list.first
	}
	return nil
}

// pass forgets a reservation that next has returned, unless it is forgotten by now, and
// counts it where the app has not reported on it.
func (o *openReservations) pass(now time.Time, one *openReservation, reported bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.byID[one.id] != one {
		return
	}
	o.remove(one)
	switch {
	case reported:
	case now.Sub(one.made) >= openFor:
		o.expired++
	default:
		o.pushedOut++
	}
}

// find returns an open reservation, or nil.
func (o *openReservations) find(id ID) *openReservation {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.byID[id]
}

// drop forgets a reservation whose request was given back.
func (o *openReservations) drop(id ID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if one := o.byID[id]; one != nil {
		o.remove(one)
	}
}

// read fills in what s tells of them.
func (o *openReservations) read(s *Stats) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.Reportable, s.PushedOut, s.Expired = int64(o.ages.n), o.pushedOut, o.expired
}

// openOwners is a heap of tenants: the one with the most open reservations is first, and
// of several the one that has the oldest.
type openOwners []*openOwner

func (h openOwners) Len() int { return len(h) }

func (h openOwners) Less(i, j int) bool {
	a, b := &h[i].list, &h[j].list
	if a.n != b.n || a.n == 0 {
		return a.n > b.n
	}
	return a.first.made.Before(b.first.made)
}

func (h openOwners) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].at, h[j].at = i, j
}

// Push implements [heap.Interface].
func (h *openOwners) Push(x any) {
	owner := x.(*openOwner) // nothing else is ever pushed
	owner.at = len(*h)
	*h = append(*h, owner)
}

// Pop implements [heap.Interface].
func (h *openOwners) Pop() any {
	last := len(*h) - 1
	owner := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return owner
}
