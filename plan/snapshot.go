package plan

import (
	"hash/maphash"
)

// A Snapshot is all documents at one moment. It never changes, and any number of
// goroutines may read it.
type Snapshot struct {
	seed maphash.Seed

	apps        small[*appEntry]
	plans       small[*planEntry]
	routes      small[*routesEntry]
	webhooks    small[*entry]
	rateLimits  small[*entry]
	tenants     sharded[string, *tenantEntry]
	credentials sharded[Hash, *credentialEntry]
	voids       sharded[string, int64]

	hosts, domains map[string]*App
	others         *App            // of the hosts that no app lists; nil: none
	limited        small[*Domain]  // by domain
	cascades       bool            // of limits that do not say it
	settledLater   map[string]bool // paths of rules; it is replaced, never changed
	tariffs        small[*Tariff]  // by their ids; those of the rules, and of earlier ones
}

// An entry is what is known of one document: the document, or why there never was
// a valid one.
type entry struct {
	doc      *Document
	revision int64
	broken   string
}

type appEntry struct {
	entry
	app     *App
	standIn *App // where no version was ever valid
	routes  *routeTable
}

type planEntry struct {
	entry
	plan *Plan
	// What EffectiveLimit.Source says of it.
	source, override string
}

func newPlanEntry(doc *Document, revision int64) *planEntry {
	return &planEntry{
		entry: entry{doc: doc, revision: revision}, plan: doc.Plan,
		source: "plan " + doc.Name, override: "override of plan " + doc.Name,
	}
}

type (
	routesEntry     struct{ entry }
	tenantEntry     struct{ entry }
	credentialEntry struct{ entry }
)

func (e *tenantEntry) tenant() *Tenant {
	if e.doc == nil {
		return nil
	}
	return e.doc.Tenant
}

func (s *Snapshot) tenantShard(name string) uint64 { return maphash.String(s.seed, name) }

// Document returns a document and the revision that it was read at; nil and 0 if
// there is none. Documents of tenants and credentials have no Text.
func (s *Snapshot) Document(kind Kind, name string) (*Document, int64) {
	var e *entry
	switch kind {
	case KindApp:
		if found := s.apps.entries[name]; found != nil {
			e = &found.entry
		}
	case KindPlan:
		if found := s.plans.entries[name]; found != nil {
			e = &found.entry
		}
	case KindRoutes:
		if found := s.routes.entries[name]; found != nil {
			e = &found.entry
		}
	case KindTenant:
		if found, ok := s.tenants.get(s.tenantShard(name), name); ok {
			e = &found.entry
		}
	case KindCredential:
		if hash, ok := parseHash(name); ok {
			if found, ok := s.credentials.get(credentialShard(hash), hash); ok {
				e = &found.entry
			}
		}
	case KindWebhook:
		e = s.webhooks.entries[name]
	case KindRateLimits:
		e = s.rateLimits.entries[name]
	}
	if e == nil || e.doc == nil {
		return nil, 0
	}
	return e.doc, e.revision
}

// Names returns the names of all valid apps, plans, routes, webhooks or rate limits, sorted.
// Tenants and credentials are too many to list.
func (s *Snapshot) Names(kind Kind) []string {
	var names []string
	switch kind {
	case KindApp:
		names = sortedKeys(s.apps.entries)
	case KindPlan:
		names = sortedKeys(s.plans.entries)
	case KindRoutes:
		names = sortedKeys(s.routes.entries)
	case KindWebhook:
		names = sortedKeys(s.webhooks.entries)
	case KindRateLimits:
		names = sortedKeys(s.rateLimits.entries)
	case KindTenant, KindCredential:
	}
	valid := names[:0]
	for _, name := range names {
		if doc, _ := s.Document(kind, name); doc != nil {
			valid = append(valid, name)
		}
	}
	return valid
}

// App returns an app, or nil.
func (s *Snapshot) App(name string) *App {
	if e := s.apps.entries[name]; e != nil {
		return e.app
	}
	return nil
}

