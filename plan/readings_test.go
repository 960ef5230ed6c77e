package plan_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
)

// readingApp is an app whose servers read paths as paths says, "" for nothing, and which
// has a rule of every kind that a spelling could lead to or from.
func readingApp(tb testing.TB, paths string) *plan.Snapshot {
	tb.Helper()
	app := strings.Replace(appText, "  identity:", "  paths: {"+paths+"}\n  identity:", 1)
	return catalog(tb, app, doc("Routes", "api", `{app: api, rules: [
		{name: public, match: {path_prefix: /public/}, meter: false, check: false, reason: anybody may},
		{name: health, match: {path: /health}, meter: false, check: false, reason: polled by monitors},
		{name: render, match: {path: /v1/render}, weight: 50},
		{name: chat, match: {methods: [POST], path: /v1/chat}, units: {tokens: {reserve: 400, use: [{report: true}]}}},
		{name: events, match: {path_prefix: /events}, check: false, reason: can not be sent again},
		{name: export, match: {path: "/exports/{id}"}, weight: 5},
		{name: batch, match: {path: "/v1/models:batch"}, weight: 7},
		{name: shown, match: {path: /V1/Shown}, weight: 8},
		{name: tree, match: {path_prefix: /tree/}, weight: 9}]}`)).Snapshot()
}

// taken shows what a rule takes.
func taken(r *plan.Rule) string {
	if !r.Meter && !r.Check {
		return "free"
	}
	s := fmt.Sprint(r.Weight)
	for _, u := range r.Units {
		s += fmt.Sprintf("+%d %s", u.Amount, u.Unit)
	}
	if !r.Check {
		s += " unchecked"
	}
	return s
}

// Case C164: a path that servers read in different ways is never exempt, and costs what
// the dearest of its readings does.
func TestRoute_C164_Readings(t *testing.T) {
	t.Parallel()
	s := readingApp(t, "")
	for path, want := range readingsOfPaths {
		if got := taken(s.Route("api", "", "POST", path)); got != want {
			t.Errorf("%q takes %s, want %s", path, got, want)
		}
	}
}

