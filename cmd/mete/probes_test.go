package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/rs/zerolog"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// ask asks h as a caller from addr and returns status and body.
func ask(h http.Handler, addr, method, path, body string) (int, string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.RemoteAddr, r.Host = addr, "127.0.0.1:9003"
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

const (
	here  = "127.0.0.1:5000"
	there = "10.1.2.3:5000"
)

// TestProbes follows a replica from its start over an outage of etcd to its end
// (P34, C149).
func TestProbes(t *testing.T) {
	loaded, up := false, false
	refusal := ""
	entered, behind, sealing, met := false, false, false, false
	p := &probes{
		loaded: func() bool { return loaded }, sealing: func() bool { return sealing }, storeUp: func() bool { return up },
		refusal: func() string { return refusal },
		entered: func() bool { return entered }, behind: func() bool { return behind }, met: func() bool { return met },
	}
	mux := metricsMux(p, http.NotFoundHandler(), http.NotFoundHandler(), false)
	step := func(what string, want int, lines ...string) {
		t.Helper()
		code, body := ask(mux, there, "GET", "/readyz?verbose", "")
		if code != want {
			t.Errorf("%s: readyz %d, want %d", what, code, want)
		}
		for _, line := range lines {
			if !strings.Contains(body, line+"\n") {
				t.Errorf("%s: no %q in\n%s", what, line, body)
			}
		}
		for _, path := range []string{"/livez", "/healthz"} {
			if code, _ := ask(mux, there, "GET", path, ""); code != 200 {
				t.Errorf("%s: %s %d", what, path, code)
			}
		}
	}
	step("started without etcd", 503, "[fail] documents read once", "[fail] listeners up", "[degraded] etcd reachable", "not ready")
	p.serving.Store(true)
	step("listening", 503, "[fail] documents read once", "[ok] listeners up")
	loaded, up = true, true
	step("not let in yet", 503, "[ok] documents read once", "[fail] let into the store")
	entered = true
	step("no key yet", 503, "[fail] keys for reservations", "not ready")
	sealing = true
	step("nobody knows it yet", 503, "[ok] keys for reservations", "[fail] registered among the replicas", "not ready")
	met = true
	step("documents read", 200, "[ok] registered among the replicas", "[ok] keys for reservations", "[ok] documents read once", "[ok] etcd reachable", "ready")
	up = false
	step("etcd away", 200, "[degraded] etcd reachable", "ready")
	up, refusal = true, "etcdserver: mvcc: database space exceeded"
	step("a full database (C158)", 200, "[ok] etcd reachable", "[degraded] etcd takes writes: etcdserver: mvcc: database space exceeded", "ready")
	refusal = ""
	behind = true
	step("left behind (S26)", 200, "[ok] etcd takes writes", "[degraded] new enough for the store", "ready")
	p.draining.Store(true)
	step("draining", 503, "[fail] not draining", "not ready")
	if code, body := ask(mux, there, "GET", "/readyz", ""); code != 503 || body != "not ready\n" {
		t.Errorf("not verbose: %d %q", code, body)
	}
}

func TestLogLevel(t *testing.T) {
	var out strings.Builder
	log, gate := newLogger(&out, zerolog.InfoLevel, fixedNow)
	mux := metricsMux(&probes{}, gate, http.NotFoundHandler(), false)
	log.Debug().Msg("one")
	if code, body := ask(mux, here, "PUT", "/debug/loglevel", "debug\n"); code != 200 || body != "debug\n" {
		t.Errorf("%d %q", code, body)
	}
	log.Debug().Str("k", "v").Msg("two")
	if code, _ := ask(mux, here, "PUT", "/debug/loglevel", "loud"); code != 400 {
		t.Errorf("a level that is none: %d", code)
	}
	if code, _ := ask(mux, here, "PUT", "/debug/loglevel", strings.Repeat("x", 100)); code != 413 {
		t.Errorf("a long body: %d", code)
	}
	if code, _ := ask(mux, there, "PUT", "/debug/loglevel", "error"); code != 403 {
		t.Errorf("from another machine: %d", code)
	}
	if code, body := ask(mux, here, "GET", "/debug/loglevel", ""); code != 200 || body != "debug\n" {
		t.Errorf("%d %q", code, body)
	}
	child := log.With().Str("part", "x").Logger()
	gate.set(zerolog.ErrorLevel)
	child.Warn().Msg("three")
	want := `{"level":"debug","k":"v","time":"2026-01-02T03:04:05.000Z","message":"two"}` + "\n"
	if out.String() != want {
		t.Errorf("logged\n%s\nwant\n%s", out.String(), want)
	}
}

func TestPprof_P55_OnlyWhenAskedForAndFromThisMachine(t *testing.T) {
	for _, on := range []bool{false, true} {
		mux := metricsMux(&probes{}, http.NotFoundHandler(), http.NotFoundHandler(), on)
		want := map[bool]int{false: 404, true: 200}[on]
		if code, _ := ask(mux, here, "GET", "/debug/pprof/", ""); code != want {
			t.Errorf("pprof %v: %d", on, code)
		}
		if code, _ := ask(mux, there, "GET", "/debug/pprof/", ""); code == 200 {
			t.Errorf("pprof %v is open to other machines", on)
		}
	}
	r := httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil)
	r.RemoteAddr, r.Host = here, "evil.example:9003"
	w := httptest.NewRecorder()
	metricsMux(&probes{}, http.NotFoundHandler(), http.NotFoundHandler(), true).ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("a page under a foreign name: %d", w.Code)
	}
	r.Host, w = "127.0.0.1:9003", httptest.NewRecorder()
	r.Header.Set("Sec-Fetch-Site", "cross-site") // an image of another page, say
	metricsMux(&probes{}, http.NotFoundHandler(), http.NotFoundHandler(), true).ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("a page of another origin: %d", w.Code)
	}
}

