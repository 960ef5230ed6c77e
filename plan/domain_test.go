package plan_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// limitsDoc reads the document of descriptors called name, as it is stored.
func limitsDoc(t *testing.T, name, text string) *plan.Document {
	t.Helper()
	doc, problems := plan.DecodeOne(plan.KindRateLimits, name, "", []byte(text))
	if doc == nil {
		t.Fatalf("%s: %s", name, lines(problems))
	}
	return doc
}

// perDay is the text of a document that limits k=value of a domain, and settings if any.
func perDay(domain, value string, amount int, settings string) string {
	text := fmt.Sprintf("domain: %s\ndescriptors:\n- {key: k, value: %s, rate_limit: {unit: day, requests_per_unit: %d}}\n", domain, value, amount)
	if settings != "" {
		text += "mete: " + settings + "\n"
	}
	return text
}

// amountOf returns the limit of k=value in a domain; -1: nothing matches.
func amountOf(s *plan.Snapshot, domain, value string) int64 {
	m, _ := s.Domain(domain).Table.Match([]plan.DescriptorEntry{{Key: "k", Value: value}}, nil)
	if m == nil || m.Limit == nil {
		return -1
	}
	return m.Limit.Amount
}

func TestDecode_P2_C51_AllSettingsOfADomain(t *testing.T) {
	t.Parallel()
	berlin, err := plan.LoadZone("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	want := plan.DomainSettings{
		TimeZone: berlin, Replicas: plan.Split, OnUnavailable: plan.Deny, ChargeRefused: true, ShadowMode: true,
		Headers: plan.Headers{
			RateLimit: plan.OnDenial, XRateLimit: plan.XEpoch, XEnvoyRateLimited: true,
			RateLimitName: "x-limit", PolicyName: "ratelimit-policy",
		},
		Refusal: plan.Refusal{Body: plan.BodyTemplate, Template: "no, ${retry_after}", ContentType: "text/plain"},
	}
	text := string(read(t, "descriptors", "settings_p2.yaml"))
	if got := limitsDoc(t, "edge", text).RateLimits.Settings; !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
	// What is not written is the default, and so is what is written as the default.
	const defaults = "{time_zone: UTC, replicas: full, on_unavailable: allow, overrides: allow, refunds: allow, refused_hits: free, shadow_mode: false}"
	for _, settings := range []string{"{}", defaults} {
		if got := limitsDoc(t, "d", perDay("d", "a", 1, settings)).RateLimits.Settings; !reflect.DeepEqual(*got, plan.DefaultDomainSettings()) {
			t.Errorf("%s: got %+v", settings, *got)
		}
	}
	if got := limitsDoc(t, "d", once).RateLimits.Settings; got != nil {
		t.Errorf("settings of a document without any: %+v", got)
	}
}

func TestCatalog_P2_P70_SettingsHoldForTheWholeDomain(t *testing.T) {
	t.Parallel()
	c := plan.NewCatalog()
	c.Put(limitsDoc(t, "edge/a", perDay("edge", "a", 1, "")), 7)
	if got := c.Snapshot().Domain("edge").Settings; !reflect.DeepEqual(got, plan.DefaultDomainSettings()) {
		t.Errorf("without settings: %+v", got)
	}
	c.Put(limitsDoc(t, "edge/b", string(read(t, "descriptors", "settings_p2.yaml"))), 5)
	d := c.Snapshot().Domain("edge")
	m, _ := d.Table.Match([]plan.DescriptorEntry{{Key: "k", Value: "a"}}, nil)
	if l := m.Limit; l.Zone.String() != "Europe/Berlin" || l.OnUnavailable != plan.Deny || l.Replicas != plan.Split {
		t.Errorf("the limit of another document is %+v", l)
	}
	if a := d.App; a.Domain != "edge" || a.TimeZone.String() != "Europe/Berlin" || a.Headers != d.Settings.Headers || a.Refusal != d.Settings.Refusal ||
		a.Defaults.OnUnavailable != plan.Deny || a.Defaults.Replicas != plan.Split || a.Name != "" {
		t.Errorf("the answers are worded by %+v", a)
	}
	if c.Snapshot().AppByDomain("edge") != nil || len(c.Snapshot().Names(plan.KindApp)) != 0 {
		t.Error("the domain has declared an app")
	}
}

