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

// WhyNoApp tells why an app is not in force though a document of it is there ("app api
// has never been valid"); "" if no such document is. Without a name it tells so of an
// app if no app at all is in force.
func (s *Snapshot) WhyNoApp(name string) string {
	if name != "" {
		if e := s.apps.entries[name]; e != nil && e.app == nil {
			return e.broken
		}
		return ""
	}
	why := ""
	for _, e := range s.apps.entries {
		if e.app != nil {
			return ""
		}
		if why == "" || e.broken < why {
			why = e.broken
		}
	}
	return why
}

// compileApps finds out anew which host and which domain belong to which app.
// Where two apps claim one, which Check refuses, the first by name has it.
func (c *Catalog) compileApps() {
	hosts, domains := map[string]*App{}, map[string]*App{}
	var without []*App
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