// scraped is what the scrape of the test below holds.
func scraped() []string {
	return []string{
		`mete_decisions_total{app="web",outcome="allowed"} 3`,
		`mete_lease_outstanding_units{app="web",limit="monthly"} 30`,
		`mete_overshoot_bound_units{app="web",limit="monthly"} 33`,
		`mete_overshoot_units_total{cause="replica_lost"} 5`,
		`mete_usage_dropped_units_total{reason="held"} 5`,
		`mete_usage_pending_units{app="web",limit="monthly"} 4`,
		`mete_store_requests_total{kind="write"} 8`,
		`mete_decisions_total{app="web",outcome="denied"} 2`,
		`mete_decisions_total{app="web",outcome="error"} 4`,
		`mete_unavailable_decisions_total{app="web",choice="allow"} 6`,
		`mete_unavailable_decisions_total{app="web",choice="deny"} 0`,
		"mete_config_apply_delay_seconds_count 0",
		`mete_refusals_total{app="web",limit="monthly",plan="free"} 2`,
		`mete_undecided_calls_total{reason="panic"} 1`,
		`mete_overshoot_units_total{cause="long_request"} 7`,
		`mete_lease_requests_total{result="granted"} 2`,
		`mete_lease_requests_total{result="failed"} 1`,
		`mete_config_rejected_documents{kind="Plan"} 1`,
		"mete_store_up 1", "mete_store_writable 1", "mete_store_untold_changes_total 2", "mete_store_round_trip_seconds 0.002", "mete_config_revision 12", "mete_cached_tenants 5", "mete_replicas 3",
		"mete_build_info{", "go_goroutines ", "process_start_time_seconds ",
	}
}

func TestMetrics_P29_TheScrapeHoldsWhatAlertsNeed(t *testing.T) {
	m := newMetrics()
	m.registry.MustRegister(newCollector(func() readings {
		return readings{
			Decider: authz.Stats{
				Decisions: map[string]map[authz.Outcome]int64{
					"web":    {authz.Allowed: 3, authz.RateLimited: 1, authz.QuotaExceeded: 1, authz.NotReady: 4, authz.UnavailableAllowed: 6},
					"w\xffb": {authz.Allowed: 1},
				},
				Refusals: map[authz.RefusalKey]int64{{App: "web", Plan: "free", Limit: "monthly"}: 2},
				Tenants:  5,
			},
			Envoy:    envoy.Stats{Panics: 1},
			Keeper:   quota.KeeperStats{Granted: 2, Failed: 1, Overshoot: map[quota.Cause]int64{quota.LongRequest: 7}, DroppedUnits: 4, Recalls: 2},
			Limits:   []quota.LimitReading{{App: "web", Limit: "monthly", Leased: 30, Pending: 4, Bound: 33}},
			Accounts: store.AccountStats{Writes: 8, Unknown: 1},
			Recovery: quota.RecoveryStats{Recovered: quota.Recovered{Lost: 5, Dropped: 1}},
			Rejected: map[string]int{"Plan": 1},
			Cluster:  store.ClusterHealth{RoundTrip: 2 * time.Millisecond},
			StoreUp:  true, Writable: true, Untold: 2, Revision: 12, Replicas: 3,
		}
	}))
	code, body := ask(m.handler(), there, "GET", "/metrics", "")
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	for _, want := range scraped() {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	for _, cause := range quota.Causes() {
		if !strings.Contains(body, `mete_overshoot_units_total{cause="`+string(cause)+`"}`) {
			t.Errorf("cause %s is missing: an alert on it would never fire", cause)
		}
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "mete_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
