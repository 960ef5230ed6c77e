package main

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/rs/zerolog"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// What was used is in etcd after a clean stop, and nothing is out
// on lease (A32).
func TestStop_A32_C28_Settles(t *testing.T) {
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

// admits reports whether a request of a tenant is let through.
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

// What was used cannot be reported while etcd is away. Neither that nor the replica's keys
// hold up a stop for long, and it says what was not settled. With a journal nothing is
// lost by it, so that the process ends as it was asked to; without one it has failed.
func TestStopWithoutEtcd(t *testing.T) {
	t.Parallel()
	for journal, failed := range map[string]bool{"": false, "off": true} {
		t.Run("journal "+journal, func(t *testing.T) {
			t.Parallel()
			stopsWithoutEtcd(t, journal, failed)
		})
	}
}

func stopsWithoutEtcd(t *testing.T, journal string, failed bool) {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	putDocuments(t, s.Client())
	r := start(t, "--etcd-endpoints=http://"+s.Endpoint(), "--drain-delay=0", "--journal="+journal)
	conn := connect(t, r.addresses(t).GRPC)
	defer func() { _ = conn.Close() }()
	eventually(t, "an admitted request", func() bool { return admits(t, conn, "org:acme") })
	s.Close()
	began := time.Now()
	const told = "settle 1 of 1 purses"
	switch err := r.stop(t); {
	case failed && (err == nil || !strings.Contains(err.Error(), told)):
		t.Errorf("stop: %v", err)
	case !failed && (err != nil || !strings.Contains(r.log.String(), told)):
		t.Errorf("stop: %v\n%s", err, r.log)
	}
	if took, want := time.Since(began), settleFor+store.LeaveTimeout+20*time.Second; took > want {
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
	case <-time.After(10 * time.Second):
		t.Error("the second signal is not heard")
	}
	if err := r.wait(t); err != nil { // exit did not, in this test
		t.Error(err)
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
