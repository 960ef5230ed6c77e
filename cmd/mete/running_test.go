package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

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

// An edge is what a test has of a running mete: its addresses, and clients.
type edge struct {
	a    addresses
	conn *grpc.ClientConn
	etcd *clientv3.Client
}

// startEdge starts a mete in a directory, where an earlier one may have run.
func startEdge(t *testing.T, dir string) (*running, *edge) {
	t.Helper()
	r := start(t, "--data-dir="+dir, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")
	r.dir = dir
	e := &edge{a: r.addresses(t)}
	e.conn = connect(t, e.a.GRPC)
	etcd, err := store.Connect(store.Config{Endpoints: []string{e.a.Etcd}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	e.etcd = etcd
	return r, e
}

// stop ends the mete in order.
func (e *edge) stop(t *testing.T, r *running) {
	t.Helper()
	_, _ = e.conn.Close(), e.etcd.Close()
	if err := r.stop(t); err != nil {
		t.Errorf("%v\n%s", err, r.log)
	}
}
