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

// evictionTries is how many places are passed for each new node past the bound: with
// more than one, a table that has outgrown it shrinks again.
const evictionTries = 4

// mostPast is how many times the bound the table may hold, while etcd is away, of nodes
// that have to stay. Past it a new tenant is not kept: names that somebody makes up must
// not fill the memory when nothing can be settled (C26).
const mostPast = 4

// longestRest is for how long at most a node that had to stay is not looked at again.
// Its limits may change meanwhile.
const longestRest = time.Minute

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
	ring  []place // of the nodes, in no order
	hand  int     // the next place of ring to be looked at
}

// A place is a node and the monotonic time before which it need not be looked at: a
// drained bucket is passed without touching it.
type place struct {
	node *node
	stay int64
}

func newActive(k *quota.Keeper, limit int) *active {
	a := &active{keeper: k, max: int64(limit), seed: maphash.MakeSeed()}
	for i := range a.shards {
		a.shards[i].nodes = make(map[string]*node)
	}
	return a
}

// node returns the node of a tenant, a new one if there is none. It is nil if there is
// none and no room for one while etcd is away, unless it must be kept: one that leads
// others.
func (a *active) node(tenant string, now quota.Instant, must bool) *node {
	shard := &a.shards[maphash.String(a.seed, tenant)&(activeShards-1)]
	shard.mu.RLock()
	n := shard.nodes[tenant]
	shard.mu.RUnlock()
	if n == nil {
		if n = a.add(shard, tenant, now, must); n == nil {
			return nil
		}
	}
	if second := now.Mono / int64(time.Second); n.used.Load() != second {
		n.used.Store(second)
	}
	return n
}

func (a *active) add(shard *activeShard, tenant string, now quota.Instant, must bool) *node {
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if n := shard.nodes[tenant]; n != nil {
		return n
	}
	if a.count.Load() >= a.max {
		a.evict(shard, now)
		if !must && a.count.Load() >= mostPast*a.max && a.keeper.Away(now) {
			return nil
		}
	}
	n := &node{tenant: string(append([]byte(nil), tenant...))}
	n.used.Store(now.Mono / int64(time.Second))
	shard.nodes[n.tenant] = n
	shard.ring = append(shard.ring, place{node: n, stay: now.Mono + int64(restBeforeEviction)})
	a.count.Add(1)
	return n
}

// evict goes on around the shard's nodes and drops those of the next few that nobody
// would miss. All are passed in turn, so that the work for a new node does not grow
// with the number of those that have to stay. The caller holds the shard's lock.
func (a *active) evict(shard *activeShard, now quota.Instant) {
	for range min(evictionTries, len(shard.ring)) {
		if shard.hand >= len(shard.ring) {
			shard.hand = 0
		}
		at := &shard.ring[shard.hand]
		if at.stay <= now.Mono {
			if stay := at.node.evict(a.keeper, now); stay > 0 {
				at.stay = now.Mono + int64(min(stay, longestRest))
			} else {
				a.drop(shard)
				continue
			}
		}
		shard.hand++
	}
}

// drop takes the node at the hand out of its shard; the last one takes its place.
func (a *active) drop(shard *activeShard) {
	delete(shard.nodes, shard.ring[shard.hand].node.tenant)
	last := len(shard.ring) - 1
	shard.ring[shard.hand] = shard.ring[last]
	shard.ring[last] = place{}
	shard.ring = shard.ring[:last]
	a.count.Add(-1)
	a.drops.Add(1)
}
