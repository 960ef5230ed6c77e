package plan

import (
	"encoding/binary"
	"encoding/hex"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"time"
)

// A Catalog collects documents as they come and go. It is for one goroutine; what
// others read is a [Snapshot].
//
// A Catalog takes what it is given: the writer of documents checks them before,
// with [Catalog.Check] and [Catalog.CheckDelete]. Documents that contradict each
// other all the same, because they were not checked or raced, never lift a limit:
// the tenants concerned get [Terms.Broken].
type Catalog struct {
	now Snapshot
	age uint64 // how many snapshots have been taken

	planUse  map[string]map[string]int // tenants that name a plan, by plan and app
	children map[string]int            // tenants that name a parent, by parent
	zones    map[string]*time.Location // so that a million tenants share theirs

	tariffs keptTariffs

	siblings map[string]map[string]bool // documents of rate limits that are or may be of a domain, by domain
	stale    map[string]bool            // domains to be compiled for the next snapshot
	strict   map[string]bool            // documents of rate limits that were never valid: whether they want on_unavailable: deny
}

// NewCatalog returns an empty Catalog.
func NewCatalog() *Catalog {
	return &Catalog{
		now:      Snapshot{seed: maphash.MakeSeed(), cascades: true},
		planUse:  map[string]map[string]int{},
		children: map[string]int{},
		zones:    map[string]*time.Location{},
		tariffs:  keptTariffs{all: map[string]*keptTariff{}, owed: map[string]bool{}},
		siblings: map[string]map[string]bool{},
		stale:    map[string]bool{},
		strict:   map[string]bool{},
	}
}

// Snapshot returns what the catalog holds now. It costs next to nothing, unless rate
// limits have changed since the last one: their domains are compiled first.
func (c *Catalog) Snapshot() *Snapshot {
	c.compileDomains()
	s := c.now
	c.age++
	return &s
}

// Put replaces the document of doc's kind and name by doc, which was read at
// revision. It keeps no Text of tenants and credentials.
func (c *Catalog) Put(doc *Document, revision int64) {
	switch doc.Kind {
	case KindApp:
		c.now.apps.edit(c.age)[doc.Name] = &appEntry{entry: entry{doc: doc, revision: revision}, app: doc.App}
		c.compileApps()
		c.compileRoutes(doc.Name)
	case KindPlan:
		c.now.plans.edit(c.age)[doc.Name] = newPlanEntry(doc, revision)
	case KindRoutes:
		before := c.routesApp(doc.Name)
		c.now.routes.edit(c.age)[doc.Name] = &routesEntry{entry{doc: doc, revision: revision}}
		c.compileRoutes(before)
		c.compileRoutes(doc.Routes.App)
	case KindTenant:
		c.putTenant(doc.Name, &tenantEntry{entry: entry{doc: c.lean(doc), revision: revision}})
	case KindCredential:
		at := credentialShard(doc.Credential.Hash)
		c.now.credentials.part(at, c.age)[doc.Credential.Hash] = &credentialEntry{entry{doc: c.lean(doc), revision: revision}}
	case KindWebhook:
		c.now.webhooks.edit(c.age)[doc.Name] = &entry{doc: doc, revision: revision}
	case KindRateLimits:
		c.putRateLimits(doc.Name, &entry{doc: doc, revision: revision})
	}
}

// PutBroken tells that a document at revision is not valid. A valid one that is
// there stays in force; where none ever was, tenants that need it get
// [Terms.Broken] with why, which should say so ("plan free has never been valid"). What
// can be read of text decides then what happens to the requests of an App or of rate
// limits; of tenants and plans, on_unavailable of the app does.
func (c *Catalog) PutBroken(kind Kind, name string, revision int64, why string, text []byte) {
	if doc, _ := c.now.Document(kind, name); doc != nil {
		return
	}
	broken := entry{revision: revision, broken: why}
	switch kind {
	case KindApp:
		c.now.apps.edit(c.age)[name] = &appEntry{entry: broken, routes: newRouteTable(nil, nil), standIn: gistOf(kind, text).standIn(name, why)}
		c.compileApps()
	case KindPlan:
		c.now.plans.edit(c.age)[name] = &planEntry{entry: broken}
	case KindRoutes:
		c.now.routes.edit(c.age)[name] = &routesEntry{broken}
	case KindTenant:
		c.putTenant(name, &tenantEntry{entry: broken})
	case KindCredential:
		if hash, ok := parseHash(name); ok {
			c.now.credentials.part(credentialShard(hash), c.age)[hash] = &credentialEntry{broken}
		}
	case KindWebhook:
		c.now.webhooks.edit(c.age)[name] = &broken
	case KindRateLimits:
		c.putRateLimits(name, &broken)
		c.strict[name] = gistOf(kind, text).onUnavailable == Deny
	}
}

