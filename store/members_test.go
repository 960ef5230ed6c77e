package store_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

type member struct {
	*store.Members
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu  sync.Mutex
	ids []string
	ns  []int
}

func startMember(t *testing.T, c *clientv3.Client, name string, presence time.Duration) *member {
	t.Helper()
	return startMemberOf(t, store.ClusterOf(c), name, presence)
}

func startMemberOf(t *testing.T, c *store.Cluster, name string, presence time.Duration) *member {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	m := &member{Members: store.NewMembers(c, name), cancel: cancel}
	m.PresenceTTL = presence
	m.Presence = store.Presence{Address: "10.0.0.1:9001", Version: "v1"}
	m.OnIncarnation = func(id string) { m.mu.Lock(); defer m.mu.Unlock(); m.ids = append(m.ids, id) }
	m.OnLive = func(n int) { m.mu.Lock(); defer m.mu.Unlock(); m.ns = append(m.ns, n) }
	m.done.Go(func() { _ = m.Run(ctx) })
	t.Cleanup(m.stop)
	return m
}

func (m *member) stop() { m.cancel(); m.done.Wait() }

func (m *member) incarnations() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.ids...)
}

// patience is for a machine that does much else; what comes at all comes in milliseconds.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	eventuallyWithin(t, patience, what, ok)
}

func eventuallyWithin(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("not within %v: %s", limit, what)
}

