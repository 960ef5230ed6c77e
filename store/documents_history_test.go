package store_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// A client over TCP has a watcher of its own, and outlives a server's restart.
func TestDocumentsOverTCPOutliveARestartOfEtcd(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0"}
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ClientURL = s.Endpoint()
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	c, err := store.Connect(store.Config{Endpoints: []string{cfg.ClientURL}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r := startDocuments(t, c, zerolog.Nop())
	defer r.stop()
	r.until("plan", hasAmount("pro", 1))
	s.Close()
	if amount(r.Snapshot(), "pro") != 1 {
		t.Error("without etcd the plan is forgotten")
	}
	s, err = embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("edit after the restart", hasAmount("pro", 2))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resets != 0 {
		t.Errorf("a restart is no reset, but there were %d", r.resets)
	}
}

// A store with another history at the same address is a reset.
func TestAnotherStoreIsAReset(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0"}
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg = embedded.Config{Dir: t.TempDir(), ClientURL: s.Endpoint()}
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "old"), planText("old", 1))
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	c, err := store.Connect(store.Config{Endpoints: []string{cfg.ClientURL}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r := startDocuments(t, c, zerolog.Nop())
	defer r.stop()
	r.until("plan", hasAmount("pro", 1))
	s.Close()
	s, err = embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("the new store's documents alone", func(snap *plan.Snapshot) bool {
		return amount(snap, "pro") == 2 && snap.Plan("old") == nil
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resets == 0 {
		t.Error("no reset")
	}
}

// C105.
func TestCompactionWhileAway(t *testing.T) {
	c := ownServer(t).Client()
	for _, name := range []string{"a", "b", "c", "d"} {
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 1))
	}
	var cut cutWatcher
	cut.Watcher = c.Watcher
	away := clientv3.NewCtxClient(t.Context())
	away.KV, away.Watcher = c.KV, &cut
	r := startDocuments(t, away, zerolog.Nop())
	r.until("all", func(s *plan.Snapshot) bool { return len(s.Names(plan.KindPlan)) == 4 })
	cut.cut(true)
	for _, name := range []string{"a", "b", "c", "e"} {
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 2))
	}
	del(t, c, store.DocumentKey(plan.KindPlan, "d"))
	last := put(t, c, "/elsewhere", "")
	if _, err := c.Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	cut.cut(false)
	r.until("as if never away", func(s *plan.Snapshot) bool {
		return strings.Join(s.Names(plan.KindPlan), " ") == "a b c e" && amount(s, "a") == 2 && amount(s, "e") == 2
	})
}

// cutWatcher ends its watches, and begins no new ones, while it is cut.
type cutWatcher struct {
	clientv3.Watcher
	mu     sync.Mutex
	isCut  bool
	cancel []context.CancelFunc
}

func (w *cutWatcher) cut(is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = is
	for _, cancel := range w.cancel {
		cancel()
	}
	w.cancel = nil
}

func (w *cutWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.isCut {
		// A cut network: the caller believes in its old revision.
		ch := make(chan clientv3.WatchResponse)
		close(ch)
		return ch
	}
	ctx, cancel := context.WithCancel(ctx)
	w.cancel = append(w.cancel, cancel)
	return w.Watcher.Watch(ctx, key, opts...)
}

func TestAnotherEpochIsAReset(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r.until("plan", hasAmount("pro", 1))
	put(t, c, store.EpochKey, "another")
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("edit", hasAmount("pro", 2))
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resets != 1 {
		t.Errorf("%d resets, want 1", r.resets)
	}
}
