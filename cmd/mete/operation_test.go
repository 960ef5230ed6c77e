package main

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"google.golang.org/grpc/connectivity"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/storetest"
)

// A scrape of a replica that has decided something is what Prometheus reads, and
// holds what dashboards and alerts look at, from the start.
func TestMetrics_P29_AScrapeOfARunningReplicaParses(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")
	a := r.addresses(t)
	etcd, err := store.Connect(store.Config{Endpoints: []string{a.Etcd}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	putDocuments(t, etcd)
	conn := connect(t, a.GRPC)
	eventually(t, "an admitted request", func() bool { return admits(t, conn, "org:acme") })
	code, body := get(t, "http://"+a.Metrics+"/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil || code != 200 {
		t.Fatalf("%d, %v:\n%s", code, err, body)
	}
	for _, name := range []string{
		"mete_decisions_total", "mete_decision_duration_seconds", "mete_unavailable_decisions_total", "mete_overshoot_units_total",
		"mete_lease_requests_total", "mete_lease_granted_units_total", "mete_lease_wait_seconds", "mete_store_up", "mete_store_writable", "mete_replicas",
		"mete_config_revision", "mete_config_rejected_documents", "mete_config_apply_delay_seconds", "mete_cached_tenants",
		"mete_undecided_calls_total", "mete_evicted_tenants_total", "mete_purses", "mete_build_info",
	} {
		if f := families[name]; f == nil || len(f.GetMetric()) == 0 || f.GetHelp() == "" {
			t.Errorf("%s is missing", name)
		}
	}
	if n := families["mete_config_apply_delay_seconds"].GetMetric()[0].GetHistogram().GetSampleCount(); n == 0 {
		t.Error("documents were applied, and no delay was observed")
	}
	_, _ = conn.Close(), etcd.Close()
	if err := r.stop(t); err != nil {
		t.Errorf("%v\n%s", err, r.log)
	}
}

// A connection of max-connection-age is asked to go, so that Envoy finds new
// replicas; with 0 the gRPC server is told never to ask.
func TestMaxConnectionAge_P32_EndsConnections(t *testing.T) {
	defer goleak.VerifyNone(t)
	keeper := quota.NewKeeper(quota.KeeperConfig{Store: &storetest.Memory{}, Now: time.Now}, "r1")
	m := newMete(settings{}, zerolog.Nop(), nil)
	m.decider = authz.New(authz.Config{Keeper: keeper, Now: time.Now})
	m.cfg.MaxStreams = 10
	if got := m.envoyOptions(nil).MaxConnectionAge; got >= 0 {
		t.Errorf("without a setting: %v", got)
	}
	m.cfg.MaxConnectionAge = 100 * time.Millisecond // less than settings may say
	srv := envoy.NewServer(m.envoyOptions(make(chan struct{})))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	conn := connect(t, l.Addr().String())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	healthOf(t, conn, "")
	for state := conn.GetState(); state != connectivity.Idle; state = conn.GetState() {
		if !conn.WaitForStateChange(ctx, state) {
			t.Fatalf("after 10 s the connection is %v", state)
		}
	}
	_ = conn.Close()
	srv.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// The store was restored from a backup, which changes its epoch: all purses are
// closed at once, and nothing that was leased before is spent (design 6.5). What
// was admitted is counted once.
func TestEpoch_P43_ANewOneClosesAllPurses(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")
	a := r.addresses(t)
	etcd, err := store.Connect(store.Config{Endpoints: []string{a.Etcd}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	putDocuments(t, etcd)
	conn := connect(t, a.GRPC)
	eventually(t, "an admitted request", func() bool { return admits(t, conn, "org:acme") })
	admitted := int64(1)
	before := incarnationOf(t, a)
	granted := func(n string) bool {
		_, body := get(t, "http://"+a.Metrics+"/metrics")
		return strings.Contains(body, `mete_lease_requests_total{result="granted"} `+n+"\n")
	}
	if !granted("1") {
		t.Error("not one lease")
	}
	if _, err := etcd.Put(t.Context(), store.EpochKey, "restored"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new incarnation", func() bool {
		now := incarnationOf(t, a)
		keys, err := etcd.Get(t.Context(), store.LiablePrefix+now)
		return now != before && err == nil && len(keys.Kvs) == 1
	})
	if keys, err := etcd.Get(t.Context(), store.LiablePrefix+before); err != nil {
		t.Fatal(err)
	} else if len(keys.Kvs) > 0 {
		eventually(t, "the old incarnation to be gone", func() bool {
			keys, err := etcd.Get(t.Context(), store.LiablePrefix+before)
			return err == nil && len(keys.Kvs) == 0
		})
	}
	// Nine of the ten units of the first lease were left. They are not spent, and for a
	// minute no other lease is asked for: on_unavailable, which is allow, decides (P43).
	eventually(t, "an admitted request", func() bool { return admits(t, conn, "org:acme") })
	admitted++
	if _, body := get(t, "http://"+a.Metrics+"/metrics"); !strings.Contains(body, "mete_unavailable_units_total 1\n") || !granted("1") {
		t.Error("admitted otherwise than by on_unavailable")
	}
	_, _ = conn.Close(), etcd.Close()
	if err := r.stop(t); err != nil {
		t.Fatalf("%v\n%s", err, r.log)
	}
	r.checkAccount(t, admitted)
}
