package quota_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/meteproject/mete/quota"
)

// A paper is a journal in memory.
type paper struct {
	mu    sync.Mutex
	cells map[*paperCell]bool
}

type paperCell struct {
	paper *paper
	quota.Orphan
	closed bool
}

func (p *paper) Open(key quota.Key, app, holder string) quota.Cell {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.cells {
		if c.Key == key && c.Holder == holder {
			panic(fmt.Sprintf("two cells for %v of %s", key, holder))
		}
	}
	c := &paperCell{paper: p, Orphan: quota.Orphan{Key: key, App: app, Holder: holder}}
	if p.cells == nil {
		p.cells = map[*paperCell]bool{}
	}
	p.cells[c] = true
	return c
}

// orphans returns what is left on the paper.
func (p *paper) orphans() []quota.Orphan {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []quota.Orphan
	for c := range p.cells {
		all = append(all, c.Orphan)
	}
	slices.SortFunc(all, func(a, b quota.Orphan) int { // in the same order each time
		return strings.Compare(fmt.Sprint(a.Key, a.Holder), fmt.Sprint(b.Key, b.Holder))
	})
	return all
}

func (c *paperCell) change(f func()) {
	c.paper.mu.Lock()
	defer c.paper.mu.Unlock()
	if c.closed {
		panic("a closed cell was written to")
	}
	f()
}

func (c *paperCell) Used(units, wall int64) { c.change(func() { c.Orphan.Used, c.Wall = units, wall }) }
func (c *paperCell) Reported(units int64)   { c.change(func() { c.Orphan.Reported = units }) }
func (c *paperCell) Close() {
	c.change(func() { c.closed = true; delete(c.paper.cells, c) })
}
