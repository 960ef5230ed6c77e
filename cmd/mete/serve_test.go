package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// TestServe goes through the life of a replica: an empty data directory, ready,
// draining, stopped, with nothing left behind.
func TestServe(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=500ms", "--name=eu-1")
	a := r.addresses(t)
	r.checkReady(t, a)
	conn := connect(t, a.GRPC)
	checkHealth(t, conn, "SERVING")
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(t.Context(), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	hear(t, watch, grpc_health_v1.HealthCheckResponse_SERVING)

	began := time.Now()
	r.end <- syscall.SIGTERM
	hear(t, watch, grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	checkHealth(t, conn, "NOT_SERVING")
	if code, _ := get(t, "http://"+a.Metrics+"/readyz"); code != 503 {
		t.Errorf("draining: readyz %d", code)
	}
	if code, _ := get(t, "http://"+a.Metrics+"/livez"); code != 200 {
		t.Errorf("draining: livez %d", code)
	}
	if err := r.wait(t); err != nil {
		t.Errorf("stop: %v\n%s", err, r.log)
	}
	if took := time.Since(began); took < 500*time.Millisecond || took > 30*time.Second {
		t.Errorf("the stop took %v", took)
	}
	_ = conn.Close()
	r.checkNothingLeft(t)
}

func (r *running) checkReady(t *testing.T, a addresses) {
	t.Helper()
	for name, addr := range map[string]string{"grpc": a.GRPC, "admin": a.Admin, "metrics": a.Metrics, "etcd": a.Etcd} {
		if _, port, err := net.SplitHostPort(addr); err != nil || port == "0" {
			t.Errorf("%s: address %q", name, addr)
		}
	}
	if info, err := os.Stat(r.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("data directory: %v, %v", info.Mode(), err)
	}
	if code, body := get(t, "http://"+a.Metrics+"/readyz?verbose"); code != 200 || !strings.Contains(body, "[ok] etcd reachable") {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, body := get(t, "http://"+a.Metrics+"/metrics"); code != 200 || !strings.Contains(body, "mete_store_up 1") || !strings.Contains(body, "mete_replicas 1") {
		t.Errorf("metrics: %d %s", code, body)
	}
	if code, body := get(t, "http://"+a.Admin+"/v1/status"); code != 200 || !strings.Contains(body, "eu-1-") {
		t.Errorf("status: %d %s", code, body)
	}
	if code, _ := get(t, "http://"+a.Metrics+"/debug/pprof/"); code != 404 {
		t.Errorf("pprof without --pprof: %d", code)
	}
}

func checkHealth(t *testing.T, conn *grpc.ClientConn, want string) {
	t.Helper()
	for _, service := range []string{"", "envoy.service.auth.v3.Authorization", "envoy.service.ratelimit.v3.RateLimitService"} {
		if got := healthOf(t, conn, service); got != want {
			t.Errorf("health of %q: %s, want %s", service, got, want)
		}
	}
}

func (r *running) checkNothingLeft(t *testing.T) {
	t.Helper()
	if left, _ := filepath.Glob(filepath.Join(r.dir, addressesFile+"*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	for line := range strings.Lines(r.log.String()) {
		// Etcd tries to write its storage version before it has a term.
		if strings.Contains(line, `"level":"error"`) && !strings.Contains(line, "failed to update storage version") {
			t.Errorf("logged: %s", line)
		}
	}
	// Nobody waits for keys of a replica that is gone.
	if left := keysIn(t, r.dir, store.ReplicasPrefix, store.LiablePrefix); len(left) > 0 {
		t.Errorf("left in etcd: %v", left)
	}
}

func hear(t *testing.T, watch grpc.ServerStreamingClient[grpc_health_v1.HealthCheckResponse], want grpc_health_v1.HealthCheckResponse_ServingStatus) {
	t.Helper()
	got, err := watch.Recv()
	if err != nil || got.GetStatus() != want {
		t.Fatalf("health watch: %v, %v, want %v", got, err, want)
	}
}

// TestEtcdComesLater: alive but not ready without etcd, every API answers, and
// ready once the documents are read (C149).
func TestEtcdComesLater(t *testing.T) {
	defer goleak.VerifyNone(t)
	// Before it is ready there is no addresses.json to find a port in.
	endpoint, metricsAddr, grpcAddr := freeAddress(t), freeAddress(t), freeAddress(t)
	r := start(t, "--etcd-endpoints=http://"+endpoint, "--drain-delay=0", "--metrics-listen="+metricsAddr, "--grpc-listen="+grpcAddr)
	eventually(t, "livez", func() bool { code, _ := get(t, "http://"+metricsAddr+"/livez"); return code == 200 })
	if code, body := get(t, "http://"+metricsAddr+"/readyz?verbose"); code != 503 || !strings.Contains(body, "[fail] documents read once") || !strings.Contains(body, "[degraded] etcd reachable") {
		t.Errorf("readyz: %d %s", code, body)
	}
	if code, body := get(t, "http://"+metricsAddr+"/metrics"); code != 200 || !strings.Contains(body, "mete_store_up 0") {
		t.Errorf("metrics: %d, mete_store_up 0 is missing", code)
	}
	conn := connect(t, grpcAddr)
	if got := healthOf(t, conn, ""); got != "NOT_SERVING" {
		t.Errorf("health: %s", got)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	checked, err := authv3.NewAuthorizationClient(conn).Check(ctx, &authv3.CheckRequest{})
	if err == nil && checked.GetStatus().GetCode() == 0 {
		t.Errorf("a check without documents is allowed: %v", checked)
	}
	entry := &ratelimitcommonv3.RateLimitDescriptor{Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "tenant", Value: "org:acme"}}}
	limited, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &ratelimitv3.RateLimitRequest{
		Domain: "x", Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{entry},
	})
	if err == nil {
		t.Errorf("RLS without documents: %v", limited)
	}
	if _, err := os.Stat(filepath.Join(r.dir, addressesFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("addresses.json before the replica is ready: %v", err)
	}

	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: endpoint, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	r.addresses(t)
	if code, body := get(t, "http://"+metricsAddr+"/readyz?verbose"); code != 200 || !strings.Contains(body, "[ok] etcd reachable") {
		t.Errorf("with etcd: readyz %d %s", code, body)
	}
	if got := healthOf(t, conn, ""); got != "SERVING" {
		t.Errorf("with etcd: health %s", got)
	}

	// Etcd goes away: ready all the same.
	s.Close()
	if code, body := get(t, "http://"+metricsAddr+"/readyz"); code != 200 {
		t.Errorf("without etcd: readyz %d %s", code, body)
	}
	_ = conn.Close()
	if err := r.stop(t); err != nil {
		t.Errorf("stop without etcd and with nothing to settle: %v", err)
	}
}

// TestServeTLS: the gRPC API speaks TLS, SIGHUP takes a new certificate into force,
// and the metric tells which.
func TestServeTLS(t *testing.T) {
	defer goleak.VerifyNone(t)
	ca := newAuthority(t, "ca")
	d := newTLSDir(t, ca)
	r := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0", "--tls-cert="+d.TLSCert, "--tls-key="+d.TLSKey)
	a := r.addresses(t)
	client := &tls.Config{RootCAs: pool(ca), MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	if got := serial(t, a.GRPC, client); got != 1 {
		t.Errorf("certificate %d, want 1", got)
	}
	if got := serial(t, a.Admin, client); got != 1 {
		t.Errorf("admin: certificate %d, want 1", got)
	}
	plain := connect(t, a.GRPC)
	if got := healthOf(t, plain, ""); got == "SERVING" {
		t.Error("plain text is answered")
	}
	_ = plain.Close()
	d.renew(t, ca, 2)
	r.hup <- syscall.SIGHUP
	eventually(t, "the new certificate", func() bool { return serial(t, a.GRPC, client) == 2 })
	_, metrics := get(t, "http://"+a.Metrics+"/metrics")
	want := "mete_tls_certificate_not_after_timestamp_seconds{use=\"server\"} " + strconv.FormatFloat(float64(d.notAfter.Unix()), 'g', -1, 64)
	if !strings.Contains(metrics, want) {
		t.Errorf("no %s", want)
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

func TestStartFails(t *testing.T) {
	defer goleak.VerifyNone(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = taken.Close() }()
	for _, row := range []struct{ flag, want string }{
		{"--grpc-listen=" + taken.Addr().String(), "grpc-listen: listen tcp"},
		{"--metrics-listen=" + taken.Addr().String(), "metrics-listen: listen tcp"},
		{"--etcd-listen=" + taken.Addr().String(), "address already in use"},
	} {
		r := start(t, "--etcd-listen=127.0.0.1:0", row.flag)
		if err := r.wait(t); err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: got %v, want %s", row.flag, err, row.want)
		}
	}
}