// P70: documents of a domain are merged in the order of their names, whenever they come.
func TestCatalog_P70_DocumentsAreMergedByName(t *testing.T) {
	t.Parallel()
	docs := []*plan.Document{
		limitsDoc(t, "shop/eg", "domain: shop/eg\ndescriptors: [{key: k, value: b*, rate_limit: {unit: day, requests_per_unit: 1}}]\n"),
		limitsDoc(t, "shop/eg/10", "domain: shop/eg\ndescriptors: [{key: k, value: \"*a\", rate_limit: {unit: day, requests_per_unit: 2}}]\n"),
		limitsDoc(t, "shop/eg/2", "domain: shop/eg\ndescriptors: [{key: k, value: c*, rate_limit: {unit: day, requests_per_unit: 3}}]\n"),
	}
	others := []*plan.Document{
		limitsDoc(t, "shop", perDay("shop", "ca", 9, "")),
		limitsDoc(t, "shop/eg-2", perDay("shop/eg-2", "ca", 8, "")),
		limitsDoc(t, "shop/eg/http", perDay("shop/eg/http", "ca", 7, "")),
	}
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {1, 2, 0}} {
		c := plan.NewCatalog()
		for i, at := range order {
			c.Put(others[i], int64(100+i))
			c.Put(docs[at], int64(12-at))
		}
		s := c.Snapshot()
		d := s.Domain("shop/eg")
		want := []plan.Guard{
			{Kind: plan.KindRateLimits, Name: "shop/eg", Revision: 12},
			{Kind: plan.KindRateLimits, Name: "shop/eg/10", Revision: 11},
			{Kind: plan.KindRateLimits, Name: "shop/eg/2", Revision: 10},
		}
		if d == nil || d.Name != "shop/eg" || d.Broken != "" || d.Version != 12 || !slices.Equal(d.Guards, want) {
			t.Fatalf("%v: got %+v", order, d)
		}
		for value, amount := range map[string]int64{"ba": 1, "ca": 2, "cb": 3, "d": -1} {
			if got := amountOf(s, "shop/eg", value); got != amount {
				t.Errorf("%v: k=%s is limited to %d, want %d", order, value, got, amount)
			}
		}
		for domain, amount := range map[string]int64{"shop": 9, "shop/eg-2": 8, "shop/eg/http": 7} {
			if got := amountOf(s, domain, "ca"); got != amount || len(s.Domain(domain).Guards) != 1 {
				t.Errorf("%s is limited to %d by %v, want %d", domain, got, s.Domain(domain).Guards, amount)
			}
		}
		if got := s.Names(plan.KindRateLimits); len(got) != 6 || got[0] != "shop" {
			t.Errorf("names %v", got)
		}
	}
}

func TestCatalog_P70_EditsAndDeletions(t *testing.T) {
	t.Parallel()
	c := plan.NewCatalog()
	if c.Snapshot().Domain("d") != nil {
		t.Fatal("a domain that nobody wrote")
	}
	c.Put(limitsDoc(t, "d", perDay("d", "a", 1, "")), 3)
	c.Put(limitsDoc(t, "d/b", perDay("d", "b", 2, "")), 4)
	before := c.Snapshot()
	c.Put(limitsDoc(t, "d/b", perDay("d", "b", 5, "")), 6)
	edited := c.Snapshot()
	c.Delete(plan.KindRateLimits, "d", 7)
	one := c.Snapshot()
	c.Delete(plan.KindRateLimits, "d/none", 7)
	c.Delete(plan.KindRateLimits, "d/b", 8)
	none := c.Snapshot()
	for _, tt := range []struct {
		s       *plan.Snapshot
		version int64
		a, b    int64
	}{{before, 4, 1, 2}, {edited, 6, 1, 5}, {one, 6, -1, 5}} {
		if d := tt.s.Domain("d"); d.Version != tt.version || amountOf(tt.s, "d", "a") != tt.a || amountOf(tt.s, "d", "b") != tt.b {
			t.Errorf("got version %d, %d and %d; want %+v", d.Version, amountOf(tt.s, "d", "a"), amountOf(tt.s, "d", "b"), tt)
		}
	}
	if none.Domain("d") != nil || len(none.Names(plan.KindRateLimits)) != 0 {
		t.Errorf("after all deletions there is %+v", none.Domain("d"))
	}
	if doc, revision := edited.Document(plan.KindRateLimits, "d/b"); revision != 6 || doc.Name != "d/b" {
		t.Errorf("document %v at %d", doc, revision)
	}
	if before.Domain("d").Guards[1].Revision != 4 {
		t.Error("a snapshot changed")
	}
	// An edit of another domain leaves this one as it is: what was made for it holds.
	c.Put(limitsDoc(t, "d", perDay("d", "a", 1, "")), 9)
	first := c.Snapshot().Domain("d")
	c.Put(limitsDoc(t, "e", perDay("e", "a", 1, "")), 10)
	if c.Snapshot().Domain("d") != first {
		t.Error("made again for an edit of another domain")
	}
}

