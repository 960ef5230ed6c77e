package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// C004: a document that was never valid is not one that asks for no limits: on_unavailable
// decides, and the log does not speak of a good version that there never was (issue 12, C5).
func TestDocuments_C004_NeverValid(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	putNeverValid(t, c)
	var log syncBuffer
	r := startDocuments(t, c, zerolog.New(&log))
	r.untilRejected(11)
	wantNeverValid(t, r.Snapshot())
	if said := log.String(); strings.Contains(said, "last good") || strings.Count(said, "no version before it was valid") != 11 || strings.Count(said, "on_unavailable of the app decides for its tenants") != 3 {
		t.Errorf("the log says:\n%s", said)
	}
	// What is valid at last holds, and from then on a bad edit keeps it.
	put(t, c, store.DocumentKey(plan.KindApp, "denies"), strings.Replace(appText("denies", "UTC"), "spec:\n", "spec:\n  envoy: {domain: denies}\n", 1))
	put(t, c, store.DocumentKey(plan.KindRateLimits, "edge"), limitsText("edge", "a", 1))
	s := r.until("mended", func(s *plan.Snapshot) bool { return s.App("denies") != nil && s.Domain("edge").Broken == "" })
	if app := s.AppByDomain("denies"); app != s.App("denies") || app.NeverValid != "" || s.StandIn("denies") != nil || s.Domain("edge").Settings.OnUnavailable != plan.Allow {
		t.Errorf("app %+v, domain %+v", app, s.Domain("edge"))
	}
	put(t, c, store.DocumentKey(plan.KindApp, "denies"), "{")
	r.until("told", func(*plan.Snapshot) bool {
		return strings.Count(log.String(), "edit is rejected; the last good version stays in force") == 1
	})
	if r.Snapshot().App("denies") == nil {
		t.Error("a bad edit took the good version away")
	}
}

// putNeverValid writes documents of each kind of which no version is valid, eleven in all,
// and some that need them.
func putNeverValid(t *testing.T, c *clientv3.Client) {
	t.Helper()
	const bad = "apiVersion: mete/v1\nkind: %s\nmetadata: {name: %q}\nspec: {%s, colour: red}\n"
	for _, d := range []struct {
		kind             plan.Kind
		name, spec, text string
	}{
		{kind: plan.KindApp, name: "shop", text: appText("shop", "UTC")},
		{kind: plan.KindApp, name: "denies", spec: "envoy: {domain: denies}, defaults: {on_unavailable: deny}"},
		{kind: plan.KindApp, name: "misspelled", spec: "envoy: {domain: misspelled}, defaults: {on_unavailable: denny}"},
		{kind: plan.KindApp, name: "allows", spec: "envoy: {domain: allows}"},
		{kind: plan.KindApp, name: "empty"},
		{kind: plan.KindPlan, name: "bad", spec: "limits: {}"},
		{kind: plan.KindTenant, name: "org:on", text: tenantText("org:on", "bad", "")},
		{kind: plan.KindTenant, name: "org:never", spec: "plan: bad"},
		{kind: plan.KindTenant, name: "org:contradicts", text: tenantText("org:contradicts", "none", "")},
		{kind: plan.KindRoutes, name: "r", spec: "app: shop"},
		{kind: plan.KindCredential, name: strings.Repeat("0a", 32), spec: `tenant: "org:on"`},
		{kind: plan.KindRateLimits, name: "edge", text: "domain: edge\nmete: {on_unavailable: deny}\ndescriptors: [{key: k, ratelimit: {}}]\n"},
		{kind: plan.KindRateLimits, name: "core", text: "domain: core\ndescriptors: [{key: k, ratelimit: {}}]\n"},
	} {
		text := d.text
		if text == "" && d.spec != "" {
			text = fmt.Sprintf(bad, d.kind, d.name, d.spec)
		}
		put(t, c, store.DocumentKey(d.kind, d.name), text)
	}
}

// wantNeverValid checks what holds in the place of what putNeverValid has written.
func wantNeverValid(t *testing.T, s *plan.Snapshot) {
	t.Helper()
	for tenant, want := range map[string]string{
		"org:on": "plan bad has never been valid", "org:never": "tenant org:never has never been valid", "org:contradicts": "tenant org:contradicts has never been valid",
	} {
		if got := s.Terms(time.Now(), "shop", tenant).Broken; !strings.HasPrefix(got, want) {
			t.Errorf("%s: broken %q, want %s", tenant, got, want)
		}
	}
	for domain, want := range map[string]plan.Choice{"denies": plan.Deny, "misspelled": plan.Deny, "allows": plan.Allow} {
		app := s.AppByDomain(domain)
		if app == nil || app.Name != domain || app.Defaults.OnUnavailable != want || !strings.HasPrefix(app.NeverValid, "app "+domain+" has never been valid: ") {
			t.Errorf("domain %s: app %+v", domain, app)
		}
		if s.App(domain) != nil || s.StandIn(domain) != app {
			t.Errorf("app %s is in force", domain)
		}
	}
	if app := s.StandIn("empty"); app == nil || app.Defaults.OnUnavailable != plan.Allow {
		t.Errorf("app %+v", app)
	}
	for domain, want := range map[string]plan.Choice{"edge": plan.Deny, "core": plan.Allow} {
		if d := s.Domain(domain); d == nil || d.Broken == "" || d.Settings.OnUnavailable != want || d.App.Defaults.OnUnavailable != want {
			t.Errorf("domain %s: %+v", domain, d)
		}
	}
}
