package store_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// startCluster starts an etcd of three members. It returns their endpoints, and
// what stops the leader without a word.
func startCluster(t *testing.T) (endpoints []string, stopLeader func()) {
	t.Helper()
	const n = 3
	urls := freeURLs(t, 2*n)
	initial := ""
	for i := range n {
		initial += fmt.Sprintf(",m%d=%s", i, urls[i].String())
	}
	members, stops := make([]*embed.Etcd, n), make([]func(), n)
	for i := range n {
		c := embed.NewConfig()
		c.Name, c.Dir, c.LogLevel = fmt.Sprint("m", i), t.TempDir(), "fatal"
		c.ListenPeerUrls, c.AdvertisePeerUrls = urls[i:i+1], urls[i:i+1]
		c.ListenClientUrls, c.AdvertiseClientUrls = urls[n+i:n+i+1], urls[n+i:n+i+1]
		c.InitialCluster, c.EnableGRPCGateway = initial[1:], false
		c.TickMs, c.ElectionMs = 20, 200
		c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
		e, err := embed.StartEtcd(c)
		if err != nil {
			t.Fatal(err)
		}
		members[i], stops[i] = e, sync.OnceFunc(e.Close)
		t.Cleanup(stops[i])
		endpoints = append(endpoints, urls[n+i].Host)
	}
	for _, e := range members {
		<-e.Server.ReadyNotify()
	}
	return endpoints, func() {
		for i, e := range members {
			if e.Server.Leader() == e.Server.MemberID() {
				e.Server.HardStop()
				stops[i]()
				return
			}
		}
	}
}

func freeURLs(t *testing.T, n int) []url.URL {
	t.Helper()
	urls := make([]url.URL, n)
	for i := range urls {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		urls[i] = url.URL{Scheme: "http", Host: l.Addr().String()}
	}
	return urls
}

// C110: the leader goes, and membership, documents and accounts go on.
func TestTheLeaderGoes(t *testing.T) {
	endpoints, stopLeader := startCluster(t)
	c, err := store.Connect(store.Config{Endpoints: endpoints, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	cluster, err := store.NewCluster(store.Config{Endpoints: endpoints, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cluster.Close() }()
	m := startMemberOf(t, cluster, "a", time.Second)
	defer m.stop()
	r := startDocumentsOf(t, cluster, zerolog.Nop())
	defer r.stop()
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r.until("plan", hasAmount("pro", 1))
	eventually(t, "registered", func() bool { return len(m.Replicas()) == 1 && len(m.incarnations()) == 1 })
	id := m.Incarnation()
	accounts := store.NewAccounts(cluster)
	op := quota.Operation{Key: quota.Key{Tenant: "org:a"}, Holder: id, Seq: 1, Want: 5, Min: 1, Ceiling: 100}
	apply(t, accounts, op)

	stopLeader()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	op.Seq, op.Used = 2, 3
	got, err := accounts.Apply(ctx, op)
	if want := (quota.Result{Granted: 5, Left: 92, Used: 3, Leased: 5, Seq: 2, Own: 3}); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if _, err := c.Put(ctx, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2)); err != nil {
		t.Fatal(err)
	}
	r.until("edit without the old leader", hasAmount("pro", 2))
	time.Sleep(2 * m.PresenceTTL) // its lease would have run out
	eventually(t, "still registered", func() bool { return len(m.Replicas()) == 1 && m.Live() == 1 })
	if m.Incarnation() != id {
		t.Errorf("incarnation %s, was %s: its liable key was never gone", m.Incarnation(), id)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.resets != 0 {
		t.Errorf("%d resets, want none", r.resets)
	}
}