// C004, C016: a document that was never valid is no reason to let through what the
// others limit, nor everything.
func TestCatalog_P21_C004_C016_WhatWasNeverValid(t *testing.T) {
	t.Parallel()
	const why = "rate limits d/b have never been valid: f:1:1: x"
	c := plan.NewCatalog()
	c.PutBroken(plan.KindRateLimits, "d/b", 5, why, nil)
	d := c.Snapshot().Domain("d")
	if d == nil || d.Broken != why || d.Table != nil || len(d.Guards) != 0 || d.App == nil {
		t.Fatalf("of a document that was never valid: %+v", d)
	}
	c.Put(limitsDoc(t, "d/a", perDay("d", "a", 1, "")), 6)
	if d := c.Snapshot().Domain("d"); d.Broken != "" || d.Version != 6 || amountOf(c.Snapshot(), "d", "a") != 1 || len(d.Guards) != 1 {
		t.Errorf("beside a valid one: %+v", d)
	}
	c.PutBroken(plan.KindRateLimits, "d/a", 7, "x", nil)
	if s := c.Snapshot(); amountOf(s, "d", "a") != 1 || s.Domain("d").Version != 6 {
		t.Errorf("a bad edit is in force: %+v", s.Domain("d"))
	}
	c.Put(limitsDoc(t, "d/b", perDay("d", "b", 2, "")), 8)
	if s := c.Snapshot(); amountOf(s, "d", "b") != 2 || s.Domain("d").Version != 8 {
		t.Errorf("mended: %+v", s.Domain("d"))
	}
	if s := c.Snapshot(); s.Domain("d/b") != nil {
		t.Errorf("what is of domain d still is of d/b: %+v", s.Domain("d/b"))
	}
	c.Delete(plan.KindRateLimits, "d/a", 9)
	c.PutBroken(plan.KindRateLimits, "e", 10, why, nil)
	c.Delete(plan.KindRateLimits, "e", 11)
	if s := c.Snapshot(); s.Domain("e") != nil || s.Domain("d").Version != 8 {
		t.Errorf("deleted while broken: %+v", s.Domain("e"))
	}
}

// P70: two documents that raced contradict each other; what either limits is
// limited, by the stricter of both.
func TestCatalog_P70_DocumentsThatRacedLiftNoLimit(t *testing.T) {
	t.Parallel()
	const (
		none      = "{key: k, value: a}"
		unlimited = "{key: k, value: a, rate_limit: {unlimited: true}}"
		quota     = "{key: k, value: a, quota_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}"
		shadow    = "{key: k, value: a, shadow_mode: true, rate_limit: {unit: day, requests_per_unit: 1}}"
		five      = "{key: k, value: a, rate_limit: {unit: day, requests_per_unit: 5}}"
		six       = "{key: k, value: a, rate_limit: {unit: day, requests_per_unit: 6}}"
		perHour   = "{key: k, value: a, rate_limit: {unit: hour, requests_per_unit: 5}}"
		perWeeks  = "{key: k, value: a, rate_limit: {unit: week, requests_per_unit: 60, unit_multiplier: 4}}"
		below     = "{key: k, value: a, descriptors: [{key: k, value: a, rate_limit: {unit: day, requests_per_unit: 5}}]}"
		below6    = "{key: k, value: a, rate_limit: {unit: day, requests_per_unit: 9}, descriptors: [{key: k, value: a, rate_limit: {unit: day, requests_per_unit: 6}}]}"
	)
	deep := []plan.DescriptorEntry{{Key: "k", Value: "a"}, {Key: "k", Value: "a"}}
	for _, tt := range []struct {
		a, b  string
		depth int
		want  int64
	}{
		{none, five, 1, 5},
		{quota, five, 1, 5},
		{quota, unlimited, 1, 1},
		{unlimited, five, 1, 5},
		{shadow, five, 1, 5},
		{five, six, 1, 5},
		{five, perHour, 1, 5},
		{five, perWeeks, 1, 60},
		{unlimited, shadow, 1, -1},
		{below, five, 1, 5},
		{below, five, 2, 5},
		{below, below6, 2, 5},
		{below, below6, 1, 9},
	} {
		for _, texts := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
			c := plan.NewCatalog()
			c.Put(limitsDoc(t, "d/a", "domain: d\ndescriptors: ["+texts[0]+"]"), 3)
			c.Put(limitsDoc(t, "d/b", "domain: d\ndescriptors: ["+texts[1]+"]"), 4)
			m, _ := c.Snapshot().Domain("d").Table.Match(deep[:tt.depth], nil)
			got := int64(-1)
			if m != nil && m.Limit != nil && !m.Rule.Shadow {
				got = m.Limit.Amount
			}
			if m == nil || tt.want >= 0 && got != tt.want {
				t.Errorf("%v: got %d, want %d", texts, got, tt.want)
			}
		}
	}
}

