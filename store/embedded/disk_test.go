package embedded_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/meteproject/mete/store/embedded"
)

// A lockedText is a log that several goroutines write.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// puts waits until a put ends as wanted: refused for want of room, or taken.
func puts(t *testing.T, s *embedded.Server, refused bool, value string) {
	t.Helper()
	var err error
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		_, err = s.Client().Put(t.Context(), "/test", value)
		if errors.Is(err, rpctypes.ErrNoSpace) == refused && (refused || err == nil) {
			return
		}
	}
	t.Fatalf("the last put: %v, want it refused: %v", err, refused)
}

// Before the disk is full etcd takes no writes, and answers reads; with room again it takes
// them. Between the two bounds nothing changes.
func TestServer_C158_AFullDiskStopsWritesAlone(t *testing.T) {
	var log lockedText
	var free atomic.Uint64
	const gib, mib = 1 << 30, 1 << 20
	free.Store(10 * gib)
	cfg := embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0", Log: zerolog.New(&log)}
	s, err := embedded.Start(t.Context(), cfg.WithSpace(func() embedded.Space { return embedded.Space{Free: free.Load(), Total: 100 * gib} }))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	puts(t, s, false, "before")
	for range 2 {
		free.Store(95 * mib)
		puts(t, s, true, "while it is full")
		if _, err := s.Client().Get(t.Context(), "/test"); err != nil {
			t.Fatalf("a read: %v", err)
		}
		free.Store(120 * mib) // neither short, nor enough to go on
		puts(t, s, true, "while it is nearly full")
		free.Store(200 * mib)
		puts(t, s, false, "with room again")
	}
	for _, said := range []string{"nearly full: it takes no writes", "has room again: it takes writes"} {
		if strings.Count(log.String(), said) != 2 {
			t.Errorf("%q is not said twice: %s", said, log.String())
		}
	}
}

// A real disk that is filled at once ends nothing: what etcd writes until it stops has its
// room beforehand.
func TestServer_C158_ARealDiskIsFilledAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "small")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=400m", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("mount: a file system of 400 MiB cannot be made here: %v: %s", err, out)
	}
	defer func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) }()
	var log lockedText
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: filepath.Join(dir, "mete"), ClientURL: "127.0.0.1:0", Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range 20 {
		puts(t, s, false, fmt.Sprint("before ", i))
	}
	filler := filepath.Join(dir, "filler")
	fill(t, filler)
	puts(t, s, true, "full")
	for range 50 {
		if _, err := s.Client().Get(t.Context(), "/test"); err != nil {
			t.Fatal(err)
		}
		puts(t, s, true, "still full")
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	puts(t, s, false, "room again")
}

// fill writes a file until the disk is full.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	for chunk := make([]byte, 1<<20); ; {
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
