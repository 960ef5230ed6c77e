package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

// socketDir is a folder with a path short enough for sockets, whatever the test is called.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "mete") //nolint:usetesting // its paths hold the test's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// overSocket does one HTTP call over the unix socket of an address and returns status and body.
func overSocket(t *testing.T, addr, method, path, body string) (int, string) {
	t.Helper()
	socket, _ := strings.CutPrefix(addr, "unix://")
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	req, err := http.NewRequest(method, "http://mete"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// A replica answers on unix sockets alone, open to its group and told by addresses.json as
// gRPC clients take them, and leaves nothing behind.
func TestServe_P33_UnixSockets(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := socketDir(t)
	want := addresses{GRPC: "unix://" + dir + "/mete.sock", Admin: "unix://" + dir + "/admin.sock", Metrics: "unix://" + dir + "/metrics.sock"}
	r := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0",
		"--grpc-listen="+want.GRPC, "--admin-listen="+want.Admin, "--metrics-listen="+want.Metrics)
	got := r.addresses(t)
	if want.Etcd = got.Etcd; got != want {
		t.Errorf("addresses.json: %+v, want %+v", got, want)
	}
	conn := connect(t, got.GRPC)
	checkHealth(t, conn, "SERVING")
	if code, body := overSocket(t, got.Admin, "GET", "/v1/status", ""); code != 200 || !strings.Contains(body, `"address": "`+want.GRPC+`"`) {
		t.Errorf("status: %d %s", code, body)
	}
	if code, body := overSocket(t, got.Metrics, "GET", "/readyz", ""); code != 200 {
		t.Errorf("readyz: %d %s", code, body)
	}
	// A client of the socket is on this machine.
	if code, body := overSocket(t, got.Metrics, "PUT", "/debug/loglevel", "warn"); code != 200 {
		t.Errorf("loglevel: %d %s", code, body)
	}
	for _, name := range []string{"mete", "admin", "metrics"} {
		info, err := os.Lstat(filepath.Join(dir, name+".sock"))
		if err != nil || info.Mode() != os.ModeSocket|0o660 {
			t.Errorf("%s.sock: %v, %v", name, info, err)
		}
	}
	_ = conn.Close()
	if err := r.stop(t); err != nil {
		t.Errorf("stop: %v\n%s", err, r.log)
	}
	r.checkNothingLeft(t)
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// One whose Envoy is beside it has a listener for the other replicas, which is where they are
// sent to; without one it says what is missing.
func TestServe_P33_A26_APeerListenerBesideTheSocket(t *testing.T) {
	defer goleak.VerifyNone(t)
	const warning = "replicas on other machines cannot reach a unix socket"
	dir := socketDir(t)
	first := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0", "--grpc-listen=unix://"+dir+"/1.sock")
	a := first.addresses(t)
	second := start(t, "--etcd-endpoints=http://"+a.Etcd, "--drain-delay=0", "--grpc-listen=unix://"+dir+"/2.sock", "--peer-listen=127.0.0.1:0")
	b := second.addresses(t)
	third := start(t, "--etcd-endpoints=http://"+a.Etcd, "--drain-delay=0", "--grpc-listen=unix://"+dir+"/3.sock")
	c := third.addresses(t)
	for _, row := range []struct {
		r      *running
		a      addresses
		at     string
		warned bool
	}{
		{first, a, a.GRPC, false}, // alone with its own etcd, as far as it knows
		{second, b, b.Peers, false},
		{third, c, c.GRPC, true},
	} {
		_, text := get(t, "http://"+row.a.Admin+"/v1/status")
		var got status
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		for _, one := range got.Replicas {
			if one.Incarnation == got.Incarnation && one.Address != row.at {
				t.Errorf("%s is advertised, want %s", one.Address, row.at)
			}
		}
		for _, addr := range []string{row.a.GRPC, row.at} {
			conn := connect(t, addr)
			checkHealth(t, conn, "SERVING")
			_ = conn.Close()
		}
		if warned := strings.Contains(row.r.log.String(), warning); warned != row.warned {
			t.Errorf("%s: warned %v, want %v", row.a.GRPC, warned, row.warned)
		}
	}
	for _, r := range []*running{third, second, first} {
		if err := r.stop(t); err != nil {
			t.Errorf("%v\n%s", err, r.log)
		}
	}
}

// deadSocket leaves the socket of a process that was killed.
func deadSocket(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
}

func TestListen_P33_OnlyADeadSocketIsReplaced(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	path := filepath.Join(dir, "mete.sock")
	deadSocket(t, path)
	l, err := listen(t.Context(), "grpc-listen", "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t.Context(), "grpc-listen", "unix://"+path); err == nil ||
		!strings.Contains(err.Error(), "grpc-listen: another process listens on "+path) {
		t.Errorf("beside a live one: %v", err)
	}
	if conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path); err != nil {
		t.Errorf("the live one is gone: %v", err)
	} else {
		_ = conn.Close()
	}
	for range 2 {
		if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("closed: %v", err)
	}

	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(t.Context(), "grpc-listen", "unix://"+path); err == nil || !strings.Contains(err.Error(), "is not a socket") {
		t.Errorf("over a file: %v", err)
	}
	if text, _ := os.ReadFile(path); string(text) != "precious" {
		t.Errorf("the file now holds %q", text)
	}
	if _, err := listen(t.Context(), "grpc-listen", "unix://"+dir+"/none/mete.sock"); err == nil || !strings.Contains(err.Error(), "the folder of the socket, which must be there") {
		t.Errorf("in no folder: %v", err)
	}
}

// A socket that somebody else has put in the place of one's own is not taken from them.
func TestListen_P33_AForeignSocketStays(t *testing.T) {
	t.Parallel()
	path := filepath.Join(socketDir(t), "mete.sock")
	first, err := listen(t.Context(), "grpc-listen", "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := listen(t.Context(), "grpc-listen", "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = second.Close() }()
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// Of many that start at once over a dead socket one listens, and it can be reached.
func TestListen_P33_OneOfManyStarts(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	for range 20 {
		path := filepath.Join(dir, "mete.sock")
		deadSocket(t, path)
		var wg sync.WaitGroup
		won := make(chan net.Listener, 8)
		for range cap(won) {
			wg.Go(func() {
				if l, err := listen(t.Context(), "grpc-listen", "unix://"+path); err == nil {
					won <- l
				}
			})
		}
		wg.Wait()
		if len(won) != 1 {
			t.Fatalf("%d listen", len(won))
		}
		l := <-won
		conn, err := new(net.Dialer).DialContext(t.Context(), "unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Close(), l.Close()
	}
}

// Looking whether a socket is dead and taking its place are one step to other starts.
func TestListen_P33_WaitsForAnotherStart(t *testing.T) {
	t.Parallel()
	dir := socketDir(t)
	other, err := lockFolder(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*lockTick)
	defer cancel()
	if _, err := listen(ctx, "grpc-listen", "unix://"+dir+"/mete.sock"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("beside another start: %v", err)
	}
	other()
	l, err := listen(t.Context(), "grpc-listen", "unix://"+dir+"/mete.sock")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
}

// A folder that some other program keeps locked is told of; the start does not hang.
func TestListen_P33_WaitsForNobodyForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		unlock, err := lockFolder(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		defer unlock()
		if _, err := lockFolder(t.Context(), dir); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "stop that, or choose another folder") {
			t.Errorf("got %v", err)
		}
	})
}

// Nobody is let in between the making of the file and the setting of its mode.
func TestListen_P33_NeverOpenToOthers(t *testing.T) {
	umask := syscall.Umask(0)
	defer syscall.Umask(umask)
	path := filepath.Join(socketDir(t), "mete.sock")
	l, err := (&net.ListenConfig{Control: closeToOthers(socketMode)}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o660 {
		t.Errorf("made as %v, %v", info.Mode(), err)
	}
}

func TestCheck_P33_UnixSockets(t *testing.T) {
	long := "/" + strings.Repeat("x", maxSocketPath)
	mustCheck(t, []checked{
		{[]string{"--grpc-listen=unix:///run/g", "--admin-listen=unix:///run/a", "--metrics-listen=unix:///run/m"}, ""},
		{[]string{"--grpc-listen=unix://" + long[:maxSocketPath]}, ""},
		{[]string{"--grpc-listen=unix://" + long}, fmt.Sprintf("grpc-listen: the path of a unix socket has at most %d bytes, and %s has %d", maxSocketPath, long, len(long))},
		{[]string{"--grpc-listen=unix:///run/s", "--admin-listen=unix:///run/s"}, "admin-listen and grpc-listen are both unix:///run/s"},
		{[]string{"--grpc-listen=unix:/run/s"}, `grpc-listen "unix:/run/s" must be unix:// and an absolute path`},
		{[]string{"--grpc-listen=unix://run/s"}, "must be unix:// and an absolute path"},
		{[]string{"--grpc-listen=unix:///run//s/"}, "grpc-listen unix:///run//s/ is to be written as unix:///run/s"},
		{[]string{"--grpc-listen=unix:///run/a%20b"}, "none of %, ? and #"},
		{[]string{"--etcd-listen=unix:///run/s"}, ""},
		{[]string{"--etcd-listen=unix:run/s"}, `etcd-listen "unix:run/s" must be unix:// and an absolute path`},
		{[]string{"--etcd-listen=unix:///run/s", "--grpc-listen=unix:///run/s"}, "etcd-listen and grpc-listen are both unix:///run/s"},
		{[]string{"--peer-listen=unix:///run/s"}, "peer-listen unix:///run/s must be host:port"},
		{[]string{"--peer-listen=0.0.0.0:9004"}, "peer-listen 0.0.0.0:9004 is beyond loopback without TLS"},
		{[]string{"--peer-listen=127.0.0.1:9001"}, "grpc-listen and peer-listen are both 127.0.0.1:9001"},
		{[]string{"--advertise-address=unix:///run/s"}, "must be a host and a port"},
	})
}
