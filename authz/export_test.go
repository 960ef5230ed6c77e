package authz

import (
	"hash/maphash"
	"time"
)

// Keeps tells whether the buckets and purses of a tenant are in memory.
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
