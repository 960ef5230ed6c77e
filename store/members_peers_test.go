package store_test

import (
	"context"
	"encoding/json"
	"maps"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// A peer is a member, and what OnPeers was told.
type peer struct {
	*store.Members
	stop func()

	mu    sync.Mutex
	told  []map[uint64]string
	lives []int
}

func startPeer(t *testing.T, c *clientv3.Client, name string, p store.Presence) *peer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	m := &peer{Members: store.NewMembers(store.ClusterOf(c), name)}
	m.PresenceTTL, m.Presence = time.Minute, p
	m.OnPeers = func(peers map[uint64]string) { m.mu.Lock(); defer m.mu.Unlock(); m.told = append(m.told, peers) }
	m.OnLive = func(n int) { m.mu.Lock(); defer m.mu.Unlock(); m.lives = append(m.lives, n) }
	var done sync.WaitGroup
	done.Go(func() { _ = m.Run(ctx) })
	m.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(m.stop)
	return m
}

// sees waits until m has been told of these peers, and answers so.
func (m *peer) sees(t *testing.T, want map[uint64]string) {
	t.Helper()
	eventually(t, "told of the peers", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.told) > 0 && maps.Equal(m.told[len(m.told)-1], want)
	})
	if got := m.Peers(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func (m *peer) live(t *testing.T, n int) {
	t.Helper()
	eventually(t, "told how many live", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return len(m.lives) > 0 && m.lives[len(m.lives)-1] == n
	})
}

func (m *peer) times() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.told)
}

const (
	processA, processB = "00000000000000a1", "ffffffffffffffb2"
	numberA, numberB   = 0xa1, 0xffffffffffffffb2
)

// Replicas find each other by their processes: joins and leaves are told at once, each
// change once, and a new incarnation of a process is the same peer.
func TestMembers_A26_PeersByProcess(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startPeer(t, c, "a", store.Presence{Address: "10.0.0.1:9001", Process: processA})
	a.sees(t, map[uint64]string{numberA: "10.0.0.1:9001"})
	b := startPeer(t, c, "b", store.Presence{Address: "10.0.0.2:9001", Process: processB})
	both := map[uint64]string{numberA: "10.0.0.1:9001", numberB: "10.0.0.2:9001"}
	a.sees(t, both)
	b.sees(t, both)
	eventually(t, "stored", func() bool {
		p, there := a.Replicas()[b.Incarnation()]
		return there && p.Process == processB
	})
	old := b.Incarnation()
	b.Renew()
	eventually(t, "another incarnation", func() bool {
		_, before := a.Replicas()[old]
		_, there := a.Replicas()[b.Incarnation()]
		return there && !before
	})
	a.sees(t, both)
	told := a.times()
	b.stop()
	a.sees(t, map[uint64]string{numberA: "10.0.0.1:9001"})
	if a.times() != told+1 {
		t.Errorf("told %v", a.told)
	}
}

// Presences of older versions, and what cannot be read, are replicas without a process.
func TestMembers_A26_PeersWithoutAProcess(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startPeer(t, c, "a", store.Presence{Address: "10.0.0.1:9001", Process: processA})
	own := map[uint64]string{numberA: "10.0.0.1:9001"}
	a.sees(t, own)
	others := map[string]string{
		"old":     `{"address":"10.0.0.2:9001","version":"v1","feature_level":1,"clock":"2026-11-01T00:00:00Z"}`,
		"garbage": "\x08\x01", "empty": "", "short": `{"address":"10.0.0.3:9001","process":"a1"}`,
		"long":    `{"address":"10.0.0.3:9001","process":"0` + processA + `"}`,
		"upper":   `{"address":"10.0.0.3:9001","process":"FFFFFFFFFFFFFFB2"}`,
		"sign":    `{"address":"10.0.0.3:9001","process":"+0000000000000a1"}`,
		"number":  `{"process":5,"address":"10.0.0.3:9001"}`,
		"nowhere": `{"process":"` + processB + `"}`,
	}
	for id, value := range others {
		put(t, c, store.ReplicaKey(id), value)
	}
	a.live(t, 1+len(others))
	if got := a.Peers(); !maps.Equal(got, own) || a.times() != 1 {
		t.Errorf("got %v, told %v", got, a.told)
	}
	put(t, c, store.ReplicaKey("old"), `{"address":"10.0.0.2:9001","process":"`+processB+`","colour":"red"}`)
	a.sees(t, map[uint64]string{numberA: "10.0.0.1:9001", numberB: "10.0.0.2:9001"})
}

