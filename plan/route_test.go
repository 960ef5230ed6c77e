package plan_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

const appText = `apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: UTC
  envoy: {domain: api, hosts: [api.example.com, "*.api.example.com", "*.example.org"]}
  units: {tokens: {}}
  identity:
    tenant: [{api_key: authorization}]
    classes: [{name: batch, when: {credential_prefix: [bat_]}}, {name: people}]
`

// catalog puts the documents of texts, at revisions 1, 2, 3...
func catalog(tb testing.TB, texts ...string) *plan.Catalog {
	tb.Helper()
	c := plan.NewCatalog()
	revision := int64(0)
	for _, text := range texts {
		docs, problems := plan.Decode("test.yaml", []byte(text))
		if plan.Refused(problems) {
			tb.Fatal(lines(problems))
		}
		for _, doc := range docs {
			revision++
			c.Put(doc, revision)
		}
	}
	return c
}

// doc writes a document in one line.
func doc(kind, name, spec string) string {
	return fmt.Sprintf("---\napiVersion: mete/v1\nkind: %s\nmetadata: {name: %q}\nspec: %s\n", kind, name, spec)
}

// Case C025: no spelling of a path makes a request cheaper.
func TestRoute_C025_Spelling(t *testing.T) {
	s := catalog(t, appText, doc("Routes", "api", `{app: api, rules: [
		{name: cheap, match: {path: /v1/cheap}},
		{name: render, match: {path: /v1/render}, weight: 50},
		{name: dear, match: {path: /v1/dear}, weight: 900},
		{name: free, match: {path: /free}, meter: false, check: false, reason: always free}]}`)).Snapshot()
	for path, want := range map[string]int64{
		"/v1/render":           50,
		"/v1/render?x=1":       50,
		"/v1//render":          50,
		"/v1/./render":         50,
		"/v1/x/../render":      50,
		"/v1/%72ender":         50,
		"/v1/%2e/render":       50,
		"/v1/%2E%2e/v1/render": 50,
		"//v1/render":          50,
		"/../v1/render":        50,
		"/v1/render?a=/../b":   50,

		"/v1/render/":    1,
		"/V1/render":     1,
		"/v1/render;a=b": 1,
		"/v1/render%3Fx": 1,
		"/v1%2Frender":   1,
		"/v1/render/.":   1,
		"/":              1,
		"*":              1,

		"":                900,
		"v1/render":       900,
		"/v1/render%":     900,
		"/v1/render%zz":   900,
		"/v1/render%7":    900,
		"/v1/render#x":    900,
		`/v1\render`:      900,
		"/v1/ren der":     900,
		"/v1/render\x00":  900,
		"/v1/\trender":    900,
		"http://h/v1/x":   900,
		"?x":              900,
		"/v1/\x7f/render": 900,
	} {
		if got := s.Route("api", "POST", path); got.Weight != want {
			t.Errorf("%q weighs %d by rule %q, want %d", path, got.Weight, got.Name, want)
		}
	}
	if s.Route("other", "GET", "/") != nil {
		t.Error("a rule for an app that does not exist")
	}
}

func TestNormalize(t *testing.T) {
	for path, want := range map[string]string{
		"/":              "/",
		"/a/b":           "/a/b",
		"/a/b/":          "/a/b/",
		"/a//b//":        "/a/b/",
		"/.":             "/",
		"/..":            "/",
		"/a/..":          "/",
		"/a/b/..":        "/a/",
		"/a/./b/.":       "/a/b/",
		"/a//../b":       "/a/b", // the empty segment is one until slashes are merged
		"/a/.../b":       "/a/.../b",
		"/.well-known/x": "/.well-known/x",
		"/%7Ejoe":        "/~joe",
		"/%41%2d%5F":     "/A-_",
		"/a%2fb":         "/a%2Fb",
		"/a%c3%a9":       "/a%C3%A9",
		"/a\u00e9":       "/a%C3%A9",
		"/%252e":         "/%252e",
	} {
		if got, ok := plan.Normalize(path); !ok || got != want {
			t.Errorf("%q becomes %q, want %q", path, got, want)
		}
	}
}

// Normalising twice changes nothing, and no dot or empty segments are left.
func FuzzNormalize(f *testing.F) {
	f.Add("/a/./b/../%2e%2e//c?d")
	f.Fuzz(func(t *testing.T, path string) {
		once, ok := plan.Normalize(path)
		if !ok {
			return
		}
		if twice, ok := plan.Normalize(once); !ok || twice != once {
			t.Errorf("%q becomes %q becomes %q", path, once, twice)
		}
		segments := strings.Split(once, "/")
		for _, s := range segments[1 : len(segments)-1] {
			if s == "" || s == "." || s == ".." {
				t.Errorf("%q becomes %q", path, once)
			}
		}
	})
}

func TestRoute_Matching(t *testing.T) {
	s := catalog(t, appText, doc("Routes", "api", `{app: api, rules: [
		{name: get, match: {methods: [GET], path: /things}},
		{name: one, match: {path: "/things/{id}"}},
		{name: parts, match: {path: "/things/{id}/parts/{part}"}},
		{name: special, match: {path: /things/special}},
		{name: under, match: {path_prefix: /docs}},
		{name: inside, match: {path_prefix: /ai/}},
		{name: call, match: {grpc_method: a.b.C/D}},
		{name: delete, match: {methods: [DELETE, PURGE]}}]}`)).Snapshot()
	for request, want := range map[string]string{
		"GET /things":             "get",
		"POST /things":            "",
		"HEAD /things":            "",
		"POST /things/7":          "one",
		"GET /things/special":     "one", // the first that matches, not the best
		"GET /things/":            "",
		"GET /things/7/":          "",
		"GET /things/7/parts/x":   "parts",
		"GET /things/7/parts/x/y": "",
		"GET /docs":               "under",
		"GET /docs/":              "under",
		"GET /docs/a/b":           "under",
		"GET /docs2":              "",
		"GET /ai":                 "",
		"GET /ai/":                "inside",
		"GET /ai/x":               "inside",
		"POST /a.b.C/D":           "call",
		"POST /a.b.C/E":           "",
		"PURGE /anything":         "delete",
		"DELETE /things/7":        "one",
		"DELETE *":                "delete",
		"delete /x":               "",
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := s.Route("api", method, path).Name; got != want {
			t.Errorf("%s: rule %q, want %q", request, got, want)
		}
	}
	if r := s.RouteByName("api", "one"); r == nil || r.Path != "/things/{id}" || s.RouteByName("api", "none") != nil {
		t.Errorf("by name: got %v", r)
	}
}

