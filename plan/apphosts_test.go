package plan_test

import (
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// appWith is a valid App of that name with an envoy block.
func appWith(name, envoy string) string {
	return doc("App", name, "{time_zone: UTC, envoy: "+envoy+", identity: {tenant: [{api_key: x-api-key}]}}")
}

// A request whose host no app lists goes to the app that says "*", else to the only
// one that lists no hosts (issue 12, C1).
func TestAppByHost_AllOtherHosts(t *testing.T) {
	t.Parallel()
	api, plain := appWith("api", "{domain: api}"), appWith("plain", "{}")
	two, star := appWith("two", "{hosts: [two.example.com, '*.two.example.com']}"), appWith("star", "{hosts: ['*', s.example.com]}")
	for _, tt := range []struct {
		name string
		apps []string
		want string // of a.example.com, two.example.com, x.two.example.com, s.example.com and no host, in this order
	}{
		{"none", nil, "- - - - -"},
		{"one without hosts", []string{api}, "api api api api api"},
		{"one with hosts", []string{two}, "- two two - -"},
		{"a second one with hosts takes its own alone", []string{api, two}, "api two two api api"},
		{"two without hosts", []string{api, plain, two}, "- two two - -"},
		{"one that says so", []string{api, plain, two, star}, "star two two star star"},
		{"one that says so, beside one without hosts", []string{api, star}, "star star star star star"},
	} {
		s := catalog(t, tt.apps...).Snapshot()
		var got []string
		for _, host := range []string{"a.example.com", "Two.example.com:443", "x.two.example.com.", "s.example.com", ""} {
			name := "-"
			if app := s.AppByHost(host); app != nil {
				name = app.Name
			}
			got = append(got, name)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %v, want %s", tt.name, got, tt.want)
		}
	}
}

// Hosts that are none have no app of their own, and are not patterns either.
func TestAppByHost_HostsThatAreNone(t *testing.T) {
	t.Parallel()
	s := catalog(t, appWith("two", "{hosts: [two.example.com, '*.b.org']}")).Snapshot()
	for _, host := range []string{"*", "*.", "..", "[::1]:99", "x..", "b.org", "*.two.example.com", strings.Repeat("a.", 4000) + "b.org"} {
		if app := s.AppByHost(host); app != nil {
			t.Errorf("%.40q: got app %s", host, app.Name)
		}
	}
}

// A host that is too long to be listed is one that no app lists.
func TestAppByHost_AHostThatIsTooLong(t *testing.T) {
	t.Parallel()
	s := catalog(t, appWith("api", "{}"), appWith("two", "{hosts: ['*.b.org']}")).Snapshot()
	if app := s.AppByHost(strings.Repeat("a.", 4000) + "b.org"); app == nil || app.Name != "api" {
		t.Errorf("got %v", app)
	}
}

// An app that was never valid takes no other its requests, and is no reason to know
// none: what it would say is not known.
func TestAppByHost_AnAppThatWasNeverValid(t *testing.T) {
	t.Parallel()
	c := catalog(t, appWith("api", "{}"))
	c.PutBroken(plan.KindApp, "bad", 7, "app bad has never been valid", nil)
	if app := c.Snapshot().AppByHost("a.example.com"); app == nil || app.Name != "api" {
		t.Errorf("got %v", app)
	}
	if app := c.Snapshot().StandIn(""); app != nil {
		t.Errorf("an app is in force, and yet: %s", app.NeverValid)
	}
	if app := c.Snapshot().StandIn("bad"); app.NeverValid != "app bad has never been valid" || app.Defaults.OnUnavailable != plan.Allow || c.Snapshot().StandIn("none") != nil || c.Snapshot().StandIn("api") != nil {
		t.Errorf("got %+v", app)
	}
	c.PutBroken(plan.KindApp, "worse", 8, "app worse has never been valid", []byte("spec: {defaults: {on_unavailable: deny}}"))
	c.PutBroken(plan.KindApp, "aha", 9, "app aha has never been valid", []byte("spec: {defaults: {on_unavailable: allow}}"))
	c.Delete(plan.KindApp, "api", 10)
	if app := c.Snapshot().StandIn(""); app.Name != "worse" {
		t.Errorf("no app is in force: got %q", app.NeverValid)
	}
}

func TestApp_TheHostOfAllOthersIsOnesAlone(t *testing.T) {
	t.Parallel()
	c := catalog(t, appWith("star", "{hosts: ['*']}"))
	docs, problems := plan.Decode("", []byte(appWith("other", "{hosts: ['*']}")))
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	if got := c.Check(docs[0]); len(got) != 1 || !strings.Contains(got[0].Message, `"*" belongs to app star already`) {
		t.Errorf("got %v", got)
	}
	if level, path := docs[0].Needs(); level != 5 || path != "spec.envoy.hosts[0]" {
		t.Errorf("needs level %d for %q", level, path)
	}
	// Elsewhere "*" is not a host: rules without hosts are for all of them.
	_, problems = plan.Decode("", []byte(doc("Routes", "r", "{app: star, rules: [{match: {hosts: ['*']}}]}")))
	if !plan.Refused(problems) {
		t.Error(`a rule may name the host "*"`)
	}
}
