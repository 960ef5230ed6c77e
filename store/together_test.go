package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// documentsTogether is an app, what belongs to it and a tenant, named by n.
func documentsTogether(n int) []clientv3.Op {
	app, free, tenant := fmt.Sprint("app", n), fmt.Sprint("plan", n), fmt.Sprint("org:t", n)
	return []clientv3.Op{
		clientv3.OpPut(store.DocumentKey(plan.KindTenant, tenant), tenantText(tenant, free, "")),
		clientv3.OpPut(store.DocumentKey(plan.KindRoutes, app), "apiVersion: mete/v1\nkind: Routes\nmetadata: {name: "+app+"}\n"+
			"spec: {app: "+app+", rules: [{match: {path: /x}, weight: 2}]}\n"),
		clientv3.OpPut(store.DocumentKey(plan.KindPlan, free), planText(free, 5)),
		clientv3.OpPut(store.DocumentKey(plan.KindApp, app), appText(app, "UTC")),
	}
}

// What arrives in one transaction is decided together, though it lies in ranges
// that are watched apart: nothing is rejected, not even for a moment.
func TestDocuments_OneTransactionIsNeverRejectedForAMoment(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"in process", "over TCP"} {
		t.Run(where, func(t *testing.T) {
			s := ownServer(t)
			c := s.Client()
			if where == "over TCP" {
				var err error
				if c, err = store.Connect(store.Config{Endpoints: []string{s.Endpoint()}, Log: zerolog.Nop()}); err != nil {
					t.Fatal(err)
				}
				defer func() { _ = c.Close() }()
			}
			var log syncBuffer
			r := startDocuments(t, c, zerolog.New(&log))
			defer r.stop()
			r.until("the first read", func(*plan.Snapshot) bool { return true })
			const rounds = 40
			for n := range rounds {
				if _, err := c.Txn(t.Context()).Then(documentsTogether(n)...).Commit(); err != nil {
					t.Fatal(err)
				}
				r.until("all in force", func(snap *plan.Snapshot) bool {
					return snap.Tenant(fmt.Sprint("org:t", n)) != nil && snap.App(fmt.Sprint("app", n)) != nil
				})
			}
			if got := log.String(); got != "" {
				t.Errorf("logged:\n%.2000s", got)
			}
			// A status that was written and deleted is in history all the same.
			ctx := clientv3.WithRequireLeader(t.Context())
			for resp := range s.Client().Watch(ctx, store.Prefix, clientv3.WithPrefix(), clientv3.WithRev(1)) {
				for _, e := range resp.Events {
					if strings.HasPrefix(string(e.Kv.Key), store.StatusPrefix) && e.IsCreate() {
						t.Errorf("written: %s %.300s", e.Kv.Key, e.Kv.Value)
					}
				}
				break //nolint:staticcheck // all of history comes in the first response
			}
		})
	}
}

// The same in separate puts, in the order in which documents need each other:
// revisions are decided in order, so that nothing is rejected either.
func TestDocuments_PutsInOrderAreNotRejected(t *testing.T) {
	c := ownServer(t).Client()
	var log syncBuffer
	r := startDocuments(t, c, zerolog.New(&log))
	r.until("the first read", func(*plan.Snapshot) bool { return true })
	for n := range 20 {
		ops := documentsTogether(n)
		for i := len(ops) - 1; i >= 0; i-- {
			if i == 1 {
				continue // routes
			}
			if _, err := c.Do(t.Context(), ops[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	r.until("all in force", func(snap *plan.Snapshot) bool { return snap.Tenant("org:t19") != nil })
	if got := log.String(); got != "" {
		t.Errorf("logged:\n%.2000s", got)
	}
}

// A range that says nothing holds up the others for a moment only.
func TestDocuments_ASilentRangeHoldsUpNothing(t *testing.T) {
	c := ownServer(t).Client()
	mute := muteWatcher{Watcher: c.Watcher}
	deaf := clientv3.NewCtxClient(t.Context())
	deaf.KV, deaf.Watcher = c.KV, &mute
	r := startSilent(t, store.ClusterOf(deaf), zerolog.Nop(), time.Minute)
	r.until("the first read", func(*plan.Snapshot) bool { return true })
	mute.mute()
	began := time.Now()
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r.until("edit", hasAmount("pro", 1))
	if took := time.Since(began); took > atOnce {
		t.Errorf("in force after %v", took)
	}
}

// muteWatcher does not ask for progress once it is mute.
type muteWatcher struct {
	clientv3.Watcher
	is atomic.Bool
}

func (w *muteWatcher) mute() { w.is.Store(true) }

func (w *muteWatcher) RequestProgress(ctx context.Context) error {
	if w.is.Load() {
		return nil
	}
	return w.Watcher.RequestProgress(ctx)
}
