package store_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// atOnce is for what would come after the 15 s of the document if it did not come at once:
// within a second, unless the machine does much else.
const atOnce = 10 * time.Second

// Joins and clean stops are seen at once: rate shares follow within a second, not
// within the 15 s of the document (R24, R25).
func TestMembers_R24_R25_JoinsAndStopsAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startMember(t, c, "a", 10*time.Minute)
	eventually(t, "a is registered", func() bool { return len(a.Replicas()) == 1 })
	var joined []*member
	for i, name := range []string{"b", "c", "d"} {
		began := time.Now()
		joined = append(joined, startMember(t, c, name, 10*time.Minute))
		eventually(t, name+" is counted", func() bool { return a.Live() == i+2 })
		if took := time.Since(began); took > atOnce {
			t.Errorf("%s is counted after %v", name, took)
		}
	}
	for i, m := range joined {
		began := time.Now()
		m.stop()
		eventually(t, "one less", func() bool { return a.Live() == len(joined)-i })
		if took := time.Since(began); took > atOnce {
			t.Errorf("seen after %v", took)
		}
	}
}

// A replica that falls silent is counted until its presence runs out, and no longer.
func TestMembers_R26_ASilentReplicaIsCountedUntilItsTTLEnds(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	p := startProxy(t, s.Endpoint())
	cut, err := store.NewCluster(store.Config{Endpoints: []string{p.endpoint()}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cut.Close() }()
	const ttl = 3 * time.Second
	a := startMember(t, s.Client(), "a", ttl)
	b := startMemberOf(t, cut, "b", ttl)
	eventually(t, "both are counted", func() bool { return a.Live() == 2 && b.Live() == 2 })
	presence, err := s.Client().Get(t.Context(), store.ReplicaKey(b.Incarnation()))
	if err != nil || len(presence.Kvs) != 1 {
		t.Fatal(presence, err)
	}
	p.set(hangs)
	silent := time.Now()
	lease, err := s.Client().TimeToLive(t.Context(), clientv3.LeaseID(presence.Kvs[0].Lease))
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "b is gone", func() bool { return a.Live() == 1 })
	// etcd says what is left in whole seconds, rounded down.
	if took, left := time.Since(silent), time.Duration(lease.TTL)*time.Second; took < left {
		t.Errorf("gone after %v, though it was to be counted for %v", took, left)
	}
	p.set(flows)
	eventually(t, "b is back", func() bool { return a.Live() == 2 && len(a.Replicas()) == 2 })
}

// With --presence-ttl 10m a silent replica is counted for the ten minutes of R26: that
// is what etcd, whose clock decides, is told.
func TestMembers_R26_TheTTLIsWhatTheSettingSays(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	for _, ttl := range []time.Duration{5 * time.Second, 30 * time.Second, 10 * time.Minute} {
		m := startMember(t, c, ttl.String(), ttl)
		eventually(t, "registered", func() bool { _, there := m.Replicas()[m.Incarnation()]; return there })
		r, err := c.Get(t.Context(), store.ReplicaKey(m.Incarnation()))
		if err != nil || len(r.Kvs) != 1 {
			t.Fatal(r, err)
		}
		lease, err := c.TimeToLive(t.Context(), clientv3.LeaseID(r.Kvs[0].Lease))
		if err != nil || lease.GrantedTTL != int64(ttl/time.Second) {
			t.Errorf("granted for %d s, %v; want %v", lease.GrantedTTL, err, ttl)
		}
	}
}

// Replicas with different data of time zones say so once, and again only when that
// changes.
func TestMembers_C041_ZonesDiffer(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	var log syncBuffer
	start := func(name, zones string) *store.Members {
		m := store.NewMembers(store.ClusterOf(c), name)
		m.Log = zerolog.New(&log)
		m.Presence = store.Presence{Address: name + ":1", Zones: zones}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = m.Run(ctx) }()
		t.Cleanup(func() { cancel(); <-done })
		return m
	}
	a := start("a", "2025c")
	b := start("b", "2025c")
	eventually(t, "two live", func() bool { return a.Live() == 2 && b.Live() == 2 })
	if strings.Contains(log.String(), "time zones") {
		t.Errorf("alike: %s", log.String())
	}
	start("c", "2026a")
	eventually(t, "all three say it", func() bool { return strings.Count(log.String(), `"time_zones":["2025c","2026a"]`) == 3 })
	if got := store.ZoneVersions(slices.Values([]store.Presence{{Zones: "b"}, {}, {Zones: "a"}, {Zones: "b"}})); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("%q", got)
	}
}
