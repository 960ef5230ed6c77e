package e2e_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/test/rig"
)

// settleWithin is how long documents may take to come into force (Q67).
const settleWithin = time.Second

// apps counts the apps of this run, so that no name is used twice.
var apps atomic.Int64

// An app is an App of one test, a tenant on its plan, and that tenant's key.
type app struct {
	*world
	name, host  string
	tenant, key string
	probe       string // key of a tenant without a plan
	sent        int
}

// newApp puts an app into force whose plan has the limits given, one a line as in
// a Plan. More goes into the App's spec, one field a line.
func newApp(t *testing.T, w *world, limits string, more ...string) *app {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("Test", "t", "_", "-", "/", "-").Replace(t.Name()))
	name = fmt.Sprintf("%.40s-%d", name, apps.Add(1))
	a := &app{
		world: w, name: name, host: name + ".test", tenant: "org:" + name,
		key: "mk_" + name + "_tenant", probe: "mk_" + name + "_probe",
	}
	domain := "envoy: {hosts: [" + a.host + "]}"
	for i, line := range more {
		if strings.HasPrefix(line, "domain: ") {
			domain = "envoy: {" + line + ", hosts: [" + a.host + "]}"
			more[i] = ""
		}
	}
	a.put(t, map[string]string{
		"apps/" + name: document("App", name, "  time_zone: Europe/Berlin\n  "+domain+
			"\n  identity: {tenant: [{api_key: x-api-key}]}\n  "+strings.Join(more, "\n  ")),
		"plans/" + name:                  a.plan(limits),
		"tenants/" + a.tenant:            document("Tenant", a.tenant, "  plan: "+name),
		"tenants/" + a.tenant + "-probe": document("Tenant", a.tenant+"-probe", "  app: "+name),
		"credentials/" + hash(a.key):     document("Credential", hash(a.key), "  tenant: "+a.tenant+"\n  principal: user:alice"),
		"credentials/" + hash(a.probe):   document("Credential", hash(a.probe), "  tenant: "+a.tenant+"-probe"),
	})
	a.await(t)
	return a
}

// plan is the app's Plan with other limits.
func (a *app) plan(limits string) string {
	return document("Plan", a.name, "  upgrade_url: https://example.com/billing\n  limits:\n    "+
		strings.ReplaceAll(strings.TrimSpace(limits), "\n", "\n    "))
}

// put writes documents the way etcdctl would, all at one revision, which it returns.
func (a *app) put(t *testing.T, documents map[string]string) (revision int64) {
	t.Helper()
	var ops []clientv3.Op
	for key, text := range documents {
		ops = append(ops, clientv3.OpPut("/mete/v1/"+key, text))
	}
	r, err := a.etcd.Txn(t.Context()).Then(ops...).Commit()
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

// await returns once a request of the tenant without a plan goes through: all
// documents were written at once, so all are in force then.
func (a *app) await(t *testing.T) {
	t.Helper()
	var r *reply
	for began := time.Now(); time.Since(began) < 10*settleWithin; time.Sleep(5 * time.Millisecond) {
		if r = a.send(t, a.probe); r.status == http.StatusOK {
			return
		}
	}
	t.Fatalf("app %s is not in force: %d %s\nmete says:\n%s", a.name, r.status, r.body, a.mete.Log())
}

// awaitRoutes returns once the Routes of the app are in force, by a document that
// was written after them.
func (a *app) awaitRoutes(t *testing.T) {
	t.Helper()
	late := fmt.Sprint(a.key, "_late", apps.Add(1)) // one that no earlier call has put into force
	a.put(t, map[string]string{
		"credentials/" + hash(late): document("Credential", hash(late), "  tenant: "+a.tenant+"-probe"),
	})
	early := a.probe
	a.probe = late
	a.await(t)
	a.probe = early
}

// A reply is what a caller gets, and what the API behind Envoy saw of it.
type reply struct {
	status int
	header http.Header
	body   string
	seen   []rig.Seen
}

// send sends a GET with a key and more headers, "Name: value", through Envoy.
func (a *app) send(t *testing.T, key string, headers ...string) *reply {
	t.Helper()
	return a.sendTo(t, a.ingress.Listener("ingress"), append([]string{"X-Api-Key: " + key}, headers...)...)
}

// get sends a GET for a path with the tenant's key.
func (a *app) get(t *testing.T, path string) *reply {
	t.Helper()
	return a.sendTo(t, a.ingress.Listener("ingress")+path, "X-Api-Key: "+a.key)
}

// sendTo sends a GET to a listener, for /hello unless a path follows.
func (a *app) sendTo(t *testing.T, target string, headers ...string) *reply {
	t.Helper()
	return a.sendAs(t, http.MethodGet, target, headers...)
}

// sendAs is sendTo with any method.
func (a *app) sendAs(t *testing.T, method, target string, headers ...string) *reply {
	t.Helper()
	if !strings.Contains(target, "/") {
		target += "/hello"
	}
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+target, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	a.sent++
	id := fmt.Sprintf("%s/%d", a.name, a.sent)
	req.Host = a.host
	req.Header.Set(rig.TestID, id)
	for _, line := range headers {
		name, value, _ := strings.Cut(line, ": ")
		req.Header.Add(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &reply{status: resp.StatusCode, header: resp.Header, body: string(body), seen: a.upstream.Seen(id)}
}

// admit sends n requests that must all go through and returns the last reply.
func (a *app) admit(t *testing.T, n int) *reply {
	t.Helper()
	var r *reply
	for i := range n {
		if r = a.send(t, a.key); r.status != http.StatusOK || len(r.seen) != 1 {
			t.Fatalf("request %d of %d: got %d %s, the API saw %d; want 200 and 1", i+1, n, r.status, r.body, len(r.seen))
		}
	}
	return r
}

// refuse sends a request that must be refused without reaching the API.
func (a *app) refuse(t *testing.T, status int, headers ...string) *reply {
	t.Helper()
	r := a.send(t, a.key, headers...)
	if r.status != status || len(r.seen) != 0 {
		t.Fatalf("got %d %s, the API saw %d; want %d and 0", r.status, r.body, len(r.seen), status)
	}
	return r
}

// document writes a document with its spec, which must be indented.
func document(kind, name, spec string) string {
	return fmt.Sprintf("apiVersion: mete/v1\nkind: %s\nmetadata: {name: %q}\nspec:\n%s\n", kind, name, spec)
}

func hash(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}