// readingsOfPaths are what paths take of readingApp.
var readingsOfPaths = map[string]string{
	// The reproductions: nginx serves each of them as /v1/render.
	"/public//../v1/render":         "50",
	"/public/..%2fv1/render":        "50",
	"/public/x/..%2f..%2fv1/render": "50",
	"/v1/x//../render":              "50",
	"/v1%2frender":                  "50",
	"/v1/x%2f../render":             "50",

	// Parameters, C164.
	"/exports/9;v=1": "5",
	"/exports;x/9":   "5",
	"/exports;/9":    "5",
	"/exports/;9":    "5",
	"/v1/render;a=b": "50",
	"/v1/render%3ba": "50",
	"/health;x":      "1",
	"/public/a;b":    "1",

	// Each step before and after each other one.
	"/public/..;/v1/render":                "50",
	"/public/..;x/v1/render":               "50",
	"/public/%2e%2e/v1/render":             "50",
	"/public/%2e%2e;/v1/render":            "50",
	"/public/..%5cv1/render":               "50",
	"/public/.%2e%2fv1%2frender":           "50",
	"/public/%252e%252e/v1/render":         "50",
	"/public/..%252fv1/render":             "50",
	"/x/../public/../%76%31/%2e%2e/render": "1",
	"/public/../v1/render":                 "50",
	"/public/../v1/../public/x":            "1",
	"/v1/../health":                        "1",
	"/health/":                             "1",
	"/HEALTH":                              "1",
	"/V1/RENDER/":                          "50",
	"/v1/render//":                         "50",
	"/v1/chat;x":                           "1+400 tokens",
	"/v1/./chat":                           "1+400 tokens",
	"/v1/models%3abatch":                   "7",
	"/v1/shown":                            "8",
	"/v1/SHOWN/":                           "8",
	"/tree":                                "9",
	"/v1/render%2f..%2fchat":               "1+400 tokens",

	// Read again by who gets it from a proxy that resolves escapes.
	"/v1/render%3f":        "50",
	"/v1/render%253Fx":     "50",
	"/v1/render%23/../x":   "50",
	"/public/../v1/chat%3": "50+400 tokens",
	"/health%3f":           "1",
	"/public/who%3f":       "free",

	// Bytes that are blanks for servers which read Latin 1.
	"/v1/render\xa0":         "50",
	"/v1/render\x85\xa0":     "50",
	"/v1/chat%A0":            "1",
	"/health\xa0":            "1",
	"/public/caf\xc3\xa9":    "free",
	"/public/voil\xc3\xa0":   "free",
	"/v1/render\xa0?x":       "50",
	"/v1/re\xa0nder":         "1",
	"/v1/render\xe2\x80\xa8": "1",

	// What no server reads.
	"/public/%00":      "50+400 tokens",
	"/public/%0a":      "50+400 tokens",
	"/public/%c0%ae":   "50+400 tokens",
	"/public/a\\b":     "50+400 tokens",
	"/public/%zz":      "50+400 tokens",
	"/public/\x01":     "50+400 tokens",
	"/public/%7f/a//b": "50+400 tokens",
	"/public/" + strings.Repeat("/..;%2f%41//%252e", 20): "50+400 tokens",

	// Several rules at once: of each unit the dearest.
	"/v1/chat/..%2frender": "50",
	"/events/a;b":          "1 unchecked",
	"/events;b":            "1",
	"/events/../events":    "1 unchecked",

	// What has one meaning is what it was.
	"/public/a":              "free",
	"/public/a//b":           "free",
	"/public/a%20b":          "free",
	"/public/a%C3%A9.PNG":    "free",
	"/public/Logo.png":       "free",
	"/public/.well-known/x":  "free",
	"/public/...":            "free",
	"/public/a?b=/../;%2f%x": "free",
	"/public/%7Ba%7D/{b}":    "free",
	"/health":                "free",
	"/exports/AbC":           "5",
	"/events/1":              "1 unchecked",
	"/public/%2541":          "free",
}

// C168: a rule for all paths of a method is the one for whatever is a path, so that a browser
// may ask about every one of them; not where another rule for the method comes first.
func TestRoute_C168_ARuleForAllPaths(t *testing.T) {
	t.Parallel()
	const all = "{name: preflight, match: {methods: [OPTIONS], path_prefix: /}, meter: false, check: false, reason: browsers ask}"
	const dear = "{name: render, match: {path: /v1/render}, weight: 50}"
	for _, tt := range []struct {
		rules, method string
		want          string // of /x;y/..%2f../v1/render, and of /a%2fb
	}{
		{all + ", " + dear, "OPTIONS", "free free"},
		{all + ", " + dear, "GET", "50 1"},
		{"{match: {methods: [GET], path: /x}, weight: 9}, " + all + ", " + dear, "OPTIONS", "free free"},
		{dear + ", " + all, "OPTIONS", "50 1"},
		{"{match: {methods: [OPTIONS], path: /y}, weight: 9}, " + all, "OPTIONS", "1 1"},
		{strings.Replace(all, "path_prefix: /", "path_prefix: /, hosts: [api.example.com]", 1), "OPTIONS", "1 1"},
		{strings.Replace(all, "path_prefix: /", "path_prefix: /a", 1), "OPTIONS", "1 1"},
		{strings.Replace(all, ", path_prefix: /", "", 1), "OPTIONS", "free free"},
	} {
		s := catalog(t, appText, doc("Routes", "api", "{app: api, rules: ["+tt.rules+"]}")).Snapshot()
		got := taken(s.Route("api", "api.example.com", tt.method, "/x;y/..%2f../v1/render")) + " " + taken(s.Route("api", "api.example.com", tt.method, "/a%2fb"))
		if got != tt.want {
			t.Errorf("%s %s takes %s, want %s", tt.rules, tt.method, got, tt.want)
		}
	}
	s := catalog(t, appText, doc("Routes", "api", "{app: api, rules: ["+all+", "+dear+"]}")).Snapshot()
	if got := taken(s.Route("api", "", "OPTIONS", "/%00")); got != "50" {
		t.Errorf("what is not a path takes %s", got)
	}
}

