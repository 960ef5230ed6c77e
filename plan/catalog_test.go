package plan_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/meteproject/mete/plan"
)

// Snapshots never change, whatever is put and deleted later.
func TestSnapshot_NeverChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	c := catalog(t, appText, freePlan)
	model := map[string]string{}
	type taken struct {
		s     *plan.Snapshot
		model map[string]string
	}
	var all []taken
	for i := range 3000 {
		name := fmt.Sprintf("org:%d", r.IntN(400))
		switch r.IntN(4) {
		case 0:
			c.Delete(plan.KindTenant, name, int64(i+10))
			delete(model, name)
		default:
			created := fmt.Sprint(i)
			c.Put(&plan.Document{Kind: plan.KindTenant, Name: name, Tenant: &plan.Tenant{Name: name, Created: created}}, int64(i+10))
			model[name] = created
		}
		if r.IntN(60) == 0 {
			m := map[string]string{}
			for k, v := range model {
				m[k] = v
			}
			all = append(all, taken{c.Snapshot(), m})
		}
	}
	for i, a := range all {
		for n := range 400 {
			name, got := fmt.Sprintf("org:%d", n), ""
			if tenant := a.s.Tenant(name); tenant != nil {
				got = tenant.Created
			}
			if got != a.model[name] {
				t.Fatalf("snapshot %d: %s was written at %q, want %q", i, name, got, a.model[name])
			}
		}
	}
}

// Readers of snapshots and the writer of the catalog do not meet (with -race).
func TestSnapshot_Concurrently(t *testing.T) {
	c := catalog(t, appText, freePlan)
	var wg sync.WaitGroup
	for i := range 50 {
		s := c.Snapshot()
		wg.Go(func() {
			for j := range 50 {
				s.Terms(t0, "api", fmt.Sprintf("org:%d", j))
				s.Route("api", "", "GET", "/x")
				s.AppByHost("api.example.com")
			}
		})
		for j := range 20 {
			name := fmt.Sprintf("org:%d", j)
			c.Put(&plan.Document{Kind: plan.KindTenant, Name: name, Tenant: &plan.Tenant{Name: name, Plan: "free"}}, int64(i*20+j+10))
		}
		docs, _ := plan.Decode("", []byte(appText+freePlan+doc("Routes", fmt.Sprint("r", i), "{app: api, rules: [{match: {path: /x}, weight: 3}]}")))
		for _, d := range docs {
			c.Put(d, int64(2000+i))
		}
		c.SetVoid("org:1", int64(i))
	}
	wg.Wait()
}

func TestSnapshot_Documents(t *testing.T) {
	hash := strings.Repeat("0a", 32)
	c := catalog(t, appText, freePlan, doc("Routes", "r", "{app: api, rules: []}"), doc("Tenant", "org:a", "{}"),
		doc("Credential", hash, `{tenant: "org:a", principal: ci, class: batch, prefix: bat_, expires: "2027-01-01T00:00:00Z"}`))
	s := c.Snapshot()
	for _, row := range []struct {
		kind     plan.Kind
		name     string
		revision int64
	}{
		{plan.KindApp, "api", 1},
		{plan.KindPlan, "free", 2},
		{plan.KindRoutes, "r", 3},
		{plan.KindTenant, "org:a", 4},
		{plan.KindCredential, hash, 5},
		{plan.KindCredential, strings.Repeat("0b", 32), 0},
		{plan.KindCredential, "x", 0},
		{plan.KindWebhook, "w", 0},
		{plan.KindPlan, "none", 0},
	} {
		d, revision := s.Document(row.kind, row.name)
		if revision != row.revision || (d != nil) != (revision > 0) || d != nil && d.Name != row.name {
			t.Errorf("%s %s: got %v at %d", row.kind, row.name, d, revision)
		}
		c.Delete(row.kind, row.name, 99)
		if d, _ := c.Snapshot().Document(row.kind, row.name); d != nil {
			t.Errorf("%s %s is there after its deletion", row.kind, row.name)
		}
	}
	var key plan.Hash
	for i := range key {
		key[i] = 10
	}
	if got := s.Credential(key); got == nil || got.Tenant != "org:a" || got.Prefix != "bat_" || got.Hash != key || got.Expires.Year() != 2027 {
		t.Errorf("got credential %+v", got)
	}
	if got := s.Names(plan.KindPlan); !slices.Equal(got, []string{"free"}) {
		t.Errorf("got plans %v", got)
	}
}

// Routes follow their app, whichever comes first, and move with their document.
func TestCatalog_RoutesAndApps(t *testing.T) {
	rules := func(app string, weight int) string {
		return doc("Routes", "r", fmt.Sprintf("{app: %s, rules: [{match: {path: /x}, weight: %d}]}", app, weight))
	}
	other := strings.NewReplacer("name: api", "name: other", "  envoy:", "  #").Replace(appText)
	c := catalog(t, rules("api", 5), appText, other)
	weight := func(app string) int64 { return c.Snapshot().Route(app, "", "GET", "/x").Weight }
	if weight("api") != 5 || weight("other") != 1 {
		t.Errorf("got %d, %d", weight("api"), weight("other"))
	}
	docs, _ := plan.Decode("", []byte(rules("other", 7)))
	c.Put(docs[0], 20)
	if weight("api") != 1 || weight("other") != 7 {
		t.Errorf("after the move: got %d, %d", weight("api"), weight("other"))
	}
	c.Delete(plan.KindRoutes, "r", 21)
	if weight("other") != 1 {
		t.Errorf("after the deletion: got %d", weight("other"))
	}
	c.Delete(plan.KindApp, "api", 22)
	if s := c.Snapshot(); s.App("api") != nil || s.AppByHost("api.example.com") != s.App("other") || s.AppByDomain("api") != nil {
		t.Error("the app is there after its deletion")
	}
}

