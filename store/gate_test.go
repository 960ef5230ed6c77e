package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// newPlanText is a plan that says what versions of feature level 1 refuse to read.
func newPlanText(name string, amount int) string {
	return strings.Replace(planText(name, amount), "cascade: true", "lease: {exact_below: 10%}", 1)
}

// newTenantText is such a document of org:acme.
func newTenantText(onPlan string, amount int) string {
	return tenantText("org:acme", onPlan, "") + fmt.Sprintf("  limits:\n    own: {kind: quota, amount: %d, reset: {calendar: day}, lease: {wait: 100ms}}\n", amount)
}

// putReplica registers a replica as an incarnation of some version would.
func putReplica(t *testing.T, c *clientv3.Client, id, presence string) {
	t.Helper()
	put(t, c, store.ReplicaKey(id), presence)
}

func (r *replica) problem() string {
	r.t.Helper()
	list := r.Rejected()
	if len(list) != 1 || len(list[0].Problems) != 1 {
		r.t.Fatalf("rejected: %+v, want one with one problem", list)
	}
	return list[0].Problems[0].String()
}

// minimum returns the key as people read it.
func minimum(t *testing.T, c *clientv3.Client) (level int, version string) {
	t.Helper()
	var m struct {
		Level   int `json:"feature_level"`
		Version string
	}
	if text := get(t, c, store.MinimumKey); text != "" && json.Unmarshal([]byte(text), &m) != nil {
		t.Fatalf("%s holds %q", store.MinimumKey, text)
	}
	return m.Level, m.Version
}

// oldStore returns a store that a version without feature levels has made.
func oldStore(t *testing.T) *clientv3.Client {
	t.Helper()
	c := ownServer(t).Client()
	del(t, c, store.MinimumKey)
	return c
}

// S24, S25: what an old replica would refuse to read is not in force while it lives;
// then it is, without another edit, and the store's minimum rises with it.
func TestGate_S24_S25_ADocumentWaitsForTheLastOldReplica(t *testing.T) {
	t.Parallel()
	c := oldStore(t)
	putReplica(t, c, "old-1", `{"version": "1.4.0-rc.1", "feature_level": 1}`)
	putReplica(t, c, "old-2", `{"version": "1.3.9", "feature_level": 1}`)
	putReplica(t, c, "new-1", `{"version": "1.5.0-rc.1", "feature_level": 2}`)
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 100))
	r := startDocuments(t, c, zerolog.Nop())
	r.until("the plan of level 1", hasAmount("pro", 100))
	revision := put(t, c, store.DocumentKey(plan.KindPlan, "pro"), newPlanText("pro", 200))
	r.untilRejected(1)
	const want = "6:88: spec.limits.monthly.lease.exact_below: needs feature level 2; replica old-1 (version 1.4.0-rc.1) has 1: upgrade it first, and 1 more"
	if got := r.problem(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	del(t, c, store.ReplicaKey("old-1"))
	status := store.StatusKey(plan.KindPlan, "pro")
	r.until("the other one in the status", func(*plan.Snapshot) bool {
		return strings.Contains(get(t, c, status), "replica old-2 (version 1.3.9) has 1: upgrade it first\"")
	})
	if level, _ := minimum(t, c); amount(r.Snapshot(), "pro") != 100 || level != 0 || strings.Contains(get(t, c, store.EffectiveKey(plan.KindPlan, "pro")), "exact") {
		t.Errorf("in force before its time: %d, minimum %d", amount(r.Snapshot(), "pro"), level)
	}
	del(t, c, store.ReplicaKey("old-2"))
	r.until("in force", hasAmount("pro", 200))
	r.untilRejected(0)
	if level, version := minimum(t, c); level != 2 || version != "1.5.0-rc.1" || get(t, c, status) != "" {
		t.Errorf("minimum %d by %s, status %s", level, version, get(t, c, status))
	}
	if e := get(t, c, store.EffectiveKey(plan.KindPlan, "pro")); !strings.Contains(e, `"feature_level": 2`) {
		t.Errorf("effective %s", e)
	}
	kv, err := c.Get(t.Context(), store.DocumentKey(plan.KindPlan, "pro"))
	if err != nil || kv.Kvs[0].ModRevision != revision {
		t.Errorf("the document was written again: %v, %v", kv, err)
	}
	effective, err := c.Get(t.Context(), store.EffectiveKey(plan.KindPlan, "pro"))
	if key, e := c.Get(t.Context(), store.MinimumKey); err != nil || e != nil || key.Kvs[0].ModRevision != effective.Kvs[0].ModRevision {
		t.Errorf("not raised in the transaction that put the document in force: %v, %v", key, effective)
	}
}