// An app that says how its servers read a path has that reading alone.
func TestRoute_C164_AppsThatSayHowTheyRead(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ paths, path, want string }{
		{"escaped_slash: letter", "/public/a%2fb", "free"},
		{"escaped_slash: letter", "/public/..%2fv1%2Frender", "free"},
		{"escaped_slash: letter", "/v1%2frender", "1"},
		{"escaped_slash: letter", "/public/../v1%5crender", "1"},
		{"escaped_slash: letter", "/exports/a%2Fb", "5"},
		{"escaped_slash: separator", "/v1%2frender", "50"},
		{"escaped_slash: separator", "/public/a%5Cb", "free"},
		{"escaped_slash: separator", "/exports/a%2Fb", "1"},
		{"escaped_slash: separator", "/public/..%2fv1/render", "50"},
		{"parameters: keep", "/public/a;b", "free"},
		{"parameters: keep", "/exports;x/9", "1"},
		{"parameters: keep", "/v1/render;x", "1"},
		{"parameters: cut", "/public/a;b", "free"},
		{"parameters: cut", "/health;jsessionid=7", "free"},
		{"parameters: cut", "/exports/;9", "1"},
		{"parameters: cut", "/public/..;x/v1/render", "50"},
		{"ignore_case: true", "/V1/Render", "50"},
		{"ignore_case: true", "/HEALTH", "free"},
		{"ignore_case: true", "/Public/x", "free"},
		{"ignore_case: true", "/v1/sHown", "8"},
		{"ignore_case: false", "/V1/Render", "1"},
		{"ignore_case: false", "/v1/shown", "1"},
		{"trailing_slash: cut", "/health/", "free"},
		{"trailing_slash: cut", "/v1/render/", "50"},
		{"trailing_slash: cut", "/public", "free"},
		{"trailing_slash: keep", "/v1/render/", "1"},
		{"trailing_slash: keep", "/tree", "1"},
		{"trailing_slash: cut, ignore_case: true", "/HEALTH/", "free"},
		{"trailing_slash: cut, ignore_case: true", "/TREE/", "9"},
		{"trailing_slash: keep, ignore_case: false, parameters: keep, escaped_slash: letter", "/public//../v1/render", "50"},
		{"trailing_slash: keep, ignore_case: false, parameters: keep, escaped_slash: letter", "/public/%2e%2e/x", "1"},
	} {
		if got := taken(readingApp(t, tt.paths).Route("api", "", "POST", tt.path)); got != tt.want {
			t.Errorf("{%s} %q takes %s, want %s", tt.paths, tt.path, got, tt.want)
		}
	}
}

// A request that counts by a rule made of several is settled, of each unit, as the rule
// says that was the dearest.
func TestRoute_C164_SettledByTheDearest(t *testing.T) {
	t.Parallel()
	s := catalog(t, strings.Replace(appText, "tokens: {}", "tokens: {}, bytes: {}, pages: {}", 1), doc("Routes", "api", `{app: api, rules: [
		{name: a, match: {path: /a}, weight: 3, units: {tokens: {reserve: 5, use: [{report: true}]}, bytes: {reserve: 9, use: [{response_header: x-a}], unreported: weight}}},
		{name: b, match: {path: /b}, units: {tokens: {reserve: 6, use: [{response_header: x-b}], unreported: zero}, bytes: {reserve: 9}}},
		{match: {path: /c}, units: {pages: {reserve: 7}}}]}`)).Snapshot()
	r := s.Route("api", "", "GET", "/b/..%2fa/../c") // as /b/..%2fa/../c, /b/c, /c
	if got := taken(r); got != "1+7 pages" {
		t.Errorf("b, c: %s", got)
	}
	r = s.Route("api", "", "GET", "/%00")
	if got := taken(r); got != "3+9 bytes+7 pages+6 tokens" || plan.RouteName(s.Settlement(r)) != "a" {
		t.Fatalf("all: %s, %q", got, s.Settlement(r))
	}
	tariff, known := s.Tariff("api", s.Settlement(r))
	if !known || len(tariff.Units) != 1 || tariff.Unit("bytes") != nil || tariff.Count != s.App("api").Count {
		t.Fatalf("%+v, %t", tariff, known)
	}
	if tokens := tariff.Unit("tokens"); tokens.Use[0].Name != "x-b" || tokens.Unreported != plan.UnreportedZero {
		t.Errorf("tokens are settled by %+v", tokens)
	}
}