// AppByDomain returns the app of a rate limit domain, or nil. It may be one that was never
// valid, which [App.NeverValid] tells.
func (s *Snapshot) AppByDomain(domain string) *App { return s.domains[domain] }

// Plan returns a plan, or nil.
func (s *Snapshot) Plan(name string) *Plan {
	if e := s.plans.entries[name]; e != nil {
		return e.plan
	}
	return nil
}

// Tenant returns the document of a tenant, or nil.
func (s *Snapshot) Tenant(name string) *Tenant {
	if e, ok := s.tenants.get(s.tenantShard(name), name); ok {
		return e.tenant()
	}
	return nil
}

// HasTenant reports whether there is a document of a tenant, be it one that was never
// valid.
func (s *Snapshot) HasTenant(name string) bool {
	_, ok := s.tenants.get(s.tenantShard(name), name)
	return ok
}

// CredentialsOf counts the credentials of each of these tenants. It reads all there are.
func (s *Snapshot) CredentialsOf(tenants []string) map[string]int {
	counts := make(map[string]int, len(tenants))
	for _, name := range tenants {
		counts[name] = 0
	}
	s.credentials.all(func(e *credentialEntry) {
		if e.doc == nil {
			return
		}
		if n, asked := counts[e.doc.Credential.Tenant]; asked {
			counts[e.doc.Credential.Tenant] = n + 1
		}
	})
	return counts
}

// Credential returns what is known of an API key, or nil. It may be disabled or
// expired.
func (s *Snapshot) Credential(key Hash) *Credential {
	if e, ok := s.credentials.get(credentialShard(key), key); ok && e.doc != nil {
		return e.doc.Credential
	}
	return nil
}

// Route returns the rule for a request to an app: the first that matches, or one
// that costs one request if none does. It returns nil if there is no such app.
// It allocates nothing for a path that has one meaning.
//
// A path that servers may read in different ways, with its query or without, counts by
// the dearest: the rule takes of each unit what the dearest of all rules takes that any
// reading fits, and is checked if any of them is; it may be one made of several. What
// those ways are the app's [Paths] say, and docs/paths.md. A path with a dot segment, an
// escaped dot, or, where the app does not say how its servers read it, an escaped slash
// or ";", is never exempt, unless the first rule for the method is for every path and host.
// One that cannot be read is that of the dearest of all rules
// for the host.
//
// The host is an authority, compared as AppByHost does. A rule for hosts matches no
// request without one.
//
// A method matches as it is spelled: GET does not stand for HEAD. A path matches
// as a whole, a prefix by whole segments: /v1 is a prefix of /v1 and /v1/x, not
// of /v12; /v1/ is one of /v1/ and /v1/x, not of /v1.
func (s *Snapshot) Route(app, host, method, path string) *Rule {
	e := s.apps.entries[app]
	if e == nil || e.app == nil {
		return nil
	}
	return e.routes.find(host, method, path, nil)
}

// RouteNamed returns the rule of a name for a request, whatever it matches, or nil. If
// several Routes documents of an app have one, it is the first document's by name. A path
// that is never exempt, see [Snapshot.Route], counts by this rule and the others that it
// fits; an empty one is that of a request which has none.
func (s *Snapshot) RouteNamed(app, name, host, method, path string) *Rule {
	rule := s.RouteByName(app, name)
	if rule == nil || path == "" {
		return rule
	}
	return s.apps.entries[app].routes.find(host, method, path, rule)
}

// RouteByName returns the rule of that name, or nil. If several Routes documents
// of an app have one, it is the first document's by name.
func (s *Snapshot) RouteByName(app, name string) *Rule {
	e := s.apps.entries[app]
	if e == nil || e.app == nil {
		return nil
	}
	return e.routes.named[name]
}

// Void returns the revision that has voided the leases of a name, and the tokens of a
// descriptor's bucket, by hand; 0: none has.
func (s *Snapshot) Void(name string) int64 {
	revision, _ := s.voids.get(s.tenantShard(name), name)
	return revision
}