// FuzzDecode: whatever is sent, Decode returns, and what it returns may be sent
// again.
func FuzzDecode(f *testing.F) {
	for _, glob := range []string{"standards", "bad", "golden", "descriptors"} {
		files, _ := filepath.Glob(filepath.Join("testdata", glob, "*.yaml"))
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(text)
		}
	}
	f.Add([]byte(`{"apiVersion":"mete/v1","kind":"Tenant","metadata":{"name":"org:a"},"spec":{}}`))
	schema := compiled(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		docs, problems := plan.Decode("f", text)
		for _, p := range problems {
			if p.Message == "" || strings.Contains(p.Message, "%!") {
				t.Errorf("a problem without sense: %q", p.String())
			}
		}
		if len(docs) == 0 && !plan.Refused(problems) {
			t.Error("no document and no problem")
		}
		for _, d := range docs {
			again, problems := plan.Decode("f", d.Text)
			if len(again) != 1 || plan.Refused(problems) || again[0].Kind != d.Kind || again[0].Name != d.Name {
				t.Errorf("%q decodes once: %s", d.Text, lines(problems))
			}
			if v, ok := plan.Plain(d.Text); !ok {
				t.Errorf("%q decodes and is not a value", d.Text)
			} else if err := schema.Validate(v); err != nil {
				t.Errorf("%q decodes and the schema refuses it: %v", d.Text, err)
			}
			c := plan.NewCatalog()
			c.Put(d, 1)
			c.Check(d)
			c.Snapshot().Terms(t0, "api", "org:acme")
			c.Snapshot().Route(d.Name, "", "GET", "/x")
		}
	})
}

// million is a catalog of a million tenants on a hundred plans.
var million = sync.OnceValue(func() *plan.Catalog {
	c := plan.NewCatalog()
	docs, _ := plan.Decode("", []byte(appText))
	c.Put(docs[0], 1)
	for i := range 100 {
		docs, _ := plan.Decode("", []byte(strings.Replace(freePlan, "free", fmt.Sprintf("p%d", i), 1)))
		c.Put(docs[0], 2)
	}
	for i := range 1_000_000 {
		name := fmt.Sprintf("org:%d", i)
		c.Put(&plan.Document{Kind: plan.KindTenant, Name: name, Tenant: &plan.Tenant{Name: name, Plan: fmt.Sprintf("p%d", i%100)}}, int64(i+3))
	}
	return c
})

// One edit and one snapshot, among a million tenants.
func BenchmarkSnapshotTenant(b *testing.B) {
	c := million()
	doc := &plan.Document{Kind: plan.KindTenant, Name: "org:77", Tenant: &plan.Tenant{Name: "org:77", Plan: "p7"}}
	runtime.GC() // of the million, which is not what is measured
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.Put(doc, int64(i+2_000_000))
		c.Snapshot()
	}
}

func BenchmarkTerms(b *testing.B) {
	s := million().Snapshot()
	names := make([]string, 1024)
	for i := range names {
		names[i] = fmt.Sprintf("org:%d", i*977)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if t := s.Terms(t0, "api", names[i%len(names)]); len(t.Nodes) != 1 {
			b.Fatal(t)
		}
	}
}

func BenchmarkRoute(b *testing.B) {
	var rules, hosted strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&rules, "{match: {methods: [GET], path: \"/v1/things%d/{id}/parts\"}, weight: 2}, ", i)
		fmt.Fprintf(&hosted, "{match: {hosts: [h%d.example.com, \"*.h%d.example.org\"], path: \"/v1/things%d/{id}/parts\"}, weight: 2}, ", i%100, i%100, i/100)
	}
	plain := catalog(b, appText, doc("Routes", "r", "{app: api, rules: ["+rules.String()+"]}")).Snapshot()
	byHost := catalog(b, appText, doc("Routes", "r", "{app: api, rules: ["+hosted.String()+"]}")).Snapshot()
	for _, row := range []struct {
		name, host, path string
		s                *plan.Snapshot
	}{
		{"normal", "api.example.com", "/v1/things700/42/parts?page=2", plain},
		{"escaped", "api.example.com", "/v1//things700/%34%32/./parts", plain},
		// A hundred rules have this path, each for hosts of its own; the last one matches.
		{"last-of-100-hosts", "a.H99.example.org:8443", "/v1/things7/42/parts?page=2", byHost},
	} {
		b.Run(row.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if row.s.Route("api", row.host, "GET", row.path).Weight != 2 {
					b.Fatal("not found")
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	text := []byte(goodPlan)
	b.ReportAllocs()
	for b.Loop() {
		plan.Decode("f", text)
	}
}
