package embedded_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slow is less than etcd waits for a watch to end, and far more than a start and a stop take.
const slow = 5 * time.Second

func TestServerKeepsItsDataAndEpochOverARestart(t *testing.T) {
	var log bytes.Buffer
	cfg := embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0", Log: zerolog.New(&log)}
	var epoch string
	for range 2 {
		began := time.Now()
		s, err := embedded.Start(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > slow {
			t.Errorf("ready after %v", took)
		}
		r, err := s.Client().Get(t.Context(), store.EpochKey)
		if err != nil {
			t.Fatal(err)
		}
		now := string(r.Kvs[0].Value)
		if epoch != "" && now != epoch {
			t.Errorf("epoch %q after a restart, was %q", now, epoch)
		}
		epoch = now
		began = time.Now()
		s.Close()
		s.Close()
		if took := time.Since(began); took > slow {
			t.Errorf("closed after %v", took)
		}
	}
	if log.Len() > 0 {
		t.Errorf("a quiet life logged:\n%s", log.String())
	}
}

func TestServerIsReachedOverTCP(t *testing.T) {
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := store.Connect(store.Config{Endpoints: []string{s.Endpoint()}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	if _, err := store.CheckBatching(t.Context(), zerolog.Nop(), c); err != nil {
		t.Error(err)
	}
	got, err := s.Client().Get(t.Context(), "k", clientv3.WithCountOnly())
	if err != nil || got.Count != 1 {
		t.Errorf("put over TCP: %v, %v", got, err)
	}
}

func TestCloseDoesNotWaitForWatches(t *testing.T) {
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	c, err := store.Connect(store.Config{Endpoints: []string{s.Endpoint()}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if r := <-c.Watch(t.Context(), "k", clientv3.WithCreatedNotify()); !r.Created {
		t.Fatalf("watch: %+v", r)
	}
	began := time.Now()
	s.Close()
	if took := time.Since(began); took > slow {
		t.Errorf("closed after %v", took)
	}
}

func TestSecondServerOnOneDirectoryIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, ClientURL: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	_, err = embedded.Start(t.Context(), embedded.Config{Dir: dir, ClientURL: "127.0.0.1:0"})
	if !errors.Is(err, embedded.ErrInUse) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v, want ErrInUse that names %s", err, dir)
	}
}
