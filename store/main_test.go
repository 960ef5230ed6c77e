package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// server is the one etcd of this test binary; tests use keys of their own.
var server *embedded.Server

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "mete-store")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	server, err = embedded.Start(context.Background(), embedded.Config{Dir: dir, ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	server.Close()
	// A member's side of a connection that forwarded a keepalive may hang for the 5 s
	// of its read timeout; goleak waits for less than one. A member that is asked for
	// its version while it closes waits for its closed database for ever.
	asked := goleak.IgnoreAnyFunction("go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp.newPeerHandler.versionHandler.func1")
	for end := time.Now().Add(10 * time.Second); ; {
		if err = goleak.Find(asked); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// ownServer starts an etcd for one test, for those that need all keys.
func ownServer(t *testing.T) *embedded.Server {
	t.Helper()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func put(t *testing.T, c *clientv3.Client, key, value string) int64 {
	t.Helper()
	r, err := c.Put(t.Context(), key, value)
	if err != nil {
		t.Fatal(err)
	}
	return r.Header.Revision
}

func del(t *testing.T, c *clientv3.Client, key string) {
	t.Helper()
	if _, err := c.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
}

// get returns the value of a key, "" if it does not exist. An etcd that is starved, and so
// elects itself again, is asked again: a read changes nothing.
func get(t *testing.T, c *clientv3.Client, key string) string {
	t.Helper()
	r, err := c.Get(t.Context(), key)
	for end := time.Now().Add(patience); err != nil && t.Context().Err() == nil && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		r, err = c.Get(t.Context(), key)
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return ""
	}
	return string(r.Kvs[0].Value)
}

func asPartial(err error, to **store.PartialError) bool { return errors.As(err, to) }
