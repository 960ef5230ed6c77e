package servers_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/test/envoy"
	"github.com/meteproject/mete/test/rig"
)

// A chain is a mete and two Envoys that ask it: one that passes paths on as they come, and
// one with what the shipped configuration says of paths and headers.
type chain struct {
	dir    string // of the servers' sockets
	mete   *rig.Mete
	etcd   *clientv3.Client
	envoys map[string]*envoy.Process
}

// behind are the servers of a chain, with their rows of docs/paths.md. For each there is
// an app of its name, which says nothing of paths, and NAME-said, which says what is there.
func behind() map[string]string {
	return map[string]string{"go": "Go's ServeMux", "gunicorn": "WSGI servers", "express5": "Express", "nginx": "nginx"}
}

func newChain(t *testing.T) *chain {
	t.Helper()
	ctx := context.Background() // t.Context ends before the cleanup
	c := &chain{dir: folder(t), envoys: map[string]*envoy.Process{}}
	root, err := envoy.Root()
	if err != nil {
		t.Fatal(err)
	}
	built := t.TempDir()
	if err := rig.Build(ctx, root, built); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.stop(t) })
	if c.mete, err = rig.StartMete(ctx, filepath.Join(built, "mete"), t.TempDir(), "--lease-wait", "5s"); err != nil {
		t.Fatal(err)
	}
	if c.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{c.mete.Etcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()}); err != nil {
		t.Fatal(err)
	}
	c.documents(t)
	shipped, err := os.ReadFile(filepath.Join(root, "examples", "envoy", "envoy.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	binary, err := envoy.Binary(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"raw", "shipped"} {
		config, err := envoy.Ports(c.config(t, string(shipped), name), map[int]int{9901: 0, 10000: 0, 9001: rig.Port(c.mete.GRPC)})
		if err != nil {
			t.Fatal(err)
		}
		if c.envoys[name], err = envoy.Start(ctx, binary, config); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *chain) stop(t *testing.T) {
	t.Helper()
	for _, p := range c.envoys {
		if p == nil {
			continue
		}
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}
	if c.etcd != nil {
		_ = c.etcd.Close()
	}
	if c.mete != nil {
		if err := c.mete.Stop(); err != nil {
			t.Error(err)
		}
	}
}

// config is the shipped configuration with the servers behind it; raw without what it says
// of paths and headers.
func (c *chain) config(t *testing.T, config, name string) string {
	t.Helper()
	replace := func(old, with string) {
		if !strings.Contains(config, old) {
			t.Fatalf("the shipped configuration has no %q", old)
		}
		config = strings.ReplaceAll(config, old, with)
	}
	var hosts, clusters strings.Builder
	for server := range behind() {
		fmt.Fprintf(&hosts, "                    - {name: %s, domains: [%[1]s.test, %[1]s-said.test], routes: [{match: {prefix: /}, route: {cluster: %[1]s}}]}\n", server)
		fmt.Fprintf(&clusters, "    - {name: %s, type: STATIC, connect_timeout: 1s, load_assignment: {cluster_name: %[1]s, endpoints: [{lb_endpoints: [{endpoint: {address: {pipe: {path: %s}}}}]}]}}\n",
			server, filepath.Join(c.dir, server+".sock"))
	}
	replace("                  virtual_hosts:\n", "                  virtual_hosts:\n"+hosts.String())
	replace("  clusters:\n", "  clusters:\n"+clusters.String())
	replace("timeout: 0.4s", "timeout: 10s")
	if name == "raw" {
		for _, line := range []string{"normalize_path: true", "merge_slashes: true", "path_with_escaped_slashes_action: REJECT_REQUEST", "headers_with_underscores_action: REJECT_REQUEST"} {
			replace(line, "")
		}
	}
	return config
}

// documents writes the apps, each with a tenant that may have all it asks for and one that
// may have nothing, and returns once they are in force. Whatever the API answers is charged
// as it was reserved.
func (c *chain) documents(t *testing.T) {
	t.Helper()
	put := func(key, text string) {
		if _, err := c.etcd.Put(t.Context(), "/mete/v1/"+key, text); err != nil {
			t.Fatal(err)
		}
	}
	table := rows(t)
	for server, row := range behind() {
		for app, paths := range map[string]string{server: "", server + "-said": table[row]} {
			text := strings.NewReplacer("{name: api}", "{name: "+app+"}", "app: api", "app: "+app, "PATHS", paths,
				"units: {tokens: {}}", "units: {tokens: {}}\n  envoy: {hosts: ["+app+".test]}\n  count: {statuses: [1xx, 2xx, 3xx, 4xx, 5xx, 304], aborted: true}").Replace(routes)
			one, two, ok := strings.Cut(text, "---\n")
			if !ok {
				t.Fatal("routes are two documents")
			}
			put("apps/"+app, one)
			put("routes/"+app, two)
			for tenant, amount := range map[string]string{"rich": "999999999999999", "broke": "0"} {
				head := "apiVersion: mete/v1\nmetadata: {name: %q}\nkind: "
				name := tenant + ":" + app
				put("plans/"+tenant+"-"+app, fmt.Sprintf(head+"Plan\nspec:\n  limits:\n    req: {kind: quota, amount: %s, reset: {calendar: year}}\n    tok: {kind: quota, unit: tokens, amount: %[2]s, reset: {calendar: year}}\n", tenant+"-"+app, amount))
				put("tenants/"+name, fmt.Sprintf(head+"Tenant\nspec: {plan: %s}\n", name, tenant+"-"+app))
				sum := sha256.Sum256([]byte("mk_" + name))
				put("credentials/"+hex.EncodeToString(sum[:]), fmt.Sprintf(head+"Credential\nspec: {tenant: %q}\n", hex.EncodeToString(sum[:]), name))
			}
		}
	}
}

// ask sends a target as a tenant of an app.
func (c *chain) ask(t *testing.T, via *client, app, tenant, target string, headers ...string) *http.Response {
	t.Helper()
	via.host = app + ".test"
	resp, err := via.get(t.Context(), target, append(headers, "X-Api-Key: mk_"+tenant+":"+app)...)
	if err != nil {
		t.Fatalf("%q: %v", target, err)
	}
	return resp
}

// left reads what is left of the limits by a RateLimit field.
func left(resp *http.Response) map[string]int64 {
	all := map[string]int64{}
	for item := range strings.SplitSeq(resp.Header.Get("RateLimit"), ",") {
		name, rest, _ := strings.Cut(strings.TrimSpace(item), ";r=")
		rest, _, _ = strings.Cut(rest, ";")
		if n, err := strconv.ParseInt(rest, 10, 64); err == nil {
			all[strings.Trim(name, `"`)] = n
		}
	}
	return all
}

// C164 with Envoy between: what real servers serve as one route, mete has charged and
// checked at least as that, with an Envoy that leaves paths alone and with the shipped one.
func TestSpellings_C164_C154_BehindEnvoy(t *testing.T) {
	t.Parallel()
	c := newChain(t)
	starts := map[string]func(t *testing.T, dir string){
		"go": startGo, "gunicorn": func(t *testing.T, dir string) { t.Helper(); startGunicorn(t, dir) },
		"express5": startExpress, "nginx": startNginx,
	}
	for server := range behind() {
		t.Run(server, func(t *testing.T) {
			t.Parallel()
			starts[server](t, c.dir)
			for _, app := range []string{server, server + "-said"} {
				s := compiled(t, "")
				for name, p := range c.envoys {
					via := &client{network: "tcp", address: p.Listener("ingress")}
					c.replay(t, s, via, name, app)
					via.close()
				}
			}
			if server == "gunicorn" {
				c.movedByHeader(t)
			}
		})
	}
}

// replay sends some of all spellings, each as a tenant that may have all, whose charges are
// read, and as one that may have nothing, who must not get what is checked.
func (c *chain) replay(t *testing.T, s *plan.Snapshot, via *client, name, app string) {
	t.Helper()
	before := c.await(t, via, app)
	before["tok"] = left(c.ask(t, via, app, "rich", "/v1/chat"))["tok"]
	before["req"]--
	served := map[string]int{}
	for i, target := range spellings() {
		if i%12 != len(app)%12 {
			continue
		}
		resp := c.ask(t, via, app, "rich", target)
		route, now := resp.Header.Get("X-Route"), left(resp)
		taken := map[string]int64{}
		for unit, n := range now {
			taken[unit], before[unit] = before[unit]-n, n
		}
		if route == "" || resp.StatusCode != http.StatusOK {
			served[strconv.Itoa(resp.StatusCode)]++
			continue
		}
		served[route]++
		want := rule(t, s, route)
		short := want.Meter && taken["req"] < want.Weight || want.Meter && len(want.Units) > 0 && taken["tok"] < want.Units[0].Amount
		if short {
			t.Errorf("%s, %s: %q is served as %s, and takes %v", name, app, target, route, taken)
		}
		if status := c.ask(t, via, app, "broke", target).StatusCode; want.Check && status != http.StatusTooManyRequests {
			t.Errorf("%s, %s: %q is served as %s, and not refused to who may have nothing: %d", name, app, target, route, status)
		}
	}
	if served["other"] == 0 || served["public"] == 0 || served["render"]+served["chat"]+served["tree"] == 0 {
		t.Errorf("%s, %s: served %v", name, app, served)
	}
	t.Log(name, app, served)
}

// movedByHeader shows what docs/paths.md says of headers that move a request: gunicorn takes
// the prefix that SCRIPT_NAME names off the path, so that an exempt path leads to a dear
// route. No reading of the path can tell; the shipped configuration refuses the header (C154).
func (c *chain) movedByHeader(t *testing.T) {
	t.Helper()
	const target, moves = "/public/v1/render", "SCRIPT_NAME: /public"
	for name, want := range map[string]struct {
		status int
		route  string
	}{"raw": {http.StatusOK, "render"}, "shipped": {http.StatusBadRequest, ""}} {
		via := &client{network: "tcp", address: c.envoys[name].Listener("ingress")}
		if resp := c.ask(t, via, "gunicorn", "broke", target); resp.StatusCode != http.StatusOK || resp.Header.Get("X-Route") != "public" {
			t.Errorf("%s: %d, served as %q", name, resp.StatusCode, resp.Header.Get("X-Route"))
		}
		if resp := c.ask(t, via, "gunicorn", "broke", target, moves); resp.StatusCode != want.status || resp.Header.Get("X-Route") != want.route {
			t.Errorf("%s: %d, served as %q, want %v", name, resp.StatusCode, resp.Header.Get("X-Route"), want)
		}
		via.close()
	}
}

// await returns once the documents of an app are in force, and what is left then.
func (c *chain) await(t *testing.T, via *client, app string) map[string]int64 {
	t.Helper()
	for began := time.Now(); time.Since(began) < startWithin; time.Sleep(5 * time.Millisecond) {
		if now := left(c.ask(t, via, app, "rich", "/other")); now["req"] > 0 {
			return now
		}
	}
	t.Fatalf("the documents of %s are not in force:\n%s", app, c.mete.Log())
	return nil
}
