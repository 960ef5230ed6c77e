package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/protobuf/proto"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// A buffer is a bytes.Buffer that may be read while it is written to.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// anyPort are flags that let tests run side by side.
func anyPort(dir string, more ...string) []string {
	return append([]string{
		"--data-dir=" + dir, "--grpc-listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0",
	}, more...)
}

// running is a mete in this process.
type running struct {
	dir    string
	log    *buffer
	hup    chan os.Signal
	end    chan os.Signal
	exited chan int // what the second signal exits with
	done   chan error
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	r := &running{
		dir: filepath.Join(t.TempDir(), "data"), log: &buffer{},
		hup: make(chan os.Signal, 1), end: make(chan os.Signal, 2), exited: make(chan int, 1), done: make(chan error, 1),
	}
	s, err := load(t, "", nil, anyPort(r.dir, args...)...)
	if err == nil {
		err = s.check()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := process{env: env(nil), stderr: r.log, exit: func(code int) { r.exited <- code }, hup: r.hup, end: r.end}
	go func() { r.done <- serve(context.Background(), s, p) }()
	return r
}

// addresses waits until the replica says that it is ready.
func (r *running) addresses(t *testing.T) addresses {
	t.Helper()
	var a addresses
	eventually(t, "addresses.json", func() bool {
		text, err := os.ReadFile(filepath.Join(r.dir, addressesFile))
		return err == nil && json.Unmarshal(text, &a) == nil
	})
	return a
}

func (r *running) stop(t *testing.T) error {
	t.Helper()
	r.end <- syscall.SIGTERM
	return r.wait(t)
}

func (r *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.done:
		return err
	case <-time.After(30 * time.Second):
		t.Fatalf("does not stop:\n%s", r.log)
	}
	return nil
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("%s does not come", what)
}

// get returns status and body of an address.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

func connect(t *testing.T, addr string) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func healthOf(t *testing.T, conn *grpc.ClientConn, service string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	r, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: service})
	if err != nil {
		return err.Error()
	}
	return r.GetStatus().String()
}

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
	if took := time.Since(began); took < 500*time.Millisecond || took > 10*time.Second {
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

func keysIn(t *testing.T, dir string, prefixes ...string) (keys []string) {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for _, prefix := range prefixes {
		got, err := s.Client().Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			t.Fatal(err)
		}
		for _, kv := range got.Kvs {
			keys = append(keys, string(kv.Key))
		}
	}
	return keys
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
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

// TestStopSettles: what was used is in etcd after a clean stop, and nothing is out
// on lease (A32).
func TestStopSettles(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")
	a := r.addresses(t)
	etcd, err := store.Connect(store.Config{Endpoints: []string{a.Etcd}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	putDocuments(t, etcd)
	conn := connect(t, a.GRPC)
	allowed := func() bool { return admits(t, conn, "org:acme") }
	eventually(t, "an allowed request", allowed)
	for range 2 {
		if !allowed() {
			t.Error("not allowed")
		}
	}
	eventually(t, "the rejected plan", func() bool {
		_, body := get(t, "http://"+a.Admin+"/v1/status")
		return strings.Contains(body, `"name": "bad"`) && strings.Contains(body, "limmits")
	})
	_, metrics := get(t, "http://"+a.Metrics+"/metrics")
	for _, want := range []string{
		`mete_decisions_total{app="api",outcome="allowed"} 3`, `mete_config_rejected_documents{kind="Plan"} 1`,
		`mete_lease_requests_total{result="granted"} 1`, "mete_decision_duration_seconds_count", "mete_lease_wait_seconds_count 1",
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("no %s", want)
		}
	}
	_, _ = conn.Close(), etcd.Close()
	if err := r.stop(t); err != nil {
		t.Fatalf("%v\n%s", err, r.log)
	}

	r.checkAccount(t, 3)
}

// admits tells whether a request of a tenant is let through.
func admits(t *testing.T, conn *grpc.ClientConn, tenant string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	resp, err := authv3.NewAuthorizationClient(conn).Check(ctx, &authv3.CheckRequest{
		Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: "GET", Path: "/", Host: "api",
			HeaderMap: &corev3.HeaderMap{Headers: []*corev3.HeaderValue{{Key: "x-org", RawValue: []byte(tenant)}}},
		}}},
	})
	return err == nil && resp.GetStatus().GetCode() == 0 && resp.GetOkResponse() != nil
}

