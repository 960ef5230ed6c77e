package servers_test

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/test/envoy"
	"github.com/meteproject/mete/test/need"
	"github.com/meteproject/mete/test/servers"
)

// routes are what the servers serve, as mete is told. A request that none of them is for
// costs one and is checked; the servers say "other".
const routes = `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: UTC
  units: {tokens: {}}
  identity: {tenant: [{api_key: x-api-key}]}
  paths: {PATHS}
---
apiVersion: mete/v1
kind: Routes
metadata: {name: api}
spec:
  app: api
  rules:
    - {name: public, match: {path_prefix: /public/}, meter: false, check: false, reason: anybody may}
    - {name: health, match: {path: /health}, meter: false, check: false, reason: polled by monitors}
    - {name: render, match: {path: /v1/render}, weight: 50}
    - {name: chat, match: {path: /v1/chat}, units: {tokens: {reserve: 400, use: [{report: true}]}}}
    - {name: events, match: {path_prefix: /events}, check: false, reason: can not be sent again}
    - {name: export, match: {path: "/exports/{id}"}, weight: 5}
    - {name: tree, match: {path_prefix: /tree/}, weight: 9}
`

// compiled returns a snapshot of routes for servers that read as paths says.
func compiled(t *testing.T, paths string) *plan.Snapshot {
	t.Helper()
	docs, problems := plan.Decode("routes", []byte(strings.Replace(routes, "PATHS", paths, 1)))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	c := plan.NewCatalog()
	for _, d := range docs {
		c.Put(d, 1)
	}
	return c.Snapshot()
}

// rows reads the table of docs/paths.md: what an App says for each server.
func rows(t *testing.T) map[string]string {
	t.Helper()
	root, err := envoy.Root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "paths.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(page), "| server |")
	head, table, _ := strings.Cut(table, "\n")
	fields, found := cells(head), map[string]string{}
	for line := range strings.Lines(table) {
		row := cells(line)
		if len(row) != len(fields)+1 {
			break
		}
		said := make([]string, len(fields))
		for i, value := range row[1:] {
			said[i] = strings.Trim(fields[i], "`") + ": " + value
		}
		if !strings.HasPrefix(row[0], "---") {
			found[row[0]] = strings.Join(said, ", ")
		}
	}
	if len(found) < 4 {
		t.Fatalf("docs/paths.md has a table of %q", found)
	}
	return found
}

func cells(line string) []string {
	row := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	for i := range row {
		row[i] = strings.TrimSpace(row[i])
	}
	return row
}

// serveMux is Go's, with the routes.
func serveMux() http.Handler {
	mux := http.NewServeMux()
	for pattern, route := range map[string]string{
		"/public/": "public", "/health": "health", "/v1/render": "render", "/v1/chat": "chat", "/events": "events", "/events/": "events",
		"/exports/{id}": "export", "/tree/": "tree", "/": "other",
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Route", route) })
	}
	return mux
}

