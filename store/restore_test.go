package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

func (r *replica) resetCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.resets
}

// A store that goes back in time, by a copy of its data that was put in place again,
// is a reset, though its cluster id and its epoch are the same (design 6.5).
func TestDocuments_ARevisionThatGoesBackIsAReset(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: filepath.Join(t.TempDir(), "now"), ClientURL: "127.0.0.1:0"}
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ClientURL = s.Endpoint()
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	s.Close()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	if s, err = embedded.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	c, err := store.NewCluster(store.Config{Endpoints: []string{cfg.ClientURL}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	r := startDocumentsOf(t, c, zerolog.Nop())
	defer r.stop()
	for i := range 20 {
		put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", i+2))
	}
	r.until("the last edit", hasAmount("pro", 21))
	s.Close()
	if r.resetCount() != 0 {
		t.Errorf("%d resets before it was restored", r.resetCount())
	}
	cfg.Dir = backup
	if s, err = embedded.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r.until("what the backup says", hasAmount("pro", 1))
	if r.resetCount() != 1 {
		t.Errorf("%d resets, want 1", r.resetCount())
	}
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 99))
	r.until("an edit of the restored store", hasAmount("pro", 99))
}

// C105: cut off while documents are edited and deleted and history is compacted, a
// replica decides as if it had never been away, and reads everything once.
func TestDocuments_C105_CompactionWhileCutOff(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	c := s.Client()
	for _, name := range []string{"a", "b", "c", "d"} {
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 1))
	}
	p := startProxy(t, s.Endpoint())
	cluster, err := store.NewCluster(store.Config{Endpoints: []string{p.endpoint()}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Close() }()
	var log syncBuffer
	r := startDocumentsOf(t, cluster, zerolog.New(&log))
	defer r.stop()
	r.until("all", func(s *plan.Snapshot) bool { return len(s.Names(plan.KindPlan)) == 4 })
	p.set(ends)
	for _, name := range []string{"a", "b", "c", "e"} {
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 2))
	}
	del(t, c, store.DocumentKey(plan.KindPlan, "d"))
	last := put(t, c, "/elsewhere", "")
	if _, err := c.Compact(t.Context(), last, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	p.set(flows)
	r.until("as if never away", func(s *plan.Snapshot) bool {
		return strings.Join(s.Names(plan.KindPlan), " ") == "a b c e" && amount(s, "a") == 2 && amount(s, "e") == 2
	})
	put(t, c, store.DocumentKey(plan.KindPlan, "a"), planText("a", 3))
	r.until("the next edit", hasAmount("a", 3))
	if n := strings.Count(log.String(), "reading everything"); n != 1 || r.resetCount() != 0 {
		t.Errorf("%d resets; read everything %d times, want once:\n%s", r.resetCount(), n, log.String())
	}
}

// A store without an epoch gets one: it is new, or somebody has emptied it while this
// runs, which is a reset. Several replicas agree on it.
func TestDocuments_AMissingEpochIsMadeAnew(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	del(t, c, store.EpochKey)
	a, b := startDocuments(t, c, zerolog.Nop()), startDocuments(t, c, zerolog.Nop())
	eventually(t, "an epoch", func() bool { return get(t, c, store.EpochKey) != "" })
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	for _, r := range []*replica{a, b} {
		r.until("plan", hasAmount("pro", 1))
		if r.resetCount() != 0 {
			t.Errorf("%d resets of a new store", r.resetCount())
		}
	}
	before := get(t, c, store.EpochKey)
	if _, err := c.Delete(t.Context(), store.Prefix, clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another epoch", func() bool {
		now := get(t, c, store.EpochKey)
		return now != "" && now != before
	})
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	for _, r := range []*replica{a, b} {
		r.until("what was written since", hasAmount("pro", 2))
		if r.resetCount() != 1 {
			t.Errorf("%d resets, want 1", r.resetCount())
		}
	}
	made, err := c.Get(t.Context(), store.EpochKey)
	if err != nil || len(made.Kvs) != 1 || made.Kvs[0].Version != 1 {
		t.Errorf("the epoch was made more than once: %v, %v", made, err)
	}
}

// Epoch, cluster id or revision: whatever tells that the store is another one, a new
// incarnation begins, and no unit of a lease that the old one had is spent.
func TestRestore_PursesAreClosed(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 1000))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), tenantText("org:acme", "free", ""))
	members := store.NewMembers(store.ClusterOf(c), "a")
	accounts := store.NewAccounts(c)
	w := &whole{t: t}
	w.keeper = quota.NewKeeper(quota.KeeperConfig{
		Store: accounts, Now: time.Now, Gone: func(string) { members.Check() },
	}, members.Incarnation())
	w.decider = authz.New(authz.Config{Keeper: w.keeper, Now: time.Now, MaxTenants: 100})
	members.OnIncarnation = w.keeper.SetHolder
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { _ = members.Run(ctx) })
	running.Go(func() { _ = w.keeper.Run(ctx) })
	w.docs = &replica{Documents: store.NewDocuments(store.ClusterOf(c)), t: t, cancel: cancel}
	w.docs.OnReset = func() { accounts.Forget(); members.Renew() }
	running.Go(func() { _ = w.docs.Run(ctx) })

	w.docs.until("tenant", func(s *plan.Snapshot) bool { return s.Tenant("org:acme") != nil })
	eventually(t, "registered", func() bool {
		return get(t, c, store.LiableKey(members.Incarnation())) == "" && members.Live() == 1 && len(members.Replicas()) == 1
	})
	w.admit(1)
	old, granted := members.Incarnation(), w.keeper.Stats().Granted
	if granted == 0 {
		t.Fatal("nothing was lent")
	}
	put(t, c, store.EpochKey, "another")
	eventually(t, "registered again", func() bool {
		_, there := members.Replicas()[members.Incarnation()]
		return there && members.Incarnation() != old
	})
	w.docs.until("tenant", func(s *plan.Snapshot) bool { return s.Tenant("org:acme") != nil })
	w.admit(1)
	if now := w.keeper.Stats().Granted; now <= granted {
		t.Errorf("%d grants before and after: a lease of the old store was spent", now)
	}
	for _, e := range list(t, accounts) {
		for _, h := range e.Account.Holders {
			if h.ID == members.Incarnation() {
				return
			}
		}
	}
	t.Errorf("%s holds nothing", members.Incarnation())
}

func list(t *testing.T, accounts *store.Accounts) []store.Entry {
	t.Helper()
	all, err := accounts.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}