func TestMembersCountEachOther(t *testing.T) {
	c := ownServer(t).Client()
	a := startMember(t, c, "a", time.Minute)
	b := startMember(t, c, "b", time.Minute)
	eventually(t, "two live", func() bool {
		return a.Live() == 2 && b.Live() == 2 && len(a.Replicas()) == 2 && a.Liable(b.Incarnation())
	})
	eventually(t, "incarnations", func() bool { return len(a.incarnations()) == 1 && len(b.incarnations()) == 1 })
	if a.Liable("somebody") {
		t.Error("who is liable")
	}
	var p store.Presence
	if err := json.Unmarshal([]byte(get(t, c, store.ReplicaKey(b.Incarnation()))), &p); err != nil || p.Address != "10.0.0.1:9001" || p.Clock.IsZero() {
		t.Errorf("presence %+v, %v", p, err)
	}
	id := b.Incarnation()
	b.stop()
	eventually(t, "one live", func() bool { return a.Live() == 1 && !a.Liable(id) })
	if get(t, c, store.LiableKey(id)) != "" || get(t, c, store.ReplicaKey(id)) != "" {
		t.Error("a clean stop left keys")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ns[len(a.ns)-1] != 1 {
		t.Errorf("OnLive was told %v", a.ns)
	}
}

// C110: a lost presence comes back under the same incarnation and counts once.
func TestLostPresenceComesBack(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startMember(t, c, "a", 2*time.Second)
	id := ""
	eventually(t, "registered", func() bool {
		id = a.Incarnation()
		return len(a.Replicas()) == 1
	})
	before := revoke(t, c, store.ReplicaKey(id))
	eventually(t, "registered again", func() bool {
		r, err := c.Get(t.Context(), store.ReplicaKey(id))
		return err == nil && len(r.Kvs) == 1 && r.Kvs[0].Lease != before
	})
	if a.Live() != 1 || a.Incarnation() != id || len(a.incarnations()) != 1 {
		t.Errorf("%d live, incarnations %v", a.Live(), a.incarnations())
	}
}

func TestLostLiableKeyIsANewIncarnation(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startMember(t, c, "a", time.Minute)
	eventually(t, "registered", func() bool { return len(a.incarnations()) == 1 && a.Live() == 1 })
	old := a.Incarnation()
	eventually(t, "liable key", func() bool {
		r, err := c.Get(t.Context(), store.LiableKey(old))
		return err == nil && len(r.Kvs) == 1
	})
	revoke(t, c, store.LiableKey(old))
	eventually(t, "a new incarnation", func() bool {
		ids := a.incarnations()
		return len(ids) == 2 && ids[1] != old && a.Incarnation() == ids[1]
	})
	eventually(t, "counted once", func() bool {
		_, stale := a.Replicas()[old]
		return !stale && a.Live() == 1
	})
	if get(t, c, store.ReplicaKey(old)) != "" {
		t.Error("the old presence is still there")
	}
}

// revoke ends the etcd lease of a key, as its end does, and returns it.
func revoke(t *testing.T, c *clientv3.Client, key string) int64 {
	t.Helper()
	r, err := c.Get(t.Context(), key)
	if err != nil || len(r.Kvs) == 0 {
		t.Fatalf("%s: %v, %v", key, r, err)
	}
	if _, err := c.Revoke(t.Context(), clientv3.LeaseID(r.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
	return r.Kvs[0].Lease
}

// Restored from a backup (design 6.5): a new incarnation begins at once, before its
// keys exist, and the old one is never told again.
func TestMembers_RenewBeginsANewIncarnationAtOnce(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startMember(t, c, "a", time.Minute)
	eventually(t, "registered", func() bool { return len(a.incarnations()) == 1 && len(a.Replicas()) == 1 })
	old := a.Incarnation()
	a.Renew()
	now := a.Incarnation()
	if ids := a.incarnations(); now == old || ids[len(ids)-1] != now {
		t.Fatalf("told %v, is %s, was %s", ids, now, old)
	}
	eventually(t, "keys of the new incarnation alone", func() bool {
		_, there := a.Replicas()[now]
		return there && get(t, c, store.ReplicaKey(old)) == "" && a.Liable(now) && !a.Liable(old) && a.Live() == 1
	})
	for range 3 {
		a.Renew()
	}
	last := a.Incarnation()
	eventually(t, "keys of the last incarnation", func() bool {
		_, there := a.Replicas()[last]
		return there && a.Live() == 1
	})
	ids := a.incarnations()
	for i, id := range ids {
		if i > 0 && id == old {
			t.Errorf("the old incarnation was told again: %v", ids)
		}
	}
	if ids[len(ids)-1] != last || a.Incarnation() != last {
		t.Errorf("told %v, is %s, want %s", ids, a.Incarnation(), last)
	}
}

// A replica whose watch is cut off hears from the store that it is gone.
func TestMembers_CheckFindsALostKeyWithoutAWatch(t *testing.T) {
	c := ownServer(t).Client()
	var cut cutWatcher
	cut.Watcher = c.Watcher
	deaf := clientv3.NewCtxClient(t.Context())
	deaf.KV, deaf.Lease, deaf.Watcher = c.KV, c.Lease, &cut
	cut.cut(true)
	a := startMember(t, deaf, "a", time.Minute)
	eventually(t, "registered", func() bool { return len(a.incarnations()) == 1 })
	old := a.Incarnation()
	del(t, c, store.LiableKey(old))
	eventually(t, "a new incarnation", func() bool {
		a.Check()
		now := a.Incarnation()
		r, err := c.Get(t.Context(), store.LiableKey(now))
		return now != old && err == nil && len(r.Kvs) == 1
	})
}

// The store's word that a replica is gone may be older than its liable key, and heard
// after it: a replica that asks is told that the incarnation goes on.
func TestMembers_CheckTellsThatAnIncarnationGoesOn(t *testing.T) {
	t.Parallel()
	a := startMember(t, ownServer(t).Client(), "a", time.Minute)
	eventually(t, "registered", func() bool { return len(a.incarnations()) == 1 && a.Liable(a.Incarnation()) })
	a.Check()
	eventually(t, "told again", func() bool { return len(a.incarnations()) == 2 })
	if ids := a.incarnations(); ids[0] != ids[1] {
		t.Errorf("told %v", ids)
	}
}

// A replica may be renewed while its first keys do not exist yet.
func TestMembers_RenewWithoutEtcd(t *testing.T) {
	t.Parallel()
	endpoint := freeURLs(t, 1)[0].Host
	c, err := store.Connect(store.Config{Endpoints: []string{endpoint}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	a := startMember(t, c, "a", time.Minute)
	defer a.stop()
	a.Renew()
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: endpoint, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	eventually(t, "registered", func() bool { return len(a.Replicas()) == 1 && a.Liable(a.Incarnation()) })
	if _, there := a.Replicas()[a.Incarnation()]; !there {
		t.Errorf("registered %v, is %s", a.Replicas(), a.Incarnation())
	}
}