// S24: a replica that registers or leaves in one batch with others is seen, in whatever order
// the batch tells of them.
func TestGate_S24_ReplicasThatComeTogether(t *testing.T) {
	t.Parallel()
	c := oldStore(t)
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 100))
	r := startDocuments(t, c, zerolog.Nop())
	r.until("the plan of level 1", hasAmount("pro", 100))
	come := []clientv3.Op{clientv3.OpPut(store.ReplicaKey("new"), `{"version": "1.5.0", "feature_level": 2}`)}
	gone := []clientv3.Op{clientv3.OpDelete(store.ReplicaKey("new"))}
	for i := range 8 {
		id := fmt.Sprintf("old-%d", i)
		come = append(come, clientv3.OpPut(store.ReplicaKey(id), `{"version": "1.4.0", "feature_level": 1}`))
		gone = append(gone, clientv3.OpDelete(store.ReplicaKey(id)))
	}
	if _, err := c.Txn(t.Context()).Then(come...).Commit(); err != nil {
		t.Fatal(err)
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), newPlanText("pro", 200))
	r.untilRejected(1)
	if got := r.problem(); !strings.Contains(got, "replica old-0 (version 1.4.0) has 1: upgrade it first, and 7 more") {
		t.Errorf("of 8 old replicas it says %s", got)
	}
	if _, err := c.Txn(t.Context()).Then(gone...).Commit(); err != nil {
		t.Fatal(err)
	}
	r.until("in force", hasAmount("pro", 200))
}

// S24: a release candidate counts as its version; who says nothing that can be read is
// taken for too old.
func TestGate_S24_WhoCountsAsOld(t *testing.T) {
	t.Parallel()
	for presence, want := range map[string]string{
		`{"version": "1.4.0-rc.1", "feature_level": 2}`:                                               "",
		`{"version": "2.0.0", "feature_level": 3, "zone": {"a": 1}, "clock": "2026-01-02T03:04:05Z"}`: "",
		`{"version": "devel", "feature_level": 1, "later": [1]}`:                                      "replica r (version devel) has 1: upgrade it first",
		`{"version": "0.9.0"}`:   "replica r does not say which it has: upgrade or stop it first",
		`{"feature_level": "2"}`: "replica r does not say which it has: upgrade or stop it first",
		"v2":                     "replica r does not say which it has: upgrade or stop it first",
		"":                       "replica r does not say which it has: upgrade or stop it first",
	} {
		t.Run(presence, func(t *testing.T) {
			t.Parallel()
			c := oldStore(t)
			putReplica(t, c, "r", presence)
			put(t, c, store.DocumentKey(plan.KindPlan, "pro"), newPlanText("pro", 7))
			r := startDocuments(t, c, zerolog.Nop())
			if want == "" {
				r.until("in force", hasAmount("pro", 7))
				return
			}
			r.untilRejected(1)
			if got := r.problem(); !strings.HasSuffix(got, "needs feature level 2; "+want) {
				t.Errorf("got %s, want %s", got, want)
			}
			if r.Snapshot().Plan("pro") != nil {
				t.Error("in force")
			}
		})
	}
}

// A client that sees a transaction before etcd does.
type tapped struct {
	clientv3.KV
	before func(op clientv3.Op)
}

func (k *tapped) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	k.before(op)
	return k.KV.Do(ctx, op)
}

func tap(t *testing.T, c *clientv3.Client, before func(op clientv3.Op)) *clientv3.Client {
	t.Helper()
	own := clientv3.NewCtxClient(t.Context())
	own.KV, own.Lease, own.Watcher = &tapped{c.KV, before}, c.Lease, c.Watcher
	return own
}

// putsIn returns the keys that a transaction puts if its conditions hold.
func putsIn(op clientv3.Op) (keys []string) {
	if !op.IsTxn() {
		return nil
	}
	_, then, _ := op.Txn()
	for _, o := range then {
		if o.IsPut() {
			keys = append(keys, string(o.KeyBytes()))
		}
	}
	return keys
}

