package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/meteproject/mete/store"
)

// etcdIsOpen begins the one line about an embedded etcd that the whole machine reaches.
const etcdIsOpen = "the embedded etcd has no password"

// The embedded etcd on a unix socket is for its user alone from the first moment, is found
// by addresses.json, and leaves nothing behind.
func TestServe_EtcdOnAUnixSocket(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := socketDir(t)
	path := filepath.Join(dir, "run", "etcd.sock")
	for range 2 { // the second in the folder that the first has made
		r := start(t, "--etcd-listen=unix://"+path, "--drain-delay=0")
		a := r.addresses(t)
		if a.Etcd != "unix://"+path {
			t.Errorf("addresses.json names etcd at %q, want unix://%s", a.Etcd, path)
		}
		for name, want := range map[string]os.FileMode{path: os.ModeSocket | 0o600, filepath.Dir(path): os.ModeDir | 0o700} {
			if info, err := os.Lstat(name); err != nil || info.Mode() != want {
				t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
			}
		}
		c, err := store.Connect(store.Config{Endpoints: []string{a.Etcd}, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Get(t.Context(), store.EpochKey); err != nil || len(got.Kvs) != 1 {
			t.Errorf("over the socket: %v, %v", got, err)
		}
		_ = c.Close()
		if err := r.stop(t); err != nil {
			t.Errorf("stop: %v\n%s", err, r.log)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("the socket is left behind: %v", err)
		}
		if strings.Contains(r.log.String(), etcdIsOpen) {
			t.Errorf("warned of an open etcd:\n%s", r.log)
		}
	}
}

// On loopback, the default, one line says what follows.
func TestServe_EtcdOnLoopbackSaysWhoReachesIt(t *testing.T) {
	r := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")
	r.addresses(t)
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
	if got := strings.Count(r.log.String(), etcdIsOpen); got != 1 {
		t.Errorf("said %d times, want once:\n%s", got, r.log)
	}
}

// A folder that others may enter is left as it is: the mode of the socket keeps them out.
func TestServe_EtcdSocketLeavesItsFolderAlone(t *testing.T) {
	dir := socketDir(t)
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // that is the point
		t.Fatal(err)
	}
	r := start(t, "--etcd-listen=unix://"+dir+"/etcd.sock", "--drain-delay=0")
	r.addresses(t)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the folder: %v, %v", info.Mode(), err)
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}
