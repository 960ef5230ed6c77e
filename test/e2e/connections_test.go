package e2e_test

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// C181 behind Envoy: connections that mete asks to go under load, and pings five times a
// second. No check fails, no entry of the log is lost: what was answered is charged, to the
// unit, and what failed is not. LONG=1 in the environment goes on for longer.
func TestConnections_C181_EndAndPingUnderLoad(t *testing.T) {
	t.Parallel()
	long := os.Getenv("LONG") != ""
	for _, tt := range []struct {
		name        string
		args        []string
		edit        func(config string) string
		ends, beats int // connections of each cluster that have to end, and health checks of the log's that have to pass: two a second
	}{
		{"ends", []string{"--max-connection-age", "10s"}, unchanged, 1, 0},
		{"pings", nil, func(config string) string {
			return strings.ReplaceAll(config, "connection_keepalive: {interval: 20s, timeout: 2s}", "connection_keepalive: {interval: 0.2s, timeout: 2s}")
		}, 0, 8},
	} {
		if long {
			tt.ends, tt.beats = 6*tt.ends, 15*tt.beats
		}
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, tt.args, func(config string) string {
				return strings.Replace(tt.edit(config), "buffer_flush_interval: 1s", "buffer_flush_interval: 0.1s", 1)
			})
			a := newApp(t, w, "yearly: {kind: quota, amount: 100000000, reset: {calendar: year}, lease: {report_every: 1s}}")
			asked := func(cluster string) int { return stat(t, w.ingress, cluster+".upstream_cx_close_notify") }
			served := a.load(t, func() bool {
				return asked("cluster.mete") >= tt.ends && asked("cluster.mete_log") >= tt.ends && stat(t, w.ingress, "cluster.mete_log.health_check.success") >= tt.beats
			})
			if checks, logs := asked("cluster.mete"), asked("cluster.mete_log"); tt.ends == 0 && checks+logs > 0 {
				t.Errorf("%d connections of checks and %d of the log were asked to go", checks, logs)
			}
			eventually(t, fmt.Sprintf("%d requests are charged and all are settled", served), func() bool {
				return a.metric(t, "mete_reservations_unsettled") == 0 && a.account(t).Used() == served
			})
			if n := stat(t, w.ingress, "http.ingress.ext_authz.mete.error"); n != 0 {
				t.Errorf("%d checks have failed", n)
			}
		})
	}
}

// load sends requests, of which one in four fails at the API, until done, and returns how
// many were served.
func (a *app) load(t *testing.T, done func() bool) (served int64) {
	t.Helper()
	var over atomic.Bool
	var n atomic.Int64
	var all sync.WaitGroup
	for i := range 2 {
		caller := *a
		caller.sent = (i + 1) * 1_000_000
		all.Go(func() {
			for k := 0; !over.Load() && !t.Failed(); k++ {
				path, want := "/hello", http.StatusOK
				if k%4 == 3 {
					path, want = "/status/503", http.StatusServiceUnavailable
				}
				if r := caller.get(t, path); r.status != want || len(r.seen) != 1 {
					t.Errorf("%s: got %d %s, the API saw %d", path, r.status, r.body, len(r.seen))
					return
				}
				if want == http.StatusOK {
					n.Add(1)
				}
			}
		})
	}
	for began := time.Now(); !done() && !t.Failed(); time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > 6*patienceOfTests {
			t.Errorf("not within %v", 6*patienceOfTests)
		}
	}
	over.Store(true)
	all.Wait()
	return n.Load()
}