// A route that Envoy names is the one, unless the path leads elsewhere too.
func TestRouteNamed_C37_C164_NoWayAround(t *testing.T) {
	t.Parallel()
	s := readingApp(t, "")
	for _, tt := range []struct{ name, path, want string }{
		{"public", "/anything", "free"},
		{"public", "", "free"},
		{"public", "*", "free"},
		{"public", "/v1//render/", "free"},
		{"public", "/v1/REnder", "free"},
		{"public", "/public//../v1/render", "50"},
		{"public", "/public/a%2fb", "1"},
		{"public", "/public/%0a", "50+400 tokens"},
		{"render", "/a", "50"},
		{"render", "/exports/../a", "50"},
		{"export", "/x;/../v1/render", "50"},
		{"export", "no path", "50+400 tokens"},
	} {
		if got := taken(s.RouteNamed("api", tt.name, "", "GET", tt.path)); got != tt.want && tt.want != "50+400 tokens" || got == "free" && tt.want != "free" {
			t.Errorf("%s at %q takes %s, want %s", tt.name, tt.path, got, tt.want)
		}
	}
	if s.RouteNamed("api", "none", "", "GET", "/") != nil || s.RouteNamed("none", "public", "", "GET", "/") != nil {
		t.Error("a rule of a name that is not there")
	}
}

// servers are ways to read a path that servers of our callers have: each returns the path
// that it finds a handler by.
func servers() map[string]func(string) string {
	in := func(steps ...func(string) string) func(string) string {
		return func(s string) string {
			for _, step := range steps {
				s = step(s)
			}
			return s
		}
	}
	return map[string]func(string) string{
		"merges first":                  in(readMerged, readDots, readDecoded),
		"merges, decodes, merges":       in(readMerged, readDecoded, readMerged, readDots),
		"nginx":                         in(readDecoded, readMerged, readDots),
		"decodes %2f first":             in(readSlashes, readDots, readDecoded),
		"decodes %2f late":              in(readDots, readSlashes, readDecoded),
		"decodes %2f alone":             in(readSlashes, readMerged),
		"decodes, resolves nothing":     in(readDecoded),
		"cuts ; first":                  in(readWithoutParameters, readDecoded, readMerged, readDots),
		"cuts ; last":                   in(readDecoded, readDots, readWithoutParameters, readMerged),
		"cuts ; between":                in(readDecoded, readWithoutParameters, readDots),
		"resolves dots alone":           in(readDots),
		"resolves, then cuts ;":         in(readDots, readWithoutParameters),
		"decodes, is read again":        in(readDecoded, readToEnd, readDecoded, readDots),
		"nothing":                       in(),
		"decodes twice":                 in(readDecoded, readDots, readDecoded, readDots),
		"ignores case and a last slash": in(strings.ToLower, readWithoutSlash),
		"all, then a last slash":        in(readDecoded, readMerged, readDots, strings.ToLower, readWithoutSlash),
	}
}

func readDecoded(s string) string {
	if d, err := url.PathUnescape(s); err == nil {
		return d
	}
	return s
}

func readSlashes(s string) string {
	return strings.NewReplacer("%2f", "/", "%2F", "/", "%5c", "/", "%5C", "/").Replace(s)
}

