package plan

import (
	"slices"
	"strings"
)

// AllOtherHosts is what an App lists among its hosts to get the requests of all hosts
// that no App lists.
const AllOtherHosts = "*"

// AppByHost returns the app of an authority, whose port, capitals and final dot do
// not count. An exact host goes before "*.", a longer "*." before a shorter one, and
// all of them before [Snapshot.AppOfOtherHosts], which may be nil.
func (s *Snapshot) AppByHost(host string) *App {
	host = strings.ToLower(bareHost(host))
	if app := s.hosts[host]; app != nil {
		return app
	}
	if len(host) > 253 {
		return s.others
	}
	var pattern [256]byte
	for rest := host; ; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			return s.others
		}
		rest = rest[i+1:]
		if app := s.hosts[string(append(append(pattern[:0], "*."...), rest...))]; app != nil {
			return app
		}
	}
}

// AppOfOtherHosts returns the app of requests whose host no app lists: the one that
// lists [AllOtherHosts], else the only one that lists no hosts at all; nil if there is
// neither. An App that was never valid does not count.
func (s *Snapshot) AppOfOtherHosts() *App { return s.others }

// StandIn returns what stands in for an app that was never valid, see [App.NeverValid];
// nil if a version of it is in force, or there is no document of it. Without a name it is
// one of all, the strictest, if no app at all is in force.
func (s *Snapshot) StandIn(name string) *App {
	if name != "" {
		if e := s.apps.entries[name]; e != nil {
			return e.standIn
		}
		return nil
	}
	var strictest *App
	for _, e := range s.apps.entries {
		if e.app != nil {
			return nil
		}
		if strictest == nil || before(e.standIn, strictest) {
			strictest = e.standIn
		}
	}
	return strictest
}

// before reports whether a goes before b: it denies and b does not, or else by name.
func before(a, b *App) bool {
	if deny := a.Defaults.OnUnavailable == Deny; deny != (b.Defaults.OnUnavailable == Deny) {
		return deny
	}
	return a.Name < b.Name
}

// compileApps finds out again which host and which domain belong to which app.
// Where two apps claim one, which Check refuses, the first by name has it; one that was
// never valid has no hosts, and its domain only where no other wants that.
func (c *Catalog) compileApps() {
	hosts, domains := map[string]*App{}, map[string]*App{}
	var without []*App
	for _, name := range slices.Backward(sortedKeys(c.now.apps.entries)) {
		if app := c.now.apps.entries[name].standIn; app != nil && app.Domain != "" {
			domains[app.Domain] = app
		}
	}
	for _, name := range slices.Backward(sortedKeys(c.now.apps.entries)) {
		app := c.now.apps.entries[name].app
		if app == nil {
			continue
		}
		for _, h := range app.Hosts {
			hosts[h] = app
		}
		if len(app.Hosts) == 0 {
			without = append(without, app)
		}
		if app.Domain != "" {
			domains[app.Domain] = app
		}
	}
	others := hosts[AllOtherHosts]
	if others == nil && len(without) == 1 {
		others = without[0]
	}
	c.now.hosts, c.now.domains, c.now.others = hosts, domains, others
}