// An app may be bound to a domain that has documents: its tenants' descriptors run the
// app's decision, all others the domain's rules.
func TestCatalog_P70_AnAppOfTheSameDomain(t *testing.T) {
	t.Parallel()
	c := catalog(t, appText, freePlan)
	app, _ := c.Snapshot().Document(plan.KindApp, "api")
	doc := limitsDoc(t, app.App.Domain, perDay(app.App.Domain, "a", 1, ""))
	if app.App.Domain == "" {
		t.Fatal("the app has no domain")
	}
	c.Put(doc, 9)
	s := c.Snapshot()
	if problems := append(c.Check(doc), c.Check(app)...); len(problems) != 0 || s.AppByDomain(app.App.Domain) != app.App || s.Domain(app.App.Domain) == nil {
		t.Errorf("%s", lines(problems))
	}
	if problems := c.CheckDelete(plan.KindRateLimits, doc.Name); len(problems) != 0 {
		t.Errorf("may not be deleted: %s", lines(problems))
	}
}

func TestRateLimits_Same_ButNotIfAnythingDiffers(t *testing.T) {
	t.Parallel()
	const text = "domain: d\nmete: {time_zone: UTC}\ndescriptors:\n- {key: k, value: a}\n- key: k\n  value: b*\n  shadow_mode: false\n" +
		"  metadata: {x: 1}\n  rate_limit: {unit: day, requests_per_unit: 7, replaces: [{name: x}]}\n  descriptors: [{key: r, regex: x+}]\n"
	doc := limitsDoc(t, "d", text).RateLimits
	for _, tt := range []struct {
		old, new string
		same     bool
	}{
		{"domain: d\n", "# a comment\n\ndomain: \"d\"\n", true},
		{"unit: day", "unit: DAY", true},
		{"shadow_mode: false", "shadow_mode: no", true},
		{"per_unit: 7", "per_unit: 7, unit_multiplier: 1", true},
		{"{key: k, value: a}", "{value: a, key: k, descriptors: [], metadata: {}}", true},
		{"domain: d", "domain: d2", false},
		{"UTC", "Asia/Tokyo", false},
		{"mete: {time_zone: UTC}\n", "", false},
		{"value: a", "value: a2", false},
		{"key: k\n", "key: k2\n", false},
		{"x+", "x*", false},
		{"x+", "x+, when: \"true\"", false},
		{"mode: false", "mode: true", false},
		{"shadow_mode: false", "quota_mode: true", false},
		{"shadow_mode: false", "share_threshold: true", false},
		{"shadow_mode: false", "detailed_metric: true", false},
		{"shadow_mode: false", "value_to_metric: true", false},
		{"{x: 1}", "{x: 2}", false},
		{"{x: 1}", "{}", false},
		{"day", "week", false},
		{"per_unit: 7", "per_unit: 8", false},
		{"{name: x}", "{name: y}", false},
		{"unit: day, requests_per_unit: 7,", "unlimited: true,", false},
		{"per_unit: 7", "per_unit: 7, name: n", false},
		{"per_unit: 7", "per_unit: 7, unit_multiplier: 2", false},
		{"descriptors: [{key: r, regex: x+}]", "descriptors: []", false},
		{"- {key: k, value: a}\n", "", false},
	} {
		if !strings.Contains(text, tt.old) {
			t.Fatalf("%q is not there", tt.old)
		}
		docs, problems := plan.Decode("g", []byte(strings.Replace(text, tt.old, tt.new, 1)))
		if len(docs) != 1 {
			t.Fatal(lines(problems))
		}
		if got := docs[0].RateLimits.Same(doc); got != tt.same || doc.Same(docs[0].RateLimits) != tt.same {
			t.Errorf("%q for %q: the same is %v", tt.new, tt.old, got)
		}
	}
	// The other way is a deliberate order: patterns are tried in it.
	swapped := limitsDoc(t, "d", "domain: d\ndescriptors: [{key: k, value: a*}, {key: k, value: \"*a\"}]").RateLimits
	if swapped.Same(limitsDoc(t, "d", "domain: d\ndescriptors: [{key: k, value: \"*a\"}, {key: k, value: a*}]").RateLimits) {
		t.Error("another order of patterns is the same")
	}
	// A new field of a rule or a document has to be compared.
	if n, m := reflect.TypeFor[plan.DescriptorRule]().NumField(), reflect.TypeFor[plan.RateLimits]().NumField(); n != 17 || m != 8 {
		t.Errorf("%d and %d fields: let Same compare the new one", n, m)
	}
}