func readMerged(s string) string {
	for strings.Contains(s, "//") {
		s = strings.ReplaceAll(s, "//", "/")
	}
	return s
}

func readDots(s string) string { // RFC 3986, 5.2.4
	var out []string
	segments := strings.Split(s, "/")[1:]
	for i, segment := range segments {
		last := i == len(segments)-1
		switch segment {
		case ".":
		case "..":
			out = out[:max(0, len(out)-1)]
		default:
			out = append(out, segment)
			last = false
		}
		if last {
			out = append(out, "")
		}
	}
	return "/" + strings.Join(out, "/")
}

func readWithoutParameters(s string) string {
	segments := strings.Split(s, "/")
	for i := range segments {
		segments[i], _, _ = strings.Cut(segments[i], ";")
	}
	return strings.Join(segments, "/")
}

func readToEnd(s string) string {
	if at := strings.IndexAny(s[1:], "?#"); at >= 0 {
		return s[:1+at]
	}
	return s
}

func readWithoutSlash(s string) string {
	if s == "/public/" || s == "/tree/" {
		return s // such a server leaves out the slash of its own prefix, too
	}
	return strings.TrimSuffix(s, "/")
}

// underTaken returns what r takes too little of what other would, "" if nothing.
func underTaken(r, other *plan.Rule) string {
	switch {
	case other.Check && !r.Check:
		return "check"
	case !other.Meter:
		return ""
	case !r.Meter || r.Weight < other.Weight:
		return plan.DefaultUnit
	}
	for _, u := range other.Units {
		if !slices.ContainsFunc(r.Units, func(have plan.Reserve) bool { return have.Unit == u.Unit && have.Amount >= u.Amount }) {
			return u.Unit
		}
	}
	return ""
}

// Whatever a server serves a path as, the request has been charged and checked so.
func FuzzReadings(f *testing.F) {
	for _, seed := range []string{
		"/public//../v1/render", "/public/..%2fv1/render", "/v1/x//../render", "/exports;x/9", "/public/..;/v1/chat",
		"/x/../%76%31/%2e%2e/v1/render", "/public/%252e%252e/v1/render", "/V1/render/", "/pub/../%761/%2e%2e/x", "/a/.%2e%5c..//health;/",
		"/events/..;/%2e/v1//chat", "/public/a//%2e%2e/%2e%2e%2fexports/9;", "//v1;x//render;y/", "/v1/render/%2e",
	} {
		f.Add(seed)
	}
	s := readingApp(f, "")
	docs, _ := s.Document(plan.KindRoutes, "api")
	all := servers()
	f.Fuzz(func(t *testing.T, path string) {
		got := s.Route("api", "", "POST", path)
		if path == "" || path[0] != '/' || strings.ContainsAny(path, "?#") {
			return
		}
		for name, read := range all {
			is := read(path)
			i := slices.IndexFunc(docs.Routes.Rules, func(r plan.Rule) bool { return matches(&r, "", "POST", is) })
			served := &plan.Rule{Weight: 1, Meter: true, Check: true}
			if i >= 0 {
				served = &docs.Routes.Rules[i]
			}
			if unit := underTaken(got, served); unit != "" {
				t.Errorf("%q takes %s; a server that %s serves %q, which takes %s: too little of %s", path, taken(got), name, is, taken(served), unit)
			}
		}
	})
}

// A path of one meaning costs no allocation, with capitals too; one of several costs a
// bounded amount of work.
func TestRoute_C164_Work(t *testing.T) {
	s := readingApp(t, "")
	if n := testing.AllocsPerRun(100, func() {
		for _, path := range []string{"/v1/render", "/exports/AbC", "/v1/render?x=%2f", "/tree", "/v1/Chat/", "/public/.x"} {
			s.Route("api", "", "POST", path)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	long := "/" + strings.Repeat("%41/..;//%2f", 5000)
	if n := testing.AllocsPerRun(10, func() { s.Route("api", "", "POST", long) }); n > 50 {
		t.Errorf("%v allocations for a path of %d bytes", n, len(long))
	}
}
