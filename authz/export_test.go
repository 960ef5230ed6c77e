package authz

import "hash/maphash"

// Keeps tells whether the buckets and purses of a tenant are in memory.
func (d *Decider) Keeps(tenant string) bool {
	shard := &d.active.shards[maphash.String(d.active.seed, tenant)&(activeShards-1)]
	shard.mu.RLock()
	defer shard.mu.RUnlock()
	return shard.nodes[tenant] != nil
}
