package authz

import (
	"hash/maphash"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// sharedSlots is how many slots the names that share a limit are spread over.
const sharedSlots = 1024

// A sharing holds the nodes of names that there is no room for: each stands for all names
// of one slot, which a hash under a key of this process decides. A slot has the limit's own
// amount, on this replica alone: nothing of it is in etcd, settled or billed. It is safe
// for concurrent use.
type sharing struct {
	seed     maphash.Seed
	most     int // nodes; past it all names of a limit share one slot
	requests atomic.Int64

	mu    sync.RWMutex
	nodes map[sharedKey]*node
	made  int
}

// A sharedKey is a slot of a group: all names of a group have the same limits.
type sharedKey struct {
	group string
	slot  uint64
}

func newSharing(most int) *sharing {
	return &sharing{seed: maphash.MakeSeed(), most: most, nodes: make(map[sharedKey]*node)}
}

// node returns the node that a name shares with others of its group, and counts the
// request. Of a new one called is the tenant.
func (s *sharing) node(group, name, called string, now quota.Instant) *node {
	s.requests.Add(1)
	key := sharedKey{group, maphash.String(s.seed, name) % sharedSlots}
	s.mu.RLock()
	n := s.nodes[key]
	full := n == nil && len(s.nodes) >= s.most
	if full {
		key.slot = 0
		n = s.nodes[key]
	}
	s.mu.RUnlock()
	if n == nil {
		n = s.add(key, called, now)
	}
	n.touch(now)
	return n
}

func (s *sharing) add(key sharedKey, called string, now quota.Instant) *node {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[key]; n != nil {
		return n
	}
	s.made++
	n := &node{tenant: strings.Clone(called), shared: true, order: s.made, born: now.Mono}
	key.group = strings.Clone(key.group)
	s.nodes[key] = n
	return n
}

// tidy drops the nodes that nobody would miss: their buckets are full, and of their quotas
// nothing is used of the window at hand.
func (s *sharing) tidy(now quota.Instant) (dropped int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, n := range s.nodes {
		if n.spent(now) {
			delete(s.nodes, key)
			dropped++
		}
	}
	if dropped > 0 && len(s.nodes) == 0 {
		s.nodes = make(map[sharedKey]*node)
	}
	return dropped
}

// spent makes n dead if nobody has asked for it lately and it holds nothing of worth.
func (n *node) spent(now quota.Instant) bool {
	if n.used.Load() > (now.Mono-int64(restBeforeEviction))/int64(time.Second) || !n.mu.TryLock() {
		return false
	}
	defer n.mu.Unlock()
	at := time.Unix(0, now.Wall)
	for _, s := range n.slots {
		if s.limit.Kind == plan.Rate && !s.bucket.Full(now.Mono) {
			return false
		}
		for _, p := range s.purses() {
			if p != nil && p.Used() > 0 && at.Before(p.Window().End) {
				return false
			}
		}
	}
	n.dead = true
	return true
}

// leaf returns the node that a tenant of an app is decided by: its own, or where there is
// no room for another name without a document, or for its accounts in this minute, the one
// that it shares.
func (d *Decider) leaf(cur *current, app *plan.App, tenant string, now quota.Instant) *node {
	if n := d.active.find(tenant, now); n != nil {
		return n
	}
	st := cur.snapshot.Standing(app, tenant)
	as := admission{declared: st.Declared}
	if !st.Declared {
		if app.Defaults.Plan == "" {
			return d.sharedLeaf(app, -1, tenant, now) // it has no limits, and nothing is kept of it
		}
		var ok bool
		if as.minute, ok = d.keeper.Ration(now, st.Accounts); !ok {
			return d.sharedLeaf(app, st.Override, tenant, now)
		}
		as.rations = st.Accounts
	}
	if n := d.active.add(tenant, now, as); n != nil {
		return n
	}
	d.keeper.ReturnRation(as.minute, as.rations)
	return d.sharedLeaf(app, st.Override, tenant, now)
}

// sharedLeaf returns the node that a tenant without a document shares with others for
// which the same override of the default plan holds.
func (d *Decider) sharedLeaf(app *plan.App, override int, tenant string, now quota.Instant) *node {
	return d.shared.node("a "+app.Name+" "+strconv.Itoa(override), tenant, tenant, now)
}

// counterNode returns the node of an item's counter, in the same way.
func (t *counting) counterNode(i int) *node {
	it := &t.scratch.items[i]
	name := t.key(it)
	counters := t.d.counters
	if n := counters.find(name, t.at); n != nil {
		return n
	}
	match, as := t.Items[i].Match, admission{}
	quotas := t.limitOf(i).Kind == plan.Quota
	as.declared = match != nil && match.Fixed && !it.override
	if !as.declared && quotas {
		var ok bool
		if as.minute, ok = t.d.keeper.Ration(t.at, 1); !ok {
			return t.sharedCounter(it, match, name)
		}
		as.rations = 1
	}
	if n := counters.add(name, t.at, as); n != nil {
		return n
	}
	t.d.keeper.ReturnRation(as.minute, as.rations)
	return t.sharedCounter(it, match, name)
}

// sharedCounter returns the node that a counter shares with the others of its rule.
func (t *counting) sharedCounter(it *countItem, match *plan.DescriptorMatch, name string) *node {
	group := "d " + t.Domain.Name + " "
	if match != nil && !it.override {
		group += match.Group
	}
	group += "#" + it.account
	return t.d.shared.node(group, name, name, t.at)
}

// Tidy drops what made-up names leave behind once nobody would miss it, and returns how
// many names and slots that are. It is to be called every few seconds.
func (d *Decider) Tidy(now time.Time) (dropped int) {
	at := d.keeper.Instant(now)
	return d.active.tidy(at) + d.counters.tidy(at) + d.shared.tidy(at)
}
