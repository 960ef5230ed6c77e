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

// longestRest is for how long at most a node that had to stay is not looked at again.
// Its limits may change meanwhile.
const longestRest = time.Minute

// restBeforeEviction is how long nobody must have asked for a node before it may
// go: longer than any call that could still give something back.
const restBeforeEviction = 2 * time.Second

// newFor is for how long after its first request a name without a document is new: one
// with a document may take its place.
const newFor = time.Minute

// oneOffRest is how long nobody must have asked for a name that was in use for less than a
// minute before Tidy lets go of it.
const oneOffRest = 15 * time.Second

// An active table holds the nodes of the names that have lately asked: max of them, and
// past that those which have a document, or which a settlement needs (R31). For others
// there is no room where none can be dropped: a node that holds anything of worth stays,
// since dropping it would hand out a full bucket (case C041).
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
	peak  int     // of the nodes, since the map was made
}

// A place is a node and the monotonic time before which it need not be looked at: a
// drained bucket is passed without touching it.
type place struct {
	node *node
	stay int64
}

// An admission says how a new node comes into the table.
type admission struct {
	declared bool // its name has a document
	must     bool // it is needed, whatever there is room for
	rations  int  // new accounts that its name may open, of the keeper's minute
	minute   int64
}

// An eviction says how far a node is to be made to go.
type eviction int

const (
	evicting   eviction = iota // if nobody would miss it
	tidying                    // and purses of a name without a document are closed meanwhile
	displacing                 // and buckets of a new name without a document do not count
)

func newActive(k *quota.Keeper, limit int) *active {
	a := &active{keeper: k, max: int64(limit), seed: maphash.MakeSeed()}
	for i := range a.shards {
		a.shards[i].nodes = make(map[string]*node)
	}
	return a
}

func (a *active) shard(name string) *activeShard {
	return &a.shards[maphash.String(a.seed, name)&(activeShards-1)]
}

// node returns the node of a name that is needed: a new one if there is none.
func (a *active) node(name string, now quota.Instant) *node {
	if n := a.find(name, now); n != nil {
		return n
	}
	return a.add(name, now, admission{must: true})
}

// find returns the node of a name, or nil, and notes that it is in use.
func (a *active) find(name string, now quota.Instant) *node {
	shard := a.shard(name)
	shard.mu.RLock()
	n := shard.nodes[name]
	shard.mu.RUnlock()
	if n != nil {
		n.touch(now)
	}
	return n
}

func (n *node) touch(now quota.Instant) {
	if second := now.Mono / int64(time.Second); n.used.Load() != second {
		n.used.Store(second)
	}
}

// add returns the node of a name, a new one if there is none. It is nil if there is no
// room for a new one.
func (a *active) add(name string, now quota.Instant, as admission) *node {
	shard := a.shard(name)
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if n := shard.nodes[name]; n != nil {
		return n
	}
	if a.count.Load() >= a.max {
		what := evicting
		if as.declared {
			what = displacing
		}
		a.evict(shard, now, what)
	}
	if a.count.Add(1) > a.max && !as.declared && !as.must {
		a.count.Add(-1)
		return nil
	}
	n := &node{tenant: string(append([]byte(nil), name...)), born: now.Mono, rations: as.rations, minute: as.minute}
	n.declared.Store(as.declared)
	n.used.Store(now.Mono / int64(time.Second))
	shard.nodes[n.tenant] = n
	shard.ring = append(shard.ring, place{node: n, stay: now.Mono + int64(restBeforeEviction)})
	shard.peak = max(shard.peak, len(shard.nodes))
	return n
}

// evict goes on around the shard's nodes and drops those of the next few that can go. All
// are passed in turn, so that the work for a new node does not grow with the number of
// those that have to stay. The caller holds the shard's lock.
func (a *active) evict(shard *activeShard, now quota.Instant, what eviction) {
	for range min(evictionTries, len(shard.ring)) {
		if shard.hand >= len(shard.ring) {
			shard.hand = 0
		}
		at := &shard.ring[shard.hand]
		if at.stay <= now.Mono || what == displacing && at.node.isNew(now) {
			if stay := at.node.evict(a.keeper, now, what); stay > 0 {
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

// tidy drops the nodes of names without a document that were in use for less than a
// minute, some time ago, once nobody would miss them: what names that somebody makes up
// leave behind. It returns how many it has dropped.
func (a *active) tidy(now quota.Instant) (dropped int) {
	for i := range a.shards {
		shard := &a.shards[i]
		shard.mu.Lock()
		hand := shard.hand
		for shard.hand = 0; shard.hand < len(shard.ring); {
			at := &shard.ring[shard.hand]
			if at.stay > now.Mono || !at.node.oneOff(now) {
				shard.hand++
				continue
			}
			if stay := at.node.evict(a.keeper, now, tidying); stay > 0 {
				at.stay = now.Mono + int64(min(stay, longestRest))
				shard.hand++
				continue
			}
			a.drop(shard)
			dropped++
		}
		shard.hand = hand
		shard.shrink()
		shard.mu.Unlock()
	}
	return dropped
}

// shrink gives back the memory of a map that has had far more nodes than it has. The
// caller holds the lock.
func (s *activeShard) shrink() {
	const spare = 256
	if s.peak < 4*len(s.nodes)+spare {
		return
	}
	nodes := make(map[string]*node, len(s.nodes))
	for name, n := range s.nodes {
		nodes[name] = n
	}
	s.nodes, s.peak = nodes, len(nodes)
	s.ring = append(make([]place, 0, len(s.ring)), s.ring...)
}
