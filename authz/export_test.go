package authz

import (
	"hash/maphash"
	"time"
)

// Keeps reports whether the buckets and purses of a tenant are in memory.
func (d *Decider) Keeps(tenant string) bool {
	shard := &d.active.shards[maphash.String(d.active.seed, tenant)&(activeShards-1)]
	shard.mu.RLock()
	defer shard.mu.RUnlock()
	return shard.nodes[tenant] != nil
}

// Complete remembers that a mutation of tenant was completed, as its settlement does.
func (d *Decider) Complete(app, rule, tenant string, req *Request, replayed bool, now time.Time) {
	if key, ok := replayKey(app, tenant, req); ok {
		d.replays.add(app, rule, key, replayed, now)
	}
}

// Replays are completed mutations.
type Replays struct{ completed }

// Add is completed.add of a route without a rule.
func (r *Replays) Add(key [16]byte, replayed bool, now time.Time) {
	r.add("api", "", key, replayed, now)
}

// Has is completed.has of a route without a rule.
func (r *Replays) Has(key [16]byte, now time.Time) bool { return r.has("api", "", key, now) }

// ReplayKey is replayKey.
func ReplayKey(app, tenant string, req *Request) ([16]byte, bool) { return replayKey(app, tenant, req) }

// SettleNumber notes that a number of a process is settled.
func (d *Decider) SettleNumber(process, number uint64, now time.Time) Settled {
	return d.numbersOf(&Reservation{Replica: process, Number: number}).settle(number, now)
}

// Numbers are those of one process.
type Numbers struct{ numbers }

// Take is numbers.take.
func (n *Numbers) Take(now time.Time) uint64 { return n.take(now) }

// Settle is numbers.settle.
func (n *Numbers) Settle(number uint64, now time.Time) Settled { return n.settle(number, now) }

// Open is numbers.open.
func (n *Numbers) Open() (unsettled, missing int64) { return n.open() }

// Bits returns how many pages have bits, and PageNumbers and MaxPages the sizes.
func (n *Numbers) Bits() (pages int) {
	for _, p := range n.pages {
		if p.bits != nil {
			pages++
		}
	}
	return pages
}

// The sizes of Numbers.
const (
	PageNumbers = pageNumbers
	MaxPages    = maxPages
)

// SetRoom makes n those of a process that are remembered where room says.
func (n *Numbers) SetRoom(process uint64, room func(PageName) *Page) {
	n.process, n.room = process, room
}

// Identity is what a header says of who calls.
func (r *Request) Identity(name string) (string, Found) { return r.identity(name) }