// TestReplicas: split limits are shared out over the replicas there are, and a
// replica whose liable key is lost goes on under a new incarnation.
func TestReplicas(t *testing.T) {
	defer goleak.VerifyNone(t)
	first := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")
	a := first.addresses(t)
	second := start(t, "--etcd-endpoints=http://"+a.Etcd, "--drain-delay=0")
	b := second.addresses(t)
	etcd, err := store.Connect(store.Config{Endpoints: []string{a.Etcd}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	putDocuments(t, etcd)
	conn := connect(t, b.GRPC)
	for _, addr := range []string{a.Metrics, b.Metrics} {
		eventually(t, "the other replica", func() bool {
			_, body := get(t, "http://"+addr+"/metrics")
			return strings.Contains(body, "mete_replicas 2\n")
		})
	}
	eventually(t, "an admitted request", func() bool { return admits(t, conn, "org:split") })
	admitted := 1
	for admitted < 20 && admits(t, conn, "org:split") {
		admitted++
	}
	if admitted != 5 {
		t.Errorf("one of two replicas admits %d of 10", admitted)
	}

	before := incarnationOf(t, b)
	if _, err := etcd.Delete(t.Context(), store.LiablePrefix+before); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a new incarnation", func() bool {
		now := incarnationOf(t, b)
		keys, err := etcd.Get(t.Context(), store.LiablePrefix+now)
		return now != before && err == nil && len(keys.Kvs) == 1
	})
	eventually(t, "a lease of the new incarnation", func() bool {
		admits(t, conn, "org:acme")
		_, body := get(t, "http://"+b.Metrics+"/metrics")
		return strings.Contains(body, `mete_lease_requests_total{result="granted"} 1`)
	})
	_, _ = conn.Close(), etcd.Close()
	for _, r := range []*running{second, first} {
		if err := r.stop(t); err != nil {
			t.Errorf("%v\n%s", err, r.log)
		}
	}
}

func incarnationOf(t *testing.T, a addresses) string {
	t.Helper()
	var s status
	if _, body := get(t, "http://"+a.Admin+"/v1/status"); json.Unmarshal([]byte(body), &s) != nil {
		t.Fatalf("status: %s", body)
	}
	return s.Incarnation
}

func putDocuments(t *testing.T, etcd *clientv3.Client) {
	t.Helper()
	for key, text := range map[string]string{
		store.DocumentKey(plan.KindApp, "api"): "apiVersion: mete/v1\nkind: App\nmetadata: {name: api}\n" +
			"spec: {time_zone: Pacific/Kiritimati, identity: {tenant: [{request_header: x-org}]}}\n",
		store.DocumentKey(plan.KindPlan, "free"): "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: free}\n" +
			"spec: {limits: {monthly: {kind: quota, amount: 1000, reset: {calendar: month}}}}\n",
		store.DocumentKey(plan.KindTenant, "org:acme"): "apiVersion: mete/v1\nkind: Tenant\nmetadata: {name: \"org:acme\"}\nspec: {plan: free}\n",
		store.DocumentKey(plan.KindPlan, "split"): "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: split}\n" +
			"spec: {limits: {hourly: {kind: rate, amount: 10, window: 1h, replicas: split}}}\n",
		store.DocumentKey(plan.KindTenant, "org:split"): "apiVersion: mete/v1\nkind: Tenant\nmetadata: {name: \"org:split\"}\nspec: {plan: split}\n",
		store.DocumentKey(plan.KindPlan, "bad"):         "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: bad}\nspec: {limmits: {}}\n",
	} {
		if _, err := etcd.Put(t.Context(), key, text); err != nil {
			t.Fatal(err)
		}
	}
}