// S24: an old replica that registers while a document is being published is seen,
// though no watch has told of it yet.
func TestGate_S24_AReplicaThatRegistersAtTheLastMoment(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind       plan.Kind
		name, text string
	}{{plan.KindPlan, "pro", newPlanText("pro", 7)}, {plan.KindTenant, "org:acme", newTenantText("free", 7)}} {
		t.Run(string(tt.kind), func(t *testing.T) {
			t.Parallel()
			c := oldStore(t)
			put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 1))
			var once sync.Once
			r := startDocuments(t, tap(t, c, func(op clientv3.Op) {
				for _, key := range putsIn(op) {
					if key == store.MinimumKey {
						once.Do(func() { putReplica(t, c, "late", `{"version": "1.3.9", "feature_level": 1}`) })
					}
				}
			}), zerolog.Nop())
			r.until("free", hasAmount("free", 1))
			put(t, c, store.DocumentKey(tt.kind, tt.name), tt.text)
			r.untilRejected(1)
			if got := r.problem(); !strings.Contains(got, "replica late (version 1.3.9) has 1") {
				t.Errorf("rejected because %s", got)
			}
			if level, _ := minimum(t, c); level != 0 || get(t, c, store.EffectiveKey(plan.KindPlan, "pro")) != "" || r.Snapshot().Tenant("org:acme") != nil {
				t.Errorf("in force, minimum %d", level)
			}
			del(t, c, store.ReplicaKey("late"))
			r.untilRejected(0)
			if level, _ := minimum(t, c); level != 2 {
				t.Errorf("minimum %d", level)
			}
		})
	}
}

// S24, S25: a tenant is put in force by each replica for itself, so the minimum
// decides: all replicas agree, and a restart changes nothing.
func TestGate_S24_S25_TenantsWaitUntilTheMinimumIsRaised(t *testing.T) {
	t.Parallel()
	c := oldStore(t)
	putReplica(t, c, "old", `{"version": "1.3.9", "feature_level": 1}`)
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 1))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), tenantText("org:acme", "free", ""))
	r := startDocuments(t, c, zerolog.Nop())
	r.until("tenant", func(s *plan.Snapshot) bool { return s.Tenant("org:acme") != nil })
	first := put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), newTenantText("free", 5))
	r.untilRejected(1)
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), newTenantText("free", 6))
	limits := func(s *plan.Snapshot) int { return len(s.Tenant("org:acme").Limits) }
	r.until("second edit", func(*plan.Snapshot) bool {
		list := r.Rejected()
		return len(list) == 1 && list[0].Revision > first
	})
	if n := limits(r.Snapshot()); n != 0 {
		t.Errorf("%d own limits are in force", n)
	}
	r.stop()
	again := startDocuments(t, c, zerolog.Nop())
	again.untilRejected(1)
	if n := limits(again.Snapshot()); n != 0 {
		t.Errorf("after a restart %d own limits are in force", n)
	}
	del(t, c, store.ReplicaKey("old"))
	again.until("in force", func(s *plan.Snapshot) bool { return limits(s) == 1 && s.Tenant("org:acme").Limits[0].Amount == 6 })
	if level, _ := minimum(t, c); level != 2 {
		t.Errorf("minimum %d", level)
	}
	again.untilRejected(0)

	// A version that knows no minimum comes back: it keeps its last good version, and
	// nobody else changes his mind.
	putReplica(t, c, "back", `{"version": "1.3.9", "feature_level": 1}`)
	again.stop()
	third := startDocuments(t, c, zerolog.Nop())
	third.until("in force", func(s *plan.Snapshot) bool { return s.Tenant("org:acme") != nil && limits(s) == 1 })
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), newPlanText("free", 2))
	third.untilRejected(1)
	if got := third.problem(); !strings.Contains(got, "replica back") || amount(third.Snapshot(), "free") != 1 {
		t.Errorf("a plan goes past an old replica: %s", got)
	}
}

// S24: a replica that starts while several edits wait goes back past all of them.
func TestGate_S24_HistoryHoldsWhatWaits(t *testing.T) {
	t.Parallel()
	c := oldStore(t)
	putReplica(t, c, "old", `{"version": "1.3.9", "feature_level": 1}`)
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 1))
	for _, text := range []string{tenantText("org:acme", "free", ""), newTenantText("free", 5), newTenantText("free", 6)} {
		put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), text)
	}
	r := startDocuments(t, c, zerolog.Nop())
	r.untilRejected(1)
	kept := store.EffectiveKey(plan.KindTenant, "org:acme")
	r.until("last good version", func(*plan.Snapshot) bool { return get(t, c, kept) != "" })
	if tenant := r.Snapshot().Tenant("org:acme"); tenant == nil || len(tenant.Limits) != 0 || strings.Contains(get(t, c, kept), "wait") {
		t.Errorf("in force: %+v, kept %s", tenant, get(t, c, kept))
	}
}

