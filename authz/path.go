package authz

import (
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// A current is the snapshot in force and its number: a later one has a higher
// number, also after a restore from a backup has set revisions back.
type current struct {
	snapshot   *plan.Snapshot
	generation uint64
	replicas   int
	shares     uint64 // rises when replicas changes
	since      int64  // monotonic time from which it holds
	shadow     bool   // nobody is refused (P2)
}

// A path is what a tenant's requests are charged to. It is built once and used
// until a document that it was built from changes.
type path struct {
	current *current
	terms   *plan.Terms
	steps   []step // root first
}

// A step is one node of a path.
type step struct {
	node  *node
	terms *plan.NodeTerms
	slots []*slot // as terms.Limits
}

// path returns the path of a tenant in an app under the snapshot cur.
func (d *Decider) path(cur *current, app *plan.App, leaf *node, now time.Time, at quota.Instant) *path {
	p := leaf.path.Load()
	if p != nil && p.terms.App == app && p.current == cur && !p.over(now) {
		return p
	}
	if p != nil && p.terms.App == app && p.current.shares == cur.shares && !p.over(now) && cur.snapshot.Holds(p.terms) {
		same := *p
		same.current = cur
		leaf.path.Store(&same)
		return &same
	}
	p = d.build(cur, app, leaf, now, at)
	leaf.path.Store(p)
	return p
}

// root returns the root of the tree, which decides where accounts are kept.
func (p *path) root() string { return p.terms.Root }

// over reports whether an override of the path has ended.
func (p *path) over(now time.Time) bool {
	return !p.terms.Until.IsZero() && !now.Before(p.terms.Until)
}

// build computes a path and makes its nodes follow it.
func (d *Decider) build(cur *current, app *plan.App, leaf *node, now time.Time, at quota.Instant) *path {
	termsOf := cur.snapshot.Terms
	if leaf.shared {
		termsOf = cur.snapshot.TermsOfUndeclared
	}
	terms := termsOf(now, app.Name, leaf.tenant)
	leaf.declare(terms.Known || terms.Foreign)
	p := &path{current: cur, terms: &terms, steps: make([]step, len(terms.Nodes))}
	for i := range terms.Nodes {
		t := &terms.Nodes[i]
		n := leaf
		if t.Tenant != leaf.tenant {
			n = d.active.node(t.Tenant, at)
			n.declare(true)
		}
		p.steps[i] = step{node: n, terms: t}
	}
	for i := range p.steps {
		s := &p.steps[i]
		s.node.mu.Lock()
		if s.node.behind(cur, at) {
			s.node.moveTo(p.root())
			var forgiven int64
			s.slots, forgiven = s.node.follow(cur, at, s.terms, app)
			d.stats.forgiven.Add(forgiven)
		}
		s.node.mu.Unlock()
	}
	return p
}

// behind reports whether n has followed nothing later than cur at now: not a later
// snapshot, nor this one past the end of an override.
func (n *node) behind(cur *current, now quota.Instant) bool {
	return n.generation < cur.generation || n.generation == cur.generation && n.followed <= now.Mono
}

// lock locks the nodes of p, root first (Q25), and reports whether they still are
// what p was built on. If not, nothing is locked.
func (p *path) lock(now quota.Instant) bool {
	second := now.Mono / int64(time.Second)
	for i := range p.steps {
		n := p.steps[i].node
		n.mu.Lock()
		if n.dead || n.generation > p.current.generation || p.steps[i].slots == nil && len(p.steps[i].terms.Limits) > 0 {
			p.unlockFirst(i + 1)
			return false
		}
		if n.used.Load() != second { // an ancestor is asked for through its leaves alone
			n.used.Store(second)
		}
	}
	return true
}

func (p *path) unlock() { p.unlockFirst(len(p.steps)) }

func (p *path) unlockFirst(n int) {
	for i := range p.steps[:n] {
		p.steps[i].node.mu.Unlock()
	}
}
