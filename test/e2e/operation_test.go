package e2e_test

import (
	"io"
	"net/http"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meteproject/mete/test/envoy"
)

// patienceOfTests is how long tests wait for what happens by itself.
const patienceOfTests = 20 * time.Second

// eventually returns once what is true.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for began := time.Now(); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > patienceOfTests {
			t.Fatalf("not within %v: %s", patienceOfTests, what)
		}
	}
}

// stat reads a counter or gauge of an Envoy.
func stat(t *testing.T, p *envoy.Process, name string) int {
	t.Helper()
	page, err := p.Get(t.Context(), "/stats?filter=^"+strings.ReplaceAll(name, ".", `\.`)+"$")
	if err != nil {
		t.Fatal(err)
	}
	_, value, _ := strings.Cut(strings.TrimSpace(page), ": ")
	n, err := strconv.Atoi(value)
	if err != nil {
		t.Fatalf("stat %s: %q", name, page)
	}
	return n
}

// page reads a page of mete's metrics listener.
func (w *world) page(t *testing.T, path string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+w.mete.Metrics+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// asksHealth makes Envoy ask for the health of one service, ten times a second.
func asksHealth(service string) func(string) string {
	return func(config string) string {
		config = strings.ReplaceAll(config, "interval: 3s", "interval: 0.1s")
		return strings.ReplaceAll(config, "grpc_health_check: {}", "grpc_health_check: {service_name: "+service+"}")
	}
}

// Envoy asks for the health of mete by the name of its service (P31). A mete that
// stops says first that it is not ready, to Envoy and to everybody else (P34), and
// answers meanwhile what still comes.
func TestHealth_P31_P34_ReadyUntilItStops(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"--drain-delay", "2s"}, asksHealth("envoy.service.auth.v3.Authorization"))
	stranger, err := w.startEnvoy(t.Context(), "envoy.yaml", 9901, 10000, asksHealth("no.such.Service"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Stop() }()
	a := newApp(t, w, "hourly: {kind: rate, amount: 100000, window: 1h}")
	const healthy = "cluster.mete.membership_healthy"
	eventually(t, "Envoy finds mete healthy", func() bool { return stat(t, w.ingress, healthy) == 1 })
	eventually(t, "a service that mete does not have is not healthy", func() bool {
		return stat(t, stranger, healthy) == 0 && stat(t, stranger, "cluster.mete.health_check.failure") > 0
	})
	if status, body := w.page(t, "/readyz?verbose"); status != http.StatusOK || !strings.Contains(body, "[ok] documents read once") {
		t.Errorf("readyz %d %s", status, body)
	}
	a.admit(t, 1)

	stopped := make(chan error, 1)
	go func() { stopped <- w.mete.Stop() }()
	eventually(t, "mete says that it is not ready", func() bool {
		status, _ := w.page(t, "/readyz")
		return status == http.StatusServiceUnavailable
	})
	a.admit(t, 1)
	eventually(t, "Envoy finds mete unhealthy", func() bool { return stat(t, w.ingress, healthy) == 0 })
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// Connections are closed when they are old, so that load spreads over new replicas,
// and no request is lost by it (P32). The metrics tell of limits and not of tenants
// (P29), and profiles are there when they are asked for (P55).
func TestConnectionAge_P32_P29_P55_NothingIsLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t, []string{"--max-connection-age", "10s", "--pprof"}, func(config string) string { return config })
	a := newApp(t, w, "hourly: {kind: rate, amount: 1000000, window: 1h}\nmonthly: {kind: quota, amount: 1, reset: {calendar: month}, when_used_up: count}")
	const failures = "http.ingress.ext_authz.mete.error"
	before := stat(t, w.ingress, failures) // while the app was not in force yet
	var wg sync.WaitGroup
	var stop atomic.Bool
	for g := range 2 {
		wg.Go(func() {
			b := *a
			b.sent = (g + 1) * 1_000_000
			for ; !stop.Load() && !t.Failed(); time.Sleep(2 * time.Millisecond) { // others want the machine too
				if r := b.send(t, b.key); r.status != http.StatusOK || r.header.Get("RateLimit") == "" {
					t.Errorf("got %d %s", r.status, r.body)
				}
			}
		})
	}
	eventually(t, "mete has closed an old connection and Envoy goes on over another", func() bool {
		return t.Failed() || stat(t, w.ingress, "cluster.mete.upstream_cx_total") >= 2 && stat(t, w.ingress, "cluster.mete.upstream_cx_destroy") >= 1
	})
	stop.Store(true)
	wg.Wait()
	if n := stat(t, w.ingress, failures) - before; n != 0 {
		t.Errorf("Envoy counts %d failures", n)
	}

	status, text := w.page(t, "/metrics")
	for _, want := range []string{`mete_decisions_total{app="` + a.name + `",outcome="counted_over"}`, "mete_store_up 1", "mete_replicas 1", "mete_build_info{"} {
		if status != http.StatusOK || !strings.Contains(text, want) {
			t.Errorf("metrics: %d, without %s", status, want)
		}
	}
	if strings.Contains(text, a.tenant) || strings.Contains(text, a.key) {
		t.Error("the metrics name a tenant or a key")
	}
	if status, _ := w.page(t, "/debug/pprof/goroutine?debug=1"); status != http.StatusOK {
		t.Errorf("pprof: %d", status)
	}
	if status, _ := shared(t).page(t, "/debug/pprof/"); status != http.StatusNotFound {
		t.Errorf("pprof that nobody asked for: %d", status)
	}
}

// A new certificate is served without a restart, and what came before goes on
// (P27).
func TestReload_P27_NewCertificate(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := newAuthority(t, dir)
	authority.issue(t, "mete", "elsewhere") // not the name that Envoy expects
	authority.issue(t, "envoy", "envoy.example.com")
	w := newWorld(t, []string{
		"--tls-cert", filepath.Join(dir, "mete.crt"), "--tls-key", filepath.Join(dir, "mete.key"),
		"--tls-client-ca", filepath.Join(dir, "ca.crt"), "--tls-client-san", "envoy.example.com",
	}, overTLS(dir))
	ask := func() int {
		a := app{world: w, host: "any.test", name: "reload"}
		return a.sendTo(t, w.ingress.Listener("ingress"), "X-Api-Key: mk_bad").status
	}
	if status := ask(); status != http.StatusServiceUnavailable {
		t.Errorf("under another name: %d, want Envoy's 503", status)
	}
	authority.issue(t, "mete", "mete")
	if err := w.mete.Reload(); err != nil {
		t.Fatal(err)
	}
	a := newApp(t, w, "hourly: {kind: rate, amount: 1, window: 1h}")
	a.admit(t, 1)
	a.refuse(t, http.StatusTooManyRequests)
}

// overTLS puts the transport socket of tls.yaml where envoy.yaml wants it.
func overTLS(dir string) func(string) string {
	const place = "      # TLS between Envoy and mete: put the transport_socket of tls.yaml here.\n"
	return func(config string) string {
		return strings.ReplaceAll(config, place, strings.ReplaceAll(part("tls.yaml", "      "), "/etc/mete/tls", dir))
	}
}
