//go:build linux || darwin

package journal

import (
	"os"

	"github.com/meteproject/mete/quota"
)

// SetAllocate replaces how room on disk is made.
func (j *Journal) SetAllocate(f func(*os.File, int) error) { j.allocate = f }

// Allocate makes room as journals do, Zeros as they do where that is not possible.
var (
	Allocate = allocate
	Zeros    = zeros
)

// Parse reads a file of a machine that was booted as boot says.
func Parse(b []byte, boot string) ([]quota.Orphan, int, error) {
	found, damaged, err := parse(b, boot)
	orphans := make([]quota.Orphan, 0, len(found))
	for _, f := range found {
		orphans = append(orphans, f.Orphan)
	}
	return orphans, damaged, err
}

// Boot returns what names this run of the machine.
func Boot() string { return boot() }

// What tests need to know of the layout of the first file.
const (
	VersionAt  = 8
	HeaderEnd  = headerBytes
	SlotBytes  = slotBytes
	FirstSlots = 4096
	RetryAfter = retryAfter
)

// Small is a file with few and short slots, for fuzzing.
func Small(slots, keyBytes int, boot string) []byte {
	l := layout{slots, keyBytes}
	b := make([]byte, l.size())
	putHeader(b, l, boot)
	return b
}

// Put fills a slot of a file that Small has made.
func Put(b []byte, slot int, o quota.Orphan) {
	l, _, _ := header(b)
	c := chunk{layout: l, mem: b}
	n := namesOf(o.Key, o.App, o.Holder)
	at := c.numbers(slot)
	at.state.Store(taken | uint64(n.put(c.key(slot))))
	at.used.Store(o.Used)
	at.reported.Store(o.Reported)
	at.wall.Store(o.Wall)
}

// MaxPages is how many pages there may be.
const MaxPages = maxPages

// WaitAhead waits for a file that is being made.
func (p *Pages) WaitAhead() { p.ahead.Wait() }

// OfAnotherBoot makes a file of reservations one that was there before the machine went down.
func OfAnotherBoot(b []byte) []byte {
	putHeader(b, reservedLayout(), "another")
	return b
}
