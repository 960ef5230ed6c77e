package authz

import (
	"math/bits"
	"slices"
	"sync/atomic"
	"time"
)

// A PageName says which numbers a page has: those of a process from Index times
// 32,768 on.
type PageName struct {
	Process, Index uint64
	Began          time.Time // when its first number was taken, or came
	// Own says that the process has taken the numbers itself. Otherwise it settles them
	// in the place of one that is gone.
	Own bool
}

// A Page is where the numbers of one page are remembered beyond the end of this process.
type Page struct {
	PageName

	Taken   *atomic.Int64 // how many numbers were taken of an own page
	Left    *atomic.Int64 // how the process of an own page has left it
	Settled []uint64      // a bit for each number that is settled
	// Reported are those of which the app has reported, or to which it has added: a
	// process that comes after this one does not know what, and leaves them as they are.
	Reported []uint64
	// Free forgets the page. Nothing of it is used any more.
	Free func()
}

// take notes that a number of p was taken, and so were all of p before it.
func (p *Page) take(number uint64) {
	taken := int64(number%pageNumbers) + 1 //nolint:gosec // small
	if p.Index == 0 {
		taken-- // there is no number 0
	}
	for before := p.Taken.Load(); before < taken && !p.Taken.CompareAndSwap(before, taken); {
		before = p.Taken.Load()
	}
}

// keep looks for room in which a page is remembered, unless it has some. The caller
// holds the lock.
func (n *numbers) keep(p *numberPage, index uint64) {
	if p.kept != nil || n.room == nil {
		return
	}
	p.kept = n.room(PageName{Process: n.process, Index: index, Began: p.began, Own: !n.gone})
	if p.kept == nil {
		return
	}
	if p.bits != nil {
		copy(p.kept.Settled, p.bits)
		p.bits = p.kept.Settled
	} else if p.set > 0 { // all are
		for i := range p.kept.Settled {
			p.kept.Settled[i] = ^uint64(0)
		}
	}
	if last := min(n.last.Load(), (index+1)*pageNumbers-1); !n.gone && last >= max(1, index*pageNumbers) {
		p.kept.take(last)
	}
	if !n.gone && index == n.top {
		n.current.Store(p.kept)
	}
}

// reported notes that the app has told something of a number: it may have another use
// by now than was reserved.
func (n *numbers) reported(number uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if p := n.pages[number/pageNumbers]; p != nil && p.kept != nil {
		at := number % pageNumbers
		p.kept.Reported[at/64] |= 1 << (at % 64)
	}
}

// restore returns the numbers of a process before this one, by what was remembered of
// them. What the app has reported on counts as settled.
func restore(pages []*Page, room func(PageName) *Page) *numbers {
	n := &numbers{process: pages[0].Process, gone: true, room: room, pages: make(map[uint64]*numberPage)}
	n.floor, n.top = pages[0].Index, pages[0].Index
	for _, kept := range pages {
		if n.pages[kept.Index] != nil {
			kept.Free() // the process was told of it twice
			continue
		}
		p := &numberPage{began: kept.Began, kept: kept, bits: kept.Settled}
		for i := range kept.Settled {
			kept.Settled[i] |= kept.Reported[i]
			p.set += bits.OnesCount64(kept.Settled[i])
		}
		n.pages[kept.Index] = p
		n.floor, n.top = min(n.floor, kept.Index), max(n.top, kept.Index)
		n.settled += int64(p.set)
	}
	if !pages[0].Own { // what it has not heard of may be open
		n.floor -= min(n.floor, maxPages/2)
	}
	return n
}

// restoreAll makes h remember what was settled by, or in the place of, earlier processes.
func (h *heirs) restoreAll(pages []*Page) {
	of := map[uint64][]*Page{}
	for _, p := range pages {
		of[p.Process] = append(of[p.Process], p)
	}
	h.all = make(map[uint64]*numbers, len(of))
	for process, some := range of {
		// Where both have it, that process itself knows more.
		slices.SortStableFunc(some, func(a, b *Page) int { return order(b.Own) - order(a.Own) })
		h.all[process] = restore(some, h.room)
		h.use = append(h.use, process)
	}
	slices.SortFunc(h.use, func(a, b uint64) int { return h.all[a].newest().Compare(h.all[b].newest()) })
	for len(h.use) > maxHeirs {
		h.drop()
	}
}

func order(own bool) int {
	if own {
		return 1
	}
	return 0
}

// newest returns when the last page began.
func (n *numbers) newest() (began time.Time) {
	for _, p := range n.pages {
		if p.began.After(began) {
			began = p.began
		}
	}
	return began
}
