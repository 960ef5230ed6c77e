//go:build linux || darwin

package journal

import (
	"time"

	"github.com/meteproject/mete/quota"
)

// granularity is how exactly the time of the last use is kept: it only has to tell
// whether that was more than 10 minutes ago, and each store costs.
const granularity = int64(time.Second)

var _, _ quota.Cell = (*cell)(nil), void{}

// A cell is one slot in use, of a purse whose lock guards it.
type cell struct {
	journal *Journal
	at      slot
	numbers *numbers // in mapped memory; nil once the cell is closed
}

// Used implements [quota.Cell]. The time goes first: use that is remembered must not
// look older than it is.
func (c *cell) Used(units, wall int64) {
	n := c.numbers
	if n == nil {
		return
	}
	if since := wall - n.wall.Load(); since >= granularity || since < 0 {
		n.wall.Store(wall)
	}
	n.used.Store(units)
}

// Reported implements [quota.Cell].
func (c *cell) Reported(units int64) {
	if n := c.numbers; n != nil {
		n.reported.Store(units)
	}
}

// Close implements [quota.Cell].
func (c *cell) Close() {
	n := c.numbers
	if n == nil {
		return
	}
	c.numbers = nil
	n.state.Store(0)
	c.journal.free(c.at)
}

// A void is a cell that remembers nothing: there was no room for it.
type void struct{}

// Used implements [quota.Cell].
func (void) Used(int64, int64) {}

// Reported implements [quota.Cell].
func (void) Reported(int64) {}

// Close implements [quota.Cell].
func (void) Close() {}
