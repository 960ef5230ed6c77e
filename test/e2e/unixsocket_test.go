package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// bySocket has Envoy reach mete at a unix socket: a pipe, which no name is looked up for.
func bySocket(path string) func(string) string {
	names := regexp.MustCompile(`(- name: mete(?:_log)?\n\s+type:) STRICT_DNS`)
	hosts := regexp.MustCompile(`(cluster_name: mete(?:_log)?\n\s+endpoints: .*address: \{)socket_address: \{[^}]*\}`)
	return func(config string) string {
		config = names.ReplaceAllString(config, "$1 STATIC")
		return hosts.ReplaceAllString(config, "${1}pipe: {path: "+path+"}")
	}
}

// Envoy asks mete over a unix socket, checks and log alike, and does so again once a mete that
// was killed is started again over the socket that it has left (P33).
func TestUnixSocket_P33_ChecksAndTheLog(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "mete") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "mete.sock")
	args := []string{"--grpc-listen", "unix://" + path}
	w := newWorld(t, args, bySocket(path))
	a := newApp(t, w, "monthly: {kind: quota, amount: 4, reset: {calendar: month}}", "headers: {x_quota: true}")
	wantHeader(t, a.admit(t, 1), "X-Quota-Used", "1")
	if r := a.get(t, "/status/500"); r.status != http.StatusInternalServerError {
		t.Fatalf("got %d %s", r.status, r.body)
	}
	eventually(t, "the failed request is given back", func() bool { return a.get(t, "/status/500").header.Get("X-Quota-Used") == "2" })

	if err := w.mete.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := w.startMete(t.Context(), w.mete.DataDir, args...); err != nil {
		t.Fatal(err)
	}
	eventually(t, "Envoy has found the new socket", func() bool { return a.get(t, "/status/500").status == http.StatusInternalServerError })
	eventually(t, "failed requests are given back by it", func() bool { return a.get(t, "/status/500").header.Get("X-Quota-Used") == "2" })
	a.admit(t, 1)
	if err := w.mete.Stop(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("a stopped mete leaves its socket: %v", err)
	}
}