// checkAccount looks at the only account there is.
func (r *running) checkAccount(t *testing.T, want int64) {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: r.dir, ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	got, err := s.Client().Get(t.Context(), store.AccountsPrefix, clientv3.WithPrefix())
	if err != nil || len(got.Kvs) != 1 {
		t.Fatalf("%d accounts, %v", len(got.Kvs), err)
	}
	var account metev1.Account
	if err := proto.Unmarshal(got.Kvs[0].Value, &account); err != nil {
		t.Fatal(err)
	}
	used := account.GetBase()
	for _, h := range account.GetHolders() {
		used += h.GetUsed()
		if len(h.GetLeases()) > 0 {
			t.Errorf("still out on lease: %v", h)
		}
	}
	if used != want {
		t.Errorf("used %d, want %d: %v", used, want, &account)
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

// TestStopWithoutEtcd: what was used can be reported to nobody. Neither that nor the
// replica's keys hold up a stop for long, and it says what was not settled.
func TestStopWithoutEtcd(t *testing.T) {
	t.Parallel()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	putDocuments(t, s.Client())
	r := start(t, "--etcd-endpoints=http://"+s.Endpoint(), "--drain-delay=0")
	conn := connect(t, r.addresses(t).GRPC)
	defer func() { _ = conn.Close() }()
	eventually(t, "an admitted request", func() bool { return admits(t, conn, "org:acme") })
	s.Close()
	began := time.Now()
	if err := r.stop(t); err == nil || !strings.Contains(err.Error(), "settle 1 of 1 purses") {
		t.Errorf("stop: %v", err)
	}
	if took, want := time.Since(began), settleFor+store.LeaveTimeout+5*time.Second; took > want {
		t.Errorf("stopped after %v, want at most %v", took, want)
	}
}

// TestSecondSignal: the second one ends the process at once.
func TestSecondSignal(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=2s")
	r.addresses(t)
	r.end <- syscall.SIGTERM
	eventually(t, "the stop", func() bool { return strings.Contains(r.log.String(), "stopping") })
	r.end <- os.Interrupt
	select {
	case code := <-r.exited:
		if code != 1 {
			t.Errorf("exit %d, want 1", code)
		}
	case <-time.After(time.Second):
		t.Error("the second signal is not heard")
	}
	if err := r.wait(t); err != nil { // exit did not, in this test
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

// TestProcess runs the binary: signals, exit codes, logs.
func TestProcess(t *testing.T) {
	for _, row := range []struct {
		name    string
		delay   string
		signals []os.Signal
		want    int
	}{
		{"SIGTERM", "0s", []os.Signal{syscall.SIGTERM}, 0},
		{"SIGINT", "0s", []os.Signal{os.Interrupt}, 0},
		{"SIGHUP alone ends nothing", "0s", []os.Signal{syscall.SIGHUP, syscall.SIGTERM}, 0},
		{"twice", "20s", []os.Signal{syscall.SIGTERM, syscall.SIGTERM}, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			log := &buffer{}
			cmd := exec.CommandContext(t.Context(), os.Args[0], slices.Concat([]string{"serve"}, anyPort(dir, "--etcd-listen=127.0.0.1:0", "--drain-delay="+row.delay))...)
			cmd.Env = append(os.Environ(), asMete+"=1")
			cmd.Stderr = log
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			(&running{dir: dir}).addresses(t)
			for _, s := range row.signals {
				if err := cmd.Process.Signal(s); err != nil {
					t.Fatal(err)
				}
				time.Sleep(200 * time.Millisecond) // the kernel may drop one of two signals that are pending
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != row.want {
				t.Errorf("exit %d, want %d\n%s", got, row.want, log)
			}
			for line := range strings.Lines(log.String()) {
				if !json.Valid([]byte(line)) {
					t.Errorf("not JSON: %s", line)
				}
			}
		})
	}
}
