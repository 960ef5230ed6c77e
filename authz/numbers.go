package authz

import (
	"sync"
	"sync/atomic"
	"time"
)

const (
	pageNumbers = 1 << 15 // of a page, which takes 4 KiB
	pageWords   = pageNumbers / 64
	// maxPages is how many pages are kept: 33 million numbers in 4 MiB.
	maxPages = 1024
	// openFor is for how long after it was made a reservation can be settled, at least.
	openFor = 24 * time.Hour
)

// numbers tell which reservations of one process are settled, a bit for each. They
// are safe for concurrent use.
type numbers struct {
	process uint64
	gone    bool                 // the process is; it takes none any more
	room    func(PageName) *Page // what outlives this process; nil: nothing does
	last    atomic.Uint64        // number that was taken
	current atomic.Pointer[Page] // of last; nil: it is not remembered

	mu      sync.Mutex
	pages   map[uint64]*numberPage // by number / pageNumbers; the first is page 0
	floor   uint64                 // page below which nothing is known any more
	top     uint64                 // highest page that was seen
	settled int64
	missing int64 // of pages that were given up, or whose process was killed
}

type numberPage struct {
	began time.Time
	set   int
	bits  []uint64 // nil: none is set, or all are
	kept  *Page    // nil: there is no room for it
}

// take returns the next number. The first is 1.
func (n *numbers) take(now time.Time) uint64 {
	number := n.last.Add(1)
	if number%pageNumbers == 0 || number == 1 {
		n.mu.Lock()
		n.turn(number/pageNumbers, now)
		n.mu.Unlock()
	}
	p := n.current.Load()
	if p != nil && p.Index < number/pageNumbers { // another has taken the first of the page, and has not turned yet
		n.mu.Lock()
		n.turn(number/pageNumbers, now)
		n.mu.Unlock()
		p = n.current.Load()
	}
	if p != nil && p.Index == number/pageNumbers {
		p.take(number)
	}
	return number
}

// turn opens a page, and gives up pages that are too many or too old. The caller holds
// the lock.
func (n *numbers) turn(page uint64, now time.Time) {
	if n.pages == nil {
		n.pages = make(map[uint64]*numberPage)
		n.floor = page - min(page, maxPages/2) // of another process, what came before is as good as unknown
	}
	n.top = max(n.top, page)
	if n.pages[page] == nil {
		p := &numberPage{began: now}
		n.pages[page] = p
		n.keep(p, page)
		if page == n.top {
			n.current.Store(p.kept)
		}
		if before := n.pages[page-1]; !n.gone && before != nil && before.kept != nil {
			before.kept.take(page*pageNumbers - 1) // as all before page
		}
	}
	for n.floor < n.top {
		next := n.pages[n.floor+1]
		old := next != nil && now.Sub(next.began) > openFor // all of the page is older
		if n.top-n.floor < maxPages && !old {
			return
		}
		n.giveUp(n.floor)
		n.floor++
	}
}

// giveUp forgets a page. What of it is not settled will never be.
func (n *numbers) giveUp(page uint64) {
	of := int64(pageNumbers)
	if page == 0 {
		of-- // there is no number 0
	}
	p := n.pages[page]
	set := int64(0)
	if p != nil {
		set = int64(p.set)
	}
	if n.gone { // not all of it was taken
		of = set
		if p != nil {
			of += p.left()
		}
	}
	n.missing += of - set
	if p != nil && p.kept != nil {
		p.kept.Free()
	}
	delete(n.pages, page)
}

// settle notes that a number is settled. It returns 0, or SettledBefore or SettledLate.
func (n *numbers) settle(number uint64, now time.Time) Settled {
	page := number / pageNumbers
	n.mu.Lock()
	defer n.mu.Unlock()
	if page >= n.floor && n.pages[page] == nil { // of another process: nobody has turned it
		n.turn(page, now)
	}
	if page < n.floor { // turning may have given it up at once
		return SettledLate
	}
	p := n.pages[page]
	of := pageNumbers
	if page == 0 {
		of--
	}
	if p.set == of {
		return SettledBefore
	}
	n.keep(p, page)
	if p.bits == nil {
		p.bits = p.memory()
	}
	at := number % pageNumbers
	if p.bits[at/64]&(1<<(at%64)) != 0 {
		return SettledBefore
	}
	p.bits[at/64] |= 1 << (at % 64)
	n.settled++
	if p.set++; p.set == of {
		p.bits = nil
	}
	return 0
}

// memory returns where p's bits are: none is set.
func (p *numberPage) memory() []uint64 {
	if p.kept != nil {
		return p.kept.Settled
	}
	return make([]uint64, pageWords)
}

// open returns how many numbers were taken and are not settled, and how many of all
// never will be.
func (n *numbers) open() (unsettled, missing int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return int64(n.last.Load()) - n.settled - n.missing, n.missing //nolint:gosec // nobody counts so far
}