// Delete removes a document, valid or broken, that was deleted at revision. What
// is not there is no error.
func (c *Catalog) Delete(kind Kind, name string, revision int64) {
	switch kind {
	case KindApp:
		delete(c.now.apps.edit(c.age), name)
		c.compileApps()
	case KindPlan:
		delete(c.now.plans.edit(c.age), name)
	case KindRoutes:
		app := c.routesApp(name)
		delete(c.now.routes.edit(c.age), name)
		c.compileRoutes(app)
	case KindTenant:
		c.putTenant(name, nil)
		// The quota version rises though the revision that made it is gone.
		c.SetVoid(name, revision)
	case KindCredential:
		if hash, ok := parseHash(name); ok {
			delete(c.now.credentials.part(credentialShard(hash), c.age), hash)
		}
	case KindWebhook:
		delete(c.now.webhooks.edit(c.age), name)
	case KindRateLimits:
		c.putRateLimits(name, nil)
	}
}

// SetCascades says what holds for limits that do not write cascade: true, as in a new
// catalog, means that what tenants below use is charged to them too; false, that it is
// not, as replicas below [CascadeLevel] read them. It reports whether that is a change.
func (c *Catalog) SetCascades(cascades bool) bool {
	changed := c.now.cascades != cascades
	c.now.cascades = cascades
	return changed
}

// SetSettledLater says that what a rule of a rate limit domain is charged tells of use
// that happened: a look at it was seen, which a charge follows once the request has ended.
// path is the rule's; a rule that is none, or is gone, does no harm.
func (c *Catalog) SetSettledLater(path string) {
	if c.now.settledLater[path] {
		return
	}
	all := maps.Clone(c.now.settledLater)
	if all == nil {
		all = map[string]bool{}
	}
	all[path] = true
	c.now.settledLater = all
}

// SetVoid raises the quota version of a tenant, and of those below it, to at
// least revision.
func (c *Catalog) SetVoid(tenant string, revision int64) {
	at := c.now.tenantShard(tenant)
	if old, _ := c.now.voids.get(at, tenant); revision > old {
		c.now.voids.part(at, c.age)[tenant] = revision
	}
}

// putTenant replaces, adds or (with nil) removes a tenant and counts who names
// whom.
func (c *Catalog) putTenant(name string, e *tenantEntry) {
	at := c.now.tenantShard(name)
	if old, ok := c.now.tenants.get(at, name); ok {
		c.count(old, -1)
	}
	if e == nil {
		delete(c.now.tenants.part(at, c.age), name)
		return
	}
	c.now.tenants.part(at, c.age)[name] = e
	c.count(e, 1)
}

func (c *Catalog) count(e *tenantEntry, n int) {
	t := e.tenant()
	if t == nil {
		return
	}
	if t.Parent != "" {
		add(c.children, t.Parent, n)
	}
	if t.Plan == "" {
		return
	}
	use := c.planUse[t.Plan]
	if use == nil {
		use = map[string]int{}
		c.planUse[t.Plan] = use
	}
	add(use, t.App, n)
	if len(use) == 0 {
		delete(c.planUse, t.Plan)
	}
}

func add(counts map[string]int, key string, n int) {
	if counts[key] += n; counts[key] <= 0 {
		delete(counts, key)
	}
}

// TenantsOn returns how many tenants name a plan.
func (c *Catalog) TenantsOn(plan string) int {
	sum := 0
	for _, n := range c.planUse[plan] {
		sum += n
	}
	return sum
}

// lean returns doc without what a million of them need not keep.
func (c *Catalog) lean(doc *Document) *Document {
	d := *doc
	d.Text, d.root, d.file = nil, nil, ""
	if d.Tenant != nil && d.Tenant.TimeZone != nil {
		t := *d.Tenant
		t.TimeZone = c.zone(t.TimeZone)
		d.Tenant = &t
	}
	return &d
}

func (c *Catalog) zone(z *time.Location) *time.Location {
	if known := c.zones[z.String()]; known != nil {
		return known
	}
	c.zones[z.String()] = z
	return z
}

func (c *Catalog) routesApp(name string) string {
	if e := c.now.routes.entries[name]; e != nil && e.doc != nil {
		return e.doc.Routes.App
	}
	return ""
}

// compileRoutes builds the rules of an app again.
func (c *Catalog) compileRoutes(app string) {
	old := c.now.apps.entries[app]
	if old == nil {
		return
	}
	e := *old
	e.routes = newRouteTable(e.app, c.routesOf(app, nil))
	c.now.apps.edit(c.age)[app] = &e
	c.keepTariffs(e.routes)
}

// routesOf returns the routes of an app in the order of their names, with more in
// the place of the one of its name.
func (c *Catalog) routesOf(app string, more *Routes) []*Routes {
	var all []*Routes
	for _, e := range c.now.routes.entries {
		if e.doc != nil && e.doc.Routes.App == app && (more == nil || e.doc.Name != more.Name) {
			all = append(all, e.doc.Routes)
		}
	}
	if more != nil {
		all = append(all, more)
	}
	slices.SortFunc(all, func(a, b *Routes) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func credentialShard(h Hash) uint64 { return binary.LittleEndian.Uint64(h[:]) }

func parseHash(name string) (h Hash, ok bool) {
	if len(name) != 2*len(h) {
		return h, false
	}
	_, err := hex.Decode(h[:], []byte(name))
	return h, err == nil
}