// startGo serves serveMux.
func startGo(t *testing.T, dir string) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(dir, "go.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: serveMux()} //nolint:gosec // its callers are ours
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// startWSGI serves wsgi/app.py with gunicorn, waitress and the standard library's server.
func startWSGI(t *testing.T, dir string) {
	t.Helper()
	python, env := startGunicorn(t, dir)
	socket := filepath.Join(dir, "waitress.sock")
	start(t, socket, python, env, "-m", "waitress", "--unix-socket", socket, "app:app")
	socket = filepath.Join(dir, "wsgiref.sock")
	start(t, socket, python, env, filepath.Join("wsgi", "app.py"), socket)
}

// startGunicorn serves wsgi/app.py with gunicorn, and returns a Python and the
// environment in which it finds the app.
func startGunicorn(t *testing.T, dir string) (python string, env []string) {
	t.Helper()
	packages, err := servers.Python(t.Context())
	if errors.Is(err, servers.ErrNoVenv) {
		need.Missing(t, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs("wsgi")
	if err != nil {
		t.Fatal(err)
	}
	python, env = need.Program(t, "python3"), []string{"PYTHONPATH=" + packages + ":" + here, "PYTHONDONTWRITEBYTECODE=1"}
	socket := filepath.Join(dir, "gunicorn.sock")
	start(t, socket, python, env, "-m", "gunicorn", "--bind", "unix:"+socket, "--worker-class", "gthread", "--threads", "4", "--log-level", "critical", "app:app")
	return python, env
}

// startExpress serves express/app.js with the Express of today and the one before it.
func startExpress(t *testing.T, dir string) {
	t.Helper()
	node := need.Program(t, "node")
	need.Program(t, "npm")
	modules, err := servers.Node(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("express", "app.js"))
	if err != nil {
		t.Fatal(err)
	}
	app := filepath.Join(modules, "app.js") // where node looks for node_modules
	if err := os.WriteFile(app, text, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, pkg := range map[string]string{"express5": "express", "express4": "express4"} {
		start(t, filepath.Join(dir, name+".sock"), node, nil, app, pkg, filepath.Join(dir, name+".sock"))
	}
}

// startNginx runs nginx with nginx/nginx.conf.
func startNginx(t *testing.T, dir string) {
	t.Helper()
	nginx := need.Program(t, "nginx")
	text, err := os.ReadFile(filepath.Join("nginx", "nginx.conf"))
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(dir, "nginx.conf")
	if err := os.WriteFile(conf, []byte(strings.ReplaceAll(string(text), "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, filepath.Join(dir, "proxy-uri.sock"), nginx, nil, "-e", filepath.Join(dir, "nginx.log"), "-p", dir, "-c", conf)
}

// Whatever a real server serves a target as, mete charges and checks at least as that:
// if the App says nothing of its servers, and if it says what docs/paths.md tells for
// that server (C164).
func TestSpellings_C164_AtRealServers(t *testing.T) {
	t.Parallel()
	gunicorn := func(t *testing.T, dir string) { t.Helper(); startGunicorn(t, dir) }
	for _, tt := range []struct {
		name    string
		row     string // of the table
		start   []func(t *testing.T, dir string)
		sockets []string
		each    int // not all spellings, but one of so many
	}{
		{"go", "Go's ServeMux", []func(*testing.T, string){startGo}, []string{"go"}, 1},
		{"wsgi", "WSGI servers", []func(*testing.T, string){startWSGI}, []string{"gunicorn", "waitress", "wsgiref"}, 2},
		{"express", "Express", []func(*testing.T, string){startExpress}, []string{"express4", "express5"}, 2},
		{"nginx", "nginx", []func(*testing.T, string){startGo, startNginx}, []string{"nginx"}, 1},
		{"proxy", "", []func(*testing.T, string){startGo, gunicorn, startExpress, startNginx}, []string{"proxy-go", "proxy-wsgi", "proxy-express"}, 3},
		{"decoding proxy", "", []func(*testing.T, string){startGo, startNginx}, []string{"proxy-uri"}, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			said := map[string]*plan.Snapshot{"": compiled(t, "")}
			if row, ok := rows(t)[tt.row]; ok {
				said[row] = compiled(t, row)
			} else if tt.row != "" {
				t.Fatalf("docs/paths.md has no row of %s", tt.row)
			}
			dir := folder(t)
			for _, start := range tt.start {
				start(t, dir)
			}
			for _, socket := range tt.sockets {
				t.Run(socket, func(t *testing.T) {
					t.Parallel()
					replay(t, &client{network: "unix", address: filepath.Join(dir, socket+".sock")}, tt.each, said)
				})
			}
		})
	}
}

// replay sends spellings, one of each so many, to a server and compares what serves them
// with what mete takes, as it is said.
func replay(t *testing.T, c *client, each int, said map[string]*plan.Snapshot) {
	t.Helper()
	defer c.close()
	served := map[string]int{}
	for i, target := range spellings() {
		if i%each != 0 {
			continue
		}
		resp, err := c.get(t.Context(), target)
		if err != nil {
			t.Fatalf("%q: %v", target, err)
		}
		route := resp.Header.Get("X-Route")
		if route == "" || resp.StatusCode != http.StatusOK {
			served[fmt.Sprint(resp.StatusCode)]++
			continue
		}
		served[route]++
		for paths, s := range said {
			if unit := underTaken(s.Route("api", "", "GET", target), rule(t, s, route)); unit != "" {
				t.Errorf("{%s} %q is served as %s: too little of %s is taken", paths, target, route, unit)
			}
		}
	}
	for _, route := range []string{"public", "health", "render", "chat", "events", "export", "tree", "other"} {
		if served[route] == 0 {
			t.Errorf("%s was never served: %v", route, served)
		}
	}
	t.Log(served)
}

// rule returns the rule of a route.
func rule(t *testing.T, s *plan.Snapshot, route string) *plan.Rule {
	t.Helper()
	r := s.RouteByName("api", route)
	switch {
	case r != nil:
		return r
	case route != "other":
		t.Fatalf("a server serves %q, which is not a rule", route)
	}
	return &plan.Rule{Weight: 1, Meter: true, Check: true}
}

// underTaken returns what r takes too little of for a request that is served as other,
// "" if nothing.
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
