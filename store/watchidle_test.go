package store_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// A store in which nobody writes has nothing to tell: that is no silence. Two healthy
// endpoints are not blamed for it, nothing is read again, and an edit comes into force as
// at any time.
func TestWatch_C185_AnIdleStoreIsNoSilentOne(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"in process", "one endpoint", "two endpoints"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			s := ownServer(t)
			publish(t, s.Client())
			var log syncBuffer
			cluster := clusterOf(t, s.Client(), zerolog.New(&log), where, s.Endpoint())
			r := startImpatient(t, cluster, zerolog.New(&log))
			r.until("plan", hasAmount("pro", 1))
			time.Sleep(3 * r.Silence)
			if got := log.String(); got != "" {
				t.Errorf("logged:\n%.2000s", got)
			}
			if h := cluster.Health(); h.Failovers != 0 || len(h.Quarantined) != 0 || !h.Up || !r.Stats().Up {
				t.Errorf("health %+v, documents %+v", h, r.Stats())
			}
			put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
			r.until("the edit", hasAmount("pro", 2))
		})
	}
}

// publish puts a plan and has it published, so that replicas that start find nothing to
// write.
func publish(t *testing.T, c *clientv3.Client) {
	t.Helper()
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r := startDocuments(t, c, zerolog.Nop())
	r.until("plan", hasAmount("pro", 1))
	eventually(t, "published", func() bool { return get(t, c, store.EffectivePrefix+"plans/pro") != "" })
	r.stop()
}

// clusterOf returns a cluster that reaches one etcd in one of three ways.
func clusterOf(t *testing.T, inProcess *clientv3.Client, log zerolog.Logger, where, endpoint string) *store.Cluster {
	t.Helper()
	endpoints := []string{endpoint}
	switch where {
	case "in process":
		return store.ClusterOf(inProcess)
	case "two endpoints":
		endpoints = append(endpoints, startProxy(t, endpoint).endpoint())
	}
	c, err := store.NewCluster(store.Config{Endpoints: endpoints, Log: log})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// startImpatient starts documents that doubt their watches after a second.
func startImpatient(t *testing.T, c *store.Cluster, log zerolog.Logger) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{Documents: store.NewDocuments(c), t: t, cancel: cancel}
	r.Log, r.Progress, r.Silence = log, 100*time.Millisecond, 2500*time.Millisecond
	r.done.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(r.stop)
	return r
}

// A client that connects again resumes its watches from the next revision on, too.
func TestWatch_C185_AnIdleStoreAfterANewConnection(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	publish(t, s.Client())
	p := startProxy(t, s.Endpoint())
	var log syncBuffer
	c, err := store.NewCluster(store.Config{Endpoints: []string{p.endpoint()}, Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	r := startImpatient(t, c, zerolog.New(&log))
	r.until("plan", hasAmount("pro", 1))
	put(t, s.Client(), "/other", "the watches have something to be asked about")
	time.Sleep(3 * r.Progress)
	p.set(ends)
	p.set(flows)
	time.Sleep(3 * r.Silence)
	if got := log.String(); strings.Contains(got, "no word") || strings.Contains(got, "reading everything") {
		t.Errorf("logged:\n%.2000s", got)
	}
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("the edit", hasAmount("pro", 2))
}

// A member that answers reads and has lost a watch is found out once there is something
// that the watch should have told of.
func TestWatch_C185_ALostWatchIsFoundOut(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	publish(t, s.Client())
	deaf := clientv3.NewCtxClient(t.Context())
	deaf.KV, deaf.Watcher = s.Client().KV, silentWatcher{}
	r := startImpatient(t, store.ClusterOf(deaf), zerolog.Nop())
	r.until("plan", hasAmount("pro", 1))
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("the edit, by a fresh read", hasAmount("pro", 2))
}