// matches is the plain way to tell whether a rule matches.
func matches(r *plan.Rule, method, path string) bool {
	if len(r.Methods) > 0 && !slices.Contains(r.Methods, method) {
		return false
	}
	got := strings.Split(path, "/")
	switch {
	case r.GRPCMethod != "":
		return path == "/"+r.GRPCMethod
	case r.Path != "":
		want := strings.Split(r.Path, "/")
		return slices.EqualFunc(want, got, func(w, g string) bool { return w == g || w != "" && w[0] == '{' && g != "" })
	case r.PathPrefix != "":
		return path == r.PathPrefix || strings.HasPrefix(path, strings.TrimSuffix(r.PathPrefix, "/")+"/")
	}
	return true
}

// coverage fails if a rule matches a request and one that covers it does not.
func coverage(t *testing.T, rules []plan.Rule, method, path string) {
	t.Helper()
	for i := range rules {
		for j := range rules {
			a, b := &rules[i], &rules[j]
			if plan.Covers(a, b) && matches(b, method, path) && !matches(a, method, path) {
				t.Fatalf("%+v does not cover %+v: %s %s", a, b, method, path)
			}
		}
	}
}

// The tree finds what going through the rules one by one finds, and a rule that
// covers another leaves it nothing.
func TestRoute_AgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	path := func(patterns bool) string {
		var b strings.Builder
		for range 1 + r.IntN(4) {
			segments := []string{"a", "b", "c"}
			if patterns {
				segments = append(segments, "{x}", "{y}")
			}
			b.WriteString("/" + segments[r.IntN(len(segments))])
		}
		if r.IntN(4) == 0 {
			b.WriteString("/")
		}
		return b.String()
	}
	for range 100 {
		rs := &plan.Routes{Name: "r", App: "api"}
		for i := range 1 + r.IntN(12) {
			rule := plan.Rule{Name: fmt.Sprint("r", i), Weight: 1, Meter: true, Check: true}
			if r.IntN(3) == 0 {
				rule.Methods = []string{"GET", "PUT"}[r.IntN(2):]
			}
			switch r.IntN(8) {
			case 0:
				rule.GRPCMethod = path(false)[1:]
			case 1, 2:
				rule.PathPrefix = path(false)
			case 3:
				if rule.Methods == nil {
					rule.Path = "/"
				}
			default:
				rule.Path = path(true)
			}
			rs.Rules = append(rs.Rules, rule)
		}
		c := catalog(t, appText)
		c.Put(&plan.Document{Kind: plan.KindRoutes, Name: "r", Routes: rs}, 9)
		s := c.Snapshot()
		for range 80 {
			method, p := []string{"GET", "PUT", "POST"}[r.IntN(3)], path(false)
			coverage(t, rs.Rules, method, p)
			want := ""
			for i := range rs.Rules {
				if matches(&rs.Rules[i], method, p) {
					want = rs.Rules[i].Name
					break
				}
			}
			if got := s.Route("api", method, p).Name; got != want {
				t.Fatalf("%s %s: rule %q, want %q of %+v", method, p, got, want, rs.Rules)
			}
		}
	}
}

func TestRoute_AllocatesNothing(t *testing.T) {
	s := catalog(t, appText, doc("Routes", "api", `{app: api, rules: [{match: {path: "/things/{id}/parts"}, weight: 2}]}`)).Snapshot()
	allocs := testing.AllocsPerRun(100, func() {
		if s.Route("api", "GET", "/things/7/parts?page=2").Weight != 2 || s.AppByHost("x.y.example.org:443") == nil {
			t.Fatal("not found")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestSnapshot_Hosts(t *testing.T) {
	s := catalog(t, appText, strings.ReplaceAll(strings.Replace(appText, "name: api", "name: deep", 1),
		`{domain: api, hosts: [api.example.com, "*.api.example.com", "*.example.org"]}`, `{domain: deep, hosts: ["*.deep.example.org"]}`)).Snapshot()
	for host, want := range map[string]string{
		"api.example.com":      "api",
		"API.Example.COM":      "api",
		"api.example.com:8443": "api",
		"api.example.com.":     "api",
		"x.api.example.com":    "api",
		"example.org":          "",
		"a.example.org":        "api",
		"deep.example.org":     "api",
		"a.deep.example.org":   "deep",
		"a.b.deep.example.org": "deep",
		"example.com":          "",
		"":                     "",
		"[::1]:80":             "",
		"com":                  "",
	} {
		got := ""
		if app := s.AppByHost(host); app != nil {
			got = app.Name
		}
		if got != want {
			t.Errorf("%q belongs to app %q, want %q", host, got, want)
		}
	}
	if s.AppByDomain("deep") != s.App("deep") || s.AppByDomain("x") != nil || s.AppByDomain("") != nil {
		t.Error("domains")
	}
}
