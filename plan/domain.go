package plan

import (
	"slices"
	"strings"
)

// A Domain is what is in force for one rate limit domain. It never changes, and any
// number of goroutines may use it.
type Domain struct {
	Name     string
	Settings DomainSettings
	// Table finds the limit of a descriptor; nil where Broken says why there is none.
	Table *DescriptorTable
	// Broken says why no document of the domain is in force ("rate limits edge have
	// never been valid"); "": some are. It is never "no limit" (case C004).
	Broken string
	// App words the answers of the domain. It is no app that a document declares.
	App *App
	// Guards are the documents that the domain was made of, and Version the highest of
	// their revisions.
	Guards  []Guard
	Version int64
}

// SettledLater reports whether charges of the rule with a path tell of use that happened;
// see [Catalog.SetSettledLater].
func (s *Snapshot) SettledLater(path string) bool {
	return len(s.settledLater) > 0 && s.settledLater[path]
}

// Domain returns what is in force for a rate limit domain, or nil.
func (s *Snapshot) Domain(name string) *Domain { return s.limited.entries[name] }

// under reports whether a document of descriptors may have a name: its domain, or the
// domain, a slash and anything that tells it from the domain's other documents.
func (l *RateLimits) under(name string) bool {
	rest, ok := strings.CutPrefix(name, l.Domain)
	return ok && (rest == "" || len(rest) > 1 && rest[0] == '/')
}

// putRateLimits replaces, adds or (with nil) removes a document of descriptors.
func (c *Catalog) putRateLimits(name string, e *entry) {
	all := c.now.rateLimits.edit(c.age)
	delete(c.strict, name)
	for _, domain := range domainsOf(name, all[name]) {
		delete(c.siblings[domain], name)
		c.stale[domain] = true
	}
	if e == nil {
		delete(all, name)
	} else {
		all[name] = e
	}
	for _, domain := range domainsOf(name, e) {
		if c.siblings[domain] == nil {
			c.siblings[domain] = map[string]bool{}
		}
		c.siblings[domain][name] = true
		c.stale[domain] = true
	}
}

// domainsOf returns the domains that a document is of, or may be of if it was never valid.
func domainsOf(name string, e *entry) []string {
	switch {
	case e == nil:
		return nil
	case e.doc != nil:
		return []string{e.doc.RateLimits.Domain}
	}
	var all []string
	for domain := name; domain != ""; domain = domain[:max(0, strings.LastIndexByte(domain, '/'))] {
		all = append(all, domain)
	}
	return all
}

// compileDomains makes those domains again whose documents have changed: once for a
// snapshot, however many of them have.
func (c *Catalog) compileDomains() {
	for name := range c.stale {
		if len(c.siblings[name]) == 0 {
			delete(c.siblings, name)
		}
		c.compileDomain(name)
	}
	clear(c.stale)
}

// compileDomain makes a domain again of its documents.
func (c *Catalog) compileDomain(name string) {
	limited := c.now.limited.edit(c.age)
	d := newDomain(name, c.domainEntries(name, ""))
	if d == nil {
		delete(limited, name)
		return
	}
	if old := limited[name]; old != nil && old.Table != nil && d.Table != nil {
		d.Table.failed = old.Table.failed
	}
	if d.Broken != "" && c.anyStrict(name) {
		d.Settings.OnUnavailable, d.App.Defaults.OnUnavailable = Deny, Deny
	}
	limited[name] = d
}

// anyStrict reports whether a document that may be of a domain and was never valid wants
// on_unavailable: deny.
func (c *Catalog) anyStrict(domain string) bool {
	for name := range c.siblings[domain] {
		if c.strict[name] {
			return true
		}
	}
	return false
}

// domainEntries returns the documents of a domain in the order of their names, and of
// those that were never valid the ones that may be of it. The one called but is left out.
func (c *Catalog) domainEntries(domain, but string) []*entry {
	all := c.now.rateLimits.entries
	of := RateLimits{Domain: domain}
	var names []string
	for name := range c.siblings[domain] {
		if of.under(name) && name != but {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	entries := make([]*entry, 0, len(names))
	for _, name := range names {
		entries = append(entries, all[name])
	}
	return entries
}

// newDomain returns the domain of some documents, or nil where there are none. Of a rule
// that two have, which Check refuses, the stricter one holds.
func newDomain(name string, entries []*entry) *Domain {
	d := &Domain{Name: name, Settings: DefaultDomainSettings()}
	merged := RateLimits{Domain: name}
	var docs [][]DescriptorRule
	broken := ""
	for _, e := range entries {
		if e.doc == nil {
			broken = e.broken
			continue
		}
		docs = append(docs, e.doc.RateLimits.Rules)
		d.Guards = append(d.Guards, Guard{KindRateLimits, e.doc.Name, e.revision})
		d.Version = max(d.Version, e.revision)
		if s := e.doc.RateLimits.Settings; s != nil && merged.Settings == nil {
			merged.Settings, d.Settings = s, *s
		}
	}
	switch {
	case len(docs) > 0:
		merged.Rules = mergeAll(docs)
		d.Table = newDescriptorTable(&merged, &d.Settings)
	case broken != "":
		d.Broken = broken
	default:
		return nil
	}
	d.App = &App{
		TimeZone: d.Settings.TimeZone, Domain: name, Headers: d.Settings.Headers, Refusal: d.Settings.Refusal,
		Defaults: Defaults{OnUnavailable: d.Settings.OnUnavailable, Replicas: d.Settings.Replicas}, Count: DefaultCount(),
	}
	return d
}
