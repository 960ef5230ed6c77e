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

		// What servers read in different ways counts as the dearer (C164).
		"/v1/render/":    50,
		"/V1/render":     50,
		"/v1/render;a=b": 50,
		"/v1%2Frender":   50,
		"/v1/render/.":   50,
		"/v1/render%3Fx": 50,
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
		if got := s.Route("api", "", "POST", path); got.Weight != want {
			t.Errorf("%q weighs %d by rule %q, want %d", path, got.Weight, got.Name, want)
		}
	}
	if s.Route("other", "", "GET", "/") != nil {
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
		if got := s.Route("api", "", method, path).Name; got != want {
			t.Errorf("%s: rule %q, want %q", request, got, want)
		}
	}
	if r := s.RouteByName("api", "one"); r == nil || r.Path != "/things/{id}" || s.RouteByName("api", "none") != nil {
		t.Errorf("by name: got %v", r)
	}
}

// matches is the plain way to tell whether a rule matches.
func matches(r *plan.Rule, host, method, path string) bool {
	if len(r.Hosts) > 0 && !slices.ContainsFunc(r.Hosts, func(h string) bool {
		return h == host || h[0] == '*' && strings.HasSuffix(host, h[1:])
	}) {
		return false
	}
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
func coverage(t *testing.T, rules []plan.Rule, host, method, path string) {
	t.Helper()
	for i := range rules {
		for j := range rules {
			a, b := &rules[i], &rules[j]
			if plan.Covers(a, b) && matches(b, host, method, path) && !matches(a, host, method, path) {
				t.Fatalf("%+v does not cover %+v: %s %s%s", a, b, method, host, path)
			}
		}
	}
}

// randomPath returns a path of a few segments, some of them patterns if it is a rule's.
func randomPath(r *rand.Rand, patterns bool) string {
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

// randomRule returns a rule of any kind.
func randomRule(r *rand.Rand, name string) plan.Rule {
	rule := plan.Rule{Name: name, Weight: 1, Meter: true, Check: true}
	if r.IntN(3) == 0 {
		rule.Methods = []string{"GET", "PUT"}[r.IntN(2):]
	}
	if r.IntN(2) == 0 {
		patterns := []string{"*.a.org", "*.x.a.org", "*.org", "a.org", "x.a.org", "b.org"}
		r.Shuffle(len(patterns), func(i, j int) { patterns[i], patterns[j] = patterns[j], patterns[i] })
		rule.Hosts = patterns[:1+r.IntN(2)]
	}
	switch r.IntN(8) {
	case 0:
		rule.GRPCMethod = randomPath(r, false)[1:]
	case 1, 2:
		rule.PathPrefix = randomPath(r, false)
	case 3:
		if rule.Methods == nil {
			rule.Path = "/"
		}
	default:
		rule.Path = randomPath(r, true)
	}
	return rule
}

// The tree finds what going through the rules one by one finds, and a rule that
// covers another leaves it nothing.
func TestRoute_AgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	hosts := []string{"a.org", "x.a.org", "y.x.a.org", "b.org"}
	for range 200 {
		rs := &plan.Routes{Name: "r", App: "api"}
		for i := range 1 + r.IntN(12) {
			rs.Rules = append(rs.Rules, randomRule(r, fmt.Sprint("r", i)))
		}
		c := catalog(t, appText)
		c.Put(&plan.Document{Kind: plan.KindRoutes, Name: "r", Routes: rs}, 9)
		s := c.Snapshot()
		for range 80 {
			method, host, p := []string{"GET", "PUT", "POST"}[r.IntN(3)], hosts[r.IntN(len(hosts))], randomPath(r, false)
			coverage(t, rs.Rules, host, method, p)
			want := ""
			if i := slices.IndexFunc(rs.Rules, func(rule plan.Rule) bool { return matches(&rule, host, method, p) }); i >= 0 {
				want = rs.Rules[i].Name
			}
			if got := s.Route("api", host, method, p).Name; got != want {
				t.Fatalf("%s %s%s: rule %q, want %q of %+v", method, host, p, got, want, rs.Rules)
			}
		}
	}
}

func TestRoute_AllocatesNothing(t *testing.T) {
	s := catalog(t, appText, doc("Routes", "api", `{app: api, rules: [
		{match: {path: "/things/{id}/parts"}, weight: 2}, {match: {hosts: ["*.example.org"], path: "/parts/{id}"}, weight: 3}]}`)).Snapshot()
	long := strings.Repeat("x.", 5000) + "example.org."
	allocs := testing.AllocsPerRun(100, func() {
		if s.Route("api", "api.example.com", "GET", "/things/7/parts?page=2").Weight != 2 || s.AppByHost("x.y.example.org:443") == nil {
			t.Fatal("not found")
		}
		if s.Route("api", "A.Example.ORG:8443", "GET", "/parts/7").Weight != 3 || s.Route("api", long, "GET", "/parts/7").Weight != 3 {
			t.Fatal("not found by host")
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// Rules may be for certain hosts, which are compared as those of apps are (C37, C39):
// port, capitals and a final dot do not count. The first that matches wins, as always.
func TestRoute_C37_C39_Hosts(t *testing.T) {
	t.Parallel()
	s := catalog(t, appText, doc("Routes", "api", `{app: api, rules: [
		{name: admin, match: {hosts: [Admin.Example.com, "*.admin.example.com"]}, weight: 7},
		{name: eu, match: {hosts: ["*.eu.example.com"], methods: [GET], path_prefix: /v1}, weight: 3},
		{name: any, match: {path: /v1/things}},
		{name: deep, match: {hosts: ["*.x.eu.example.com"]}},
		{name: wide, match: {hosts: ["*.eu.example.com"]}, weight: 5},
		{name: free, match: {hosts: [admin.example.com]}, weight: 9, check: false, reason: never refused}]}`)).Snapshot()
	for request, want := range map[string]string{
		"GET admin.example.com /":                                "admin",
		"GET admin.example.com /v1/things":                       "admin",
		"GET ADMIN.example.COM:8443 /":                           "admin",
		"GET admin.example.com. /":                               "admin",
		"GET a.b.admin.example.com /":                            "admin",
		"GET notadmin.example.com /":                             "",
		"GET admin.example.com.evil.org /":                       "",
		"GET eu.example.com /v1":                                 "",
		"GET a.eu.example.com /v1":                               "eu",
		"GET a.EU.example.com:1 /v1/things":                      "eu",
		"POST a.eu.example.com /v1/things":                       "any",
		"POST a.eu.example.com /v1":                              "wide",
		"POST a.x.eu.example.com /v1":                            "deep",
		"GET  /v1/things":                                        "any",
		"GET  /":                                                 "",
		"GET [::1]:80 /v1/things":                                "any",
		"GET . /":                                                "",
		"OPTIONS admin.example.com *":                            "admin",
		"POST " + strings.Repeat("a", 400) + ".eu.example.com /": "wide",
		"POST " + strings.Repeat("admin.example.com.", 20) + "example.org /": "",
		"GET " + strings.Repeat("a", 300) + "admin.example.com /":            "",

		// What has no one meaning costs what the dearest rule of its host does, and is checked.
		"GET admin.example.com /%": "free",
		"GET a.eu.example.com /%":  "wide",
		"GET other.example.com /%": "",
	} {
		parts := strings.SplitN(request, " ", 3)
		if got := s.Route("api", parts[1], parts[0], parts[2]).Name; got != want {
			t.Errorf("%s: rule %q, want %q", request, got, want)
		}
	}
}

// The weight is not all that makes a rule dear: requests may be reserved beside it.
func TestRoute_A37_C025_RequestsMakeARuleDear(t *testing.T) {
	t.Parallel()
	s := catalog(t, appText, doc("Routes", "api", `{app: api, rules: [
		{name: heavy, match: {path: /a}, weight: 5}, {name: late, match: {path: /b}, units: {requests: {reserve: 6, use: [{report: true}]}}}]}`)).Snapshot()
	if got := s.Route("api", "", "GET", "/%").Name; got != "late" {
		t.Errorf("got %q", got)
	}
}

// A rule is hidden by one before it only if that is for all of its hosts.
func TestCheck_C39_RulesHiddenByHosts(t *testing.T) {
	t.Parallel()
	for hosts, hidden := range map[string]bool{
		"; ":                              true,
		"; a.org":                         true,
		"a.org; ":                         false,
		"a.org; a.org":                    true,
		"a.org; b.org":                    false,
		"a.org; a.org, b.org":             false,
		"a.org, b.org; b.org":             true,
		"'*.a.org'; x.a.org, 'y.x.a.org'": true,
		"'*.a.org'; a.org":                false,
		"'*.a.org'; '*.a.org'":            true,
		"'*.a.org'; '*.x.a.org'":          true,
		"'*.x.a.org'; '*.a.org'":          false,
		"x.a.org; '*.a.org'":              false,
	} {
		first, second, _ := strings.Cut(hosts, "; ")
		match := func(hosts string) string {
			if hosts == "" {
				return "{path_prefix: /v1}"
			}
			return "{path_prefix: /v1, hosts: [" + hosts + "]}"
		}
		got := checked(t, appText, doc("Routes", "r", "{app: api, rules: [{name: a, match: "+match(first)+"}, {name: b, match: "+match(second)+"}]}"))
		if strings.Contains(got, "can never match, since rule a") != hidden {
			t.Errorf("%q: got %q", hosts, got)
		}
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