// A replica that has no process of its own to tell is no peer, and finds the others.
func TestMembers_A26_AReplicaWithoutAProcessIsNoPeer(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startPeer(t, c, "a", store.Presence{Address: "10.0.0.1:9001"})
	a.live(t, 1)
	eventually(t, "registered", func() bool { return len(a.Replicas()) == 1 })
	b, err := json.Marshal(a.Replicas()[a.Incarnation()])
	if err != nil || len(a.Peers()) != 0 || a.times() != 0 {
		t.Errorf("%s: peers %v, told %v, %v", b, a.Peers(), a.told, err)
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil || fields["process"] != nil || fields["address"] == nil {
		t.Errorf("%s, %v", b, err)
	}
	put(t, c, store.ReplicaKey("b"), `{"address":"10.0.0.2:9001","process":"`+processB+`"}`)
	a.sees(t, map[uint64]string{numberB: "10.0.0.2:9001"})
}

// Of two presences of a process the one that was put last tells the address, whatever
// their clocks say, in whichever order they are read; the last one to go takes it along.
func TestMembers_A26_OfTwoIncarnationsTheNewestTellsTheAddress(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	tell := func(id, address, clock string) {
		put(t, c, store.ReplicaKey(id), `{"address":"`+address+`","process":"`+processB+`","clock":"`+clock+`"}`)
	}
	tell("b-z", "10.0.0.2:9001", "2026-11-01T00:00:00Z")
	tell("b-a", "10.0.0.3:9001", "2025-11-01T00:00:00Z")
	a := startPeer(t, c, "a", store.Presence{})
	a.sees(t, map[uint64]string{numberB: "10.0.0.3:9001"})
	tell("b-m", "10.0.0.4:9001", "2024-11-01T00:00:00Z")
	a.sees(t, map[uint64]string{numberB: "10.0.0.4:9001"})
	told := a.times()
	del(t, c, store.ReplicaKey("b-z"))
	a.live(t, 3)
	if a.times() != told {
		t.Errorf("told %v", a.told[told:])
	}
	del(t, c, store.ReplicaKey("b-m"))
	a.sees(t, map[uint64]string{numberB: "10.0.0.3:9001"})
	del(t, c, store.ReplicaKey("b-a"))
	a.sees(t, map[uint64]string{})
}

// Before anything was read a replica knows itself.
func TestMembers_A26_PeersBeforeTheFirstRead(t *testing.T) {
	t.Parallel()
	m := store.NewMembers(store.ClusterOf(clientv3.NewCtxClient(t.Context())), "a")
	m.Presence = store.Presence{Address: "10.0.0.1:9001", Process: processA}
	peers := m.Peers()
	if !maps.Equal(peers, map[uint64]string{numberA: "10.0.0.1:9001"}) {
		t.Errorf("got %v", peers)
	}
	peers[numberB] = "x" // it is the caller's
	if len(m.Peers()) != 1 {
		t.Errorf("got %v", m.Peers())
	}
}

// Replicas hear which live one remembers what processes before it have settled: of several
// the latest, and themselves before anybody else does.
func TestMembers_C134_Successors(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	const first, second = "00000000000000c1", "00000000000000c2"
	m := store.NewMembers(store.ClusterOf(c), "a")
	var mu sync.Mutex
	var told map[uint64]uint64
	m.OnSuccessors = func(after map[uint64]uint64) { mu.Lock(); defer mu.Unlock(); told = after }
	m.Presence = store.Presence{Address: "10.0.0.1:9001", Process: processA, Before: []string{first, "x", processA}}
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = m.Run(ctx) })
	defer done.Wait()
	defer cancel()
	sees := func(what string, want map[uint64]uint64) {
		t.Helper()
		eventually(t, what, func() bool { mu.Lock(); defer mu.Unlock(); return maps.Equal(told, want) })
	}
	sees("itself", map[uint64]uint64{0xc1: numberA})
	put(t, c, store.ReplicaKey("b"), `{"address":"10.0.0.2:9001","process":"`+processB+`","before":["`+first+`","`+second+`"]}`)
	sees("another one", map[uint64]uint64{0xc1: numberA, 0xc2: numberB})
	put(t, c, store.ReplicaKey("d"), `{"address":"10.0.0.4:9001","process":"00000000000000d4","before":["`+second+`"]}`)
	sees("a later one", map[uint64]uint64{0xc1: numberA, 0xc2: 0xd4})
	del(t, c, store.ReplicaKey("d"))
	sees("the one that is left", map[uint64]uint64{0xc1: numberA, 0xc2: numberB})
}