// S25: the minimum is never lowered, and not written without need. A tenant that no
// replica would enforce raises nothing.
func TestGate_S25_TheMinimumOnlyRises(t *testing.T) {
	t.Parallel()
	c := oldStore(t)
	const newer = `{"feature_level": 7, "version": "9.0.0", "more": true}`
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), newTenantText("nowhere", 7))
	r.untilRejected(1)
	if get(t, c, store.MinimumKey) != "" {
		t.Error("raised by a tenant on a plan that does not exist")
	}
	put(t, c, store.MinimumKey, newer)
	r.until("news of it", func(*plan.Snapshot) bool { return r.Stats().Minimum.Level == 7 })
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), newPlanText("pro", 7))
	r.until("in force", hasAmount("pro", 7))
	if got := get(t, c, store.MinimumKey); got != newer {
		t.Errorf("got %s", got)
	}
	put(t, c, store.MinimumKey, "7")
	r.until("news of it", func(*plan.Snapshot) bool { return r.Stats().Minimum.Above(1 << 20) })
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), newPlanText("pro", 8))
	r.until("rejection", func(*plan.Snapshot) bool {
		return len(r.Rejected()) == 2 && strings.Contains(fmt.Sprint(r.Rejected()), store.MinimumKey+" cannot be read")
	})
	if m, err := store.ReadMinimum(t.Context(), c); err != nil || !m.Above(2) || get(t, c, store.MinimumKey) != "7" {
		t.Errorf("read %+v, %v", m, err)
	}
	put(t, c, store.MinimumKey, `{"feature_level": 2}`)
	r.until("in force", hasAmount("pro", 8))
}

// S29: what a document above level 1 costs more than another is conditions in the
// transaction that is sent anyway: not one request.
func TestGate_S29_NoRequestMore(t *testing.T) {
	t.Parallel()
	c := oldStore(t)
	for i := range 40 {
		putReplica(t, c, fmt.Sprint("r", i), `{"version": "2.0.0", "feature_level": 2}`)
	}
	var mu sync.Mutex
	requests := 0
	r := startDocuments(t, tap(t, c, func(clientv3.Op) { mu.Lock(); defer mu.Unlock(); requests++ }), zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r.until("all that a start writes", func(s *plan.Snapshot) bool { return amount(s, "pro") == 1 && get(t, c, store.EpochKey) != "" })
	count := func(text string, n int64) int {
		mu.Lock()
		before := requests
		mu.Unlock()
		put(t, c, store.DocumentKey(plan.KindPlan, "pro"), text)
		r.until("edit", hasAmount("pro", n))
		mu.Lock()
		defer mu.Unlock()
		return requests - before
	}
	if old, now := count(planText("pro", 2), 2), count(newPlanText("pro", 3), 3); now != 1 || old != 1 {
		t.Errorf("%d requests, %d for a document of level 1; want 1", now, old)
	}
}

// S27: the minimum that rises between a tool's look and its write is seen, too.
func TestGate_S27_TheMinimumRisesUnderAWriter(t *testing.T) {
	t.Parallel()
	for level, written := range map[int]bool{plan.FeatureLevel: true, plan.FeatureLevel + 1: false} {
		t.Run(fmt.Sprint(level), func(t *testing.T) {
			t.Parallel()
			c := oldStore(t)
			var once sync.Once
			raising := tap(t, c, func(op clientv3.Op) {
				if len(putsIn(op)) > 0 {
					once.Do(func() { put(t, c, store.MinimumKey, fmt.Sprintf(`{"feature_level": %d}`, level)) })
				}
			})
			change := store.Change{Kind: plan.KindPlan, Name: "pro", Text: []byte(planText("pro", 1))}
			_, err := store.ApplyDocuments(t.Context(), raising, []store.Change{change})
			var old *store.TooOldError
			if errors.As(err, &old) == written || (err == nil) != written {
				t.Errorf("got %v", err)
			}
			if there := get(t, c, store.DocumentKey(plan.KindPlan, "pro")) != ""; there != written {
				t.Errorf("written: %v, want %v", there, written)
			}
		})
	}
}
