package authz

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteproject/mete/quota"
)

// activeShards is a power of two well above the number of cores, so that requests
// of different tenants seldom meet at a lock.
const activeShards = 64

// evictionTries is how many nodes are looked at for each new one past the bound.
const evictionTries = 16

// restBeforeEviction is how long nobody must have asked for a node before it may
// go: longer than any call that could still give something back.
const restBeforeEviction = 2 * time.Second

// An active table holds the nodes of the tenants that have lately asked. It keeps
// about max of them (R31). A node that holds anything of worth stays past that:
// dropping it would hand out a full bucket (case C041).
type active struct {
	keeper *quota.Keeper
	max    int64
	seed   maphash.Seed
	count  atomic.Int64
	drops  atomic.Int64
	shards [activeShards]activeShard
}

type activeShard struct {
	mu    sync.RWMutex
	nodes map[string]*node
	_     [32]byte // keeps shards on lines of their own
}

func newActive(k *quota.Keeper, limit int) *active {
	a := &active{keeper: k, max: int64(limit), seed: maphash.MakeSeed()}
	for i := range a.shards {
		a.shards[i].nodes = make(map[string]*node)
	}
	return a
}

// node returns the node of a tenant, a new one if there is none.
func (a *active) node(tenant string, now quota.Instant) *node {
	shard := &a.shards[maphash.String(a.seed, tenant)&(activeShards-1)]
	shard.mu.RLock()
	n := shard.nodes[tenant]
	shard.mu.RUnlock()
	if n == nil {
		n = a.add(shard, tenant, now)
	}
	if second := now.Mono / int64(time.Second); n.used.Load() != second {
		n.used.Store(second)
	}
	return n
}

func (a *active) add(shard *activeShard, tenant string, now quota.Instant) *node {
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if n := shard.nodes[tenant]; n != nil {
		return n
	}
	if a.count.Load() >= a.max {
		a.evict(shard, now)
	}
	n := &node{tenant: string(append([]byte(nil), tenant...))}
	n.used.Store(now.Mono / int64(time.Second))
	shard.nodes[n.tenant] = n
	a.count.Add(1)
	return n
}

// evict drops nodes that nobody would miss, the least lately used of a few taken
// at random first, until the shard has made up for what it adds. The caller holds
// the shard's lock.
func (a *active) evict(shard *activeShard, now quota.Instant) {
	rested := (now.Mono - int64(restBeforeEviction)) / int64(time.Second)
	tries := 0
	for tenant, n := range shard.nodes { // Go starts at a random place
		if tries++; tries > evictionTries {
			return
		}
		if n.used.Load() > rested || !n.mu.TryLock() {
			continue
		}
		if n.evictable(a.keeper, now) {
			n.dead = true
			delete(shard.nodes, tenant)
			a.count.Add(-1)
			a.drops.Add(1)
		}
		n.mu.Unlock()
	}
}
