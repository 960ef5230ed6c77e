package store_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// effectiveText is what a newer version publishes of a document.
func effectiveText(t *testing.T, source int64, document string, level int) string {
	t.Helper()
	b, err := json.Marshal(map[string]any{
		"source_revision": source, "document": document, "feature_level": level, "checked_by": "a later field",
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// publishNewer writes and publishes a document as a newer version would, in one
// transaction, so that no replica judges its text alone.
func publishNewer(t *testing.T, c *clientv3.Client, kind plan.Kind, name, text string, level int) {
	t.Helper()
	revision := put(t, c, "/mete/v1/state/later/turn", "") // the next one is the transaction's
	_, err := c.Txn(t.Context()).Then(
		clientv3.OpPut(store.DocumentKey(kind, name), text),
		clientv3.OpPut(store.EffectiveKey(kind, name), effectiveText(t, revision+1, text, level)),
	).Commit()
	if err != nil {
		t.Fatal(err)
	}
}

// laterText says something that no version of today can read.
func laterText(text string) string {
	return strings.Replace(text, "reset: {calendar: month}", "reset: {lunar: month}", 1)
}

// S26, and standards 8.2 test 11: a replica that is too old for what is enforced goes
// on with the last version that it could read, under the revision that grants are
// guarded by, and says that it needs a newer version; nothing is written under status/.
func TestOldReplica_S26_KeepsTheLastVersionItCouldRead(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 100))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "pro", ""))
	var log syncBuffer
	r := startDocuments(t, c, zerolog.New(&log))
	r.until("terms", func(s *plan.Snapshot) bool { return len(s.Terms(time.Now(), "shop", "org:a").Nodes) == 1 })

	publishNewer(t, c, plan.KindPlan, "pro", laterText(planText("pro", 200)), plan.FeatureLevel+1)
	r.untilRejected(1)
	want := fmt.Sprintf("needs a newer version: it takes feature level %d, this one has %d; upgrade this replica", plan.FeatureLevel+1, plan.FeatureLevel)
	if got := r.problem(); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	terms := r.Snapshot().Terms(time.Now(), "shop", "org:a")
	if terms.Broken != "" || len(terms.Nodes) != 1 || terms.Nodes[0].Limits[0].Amount != 100 {
		t.Fatalf("terms %+v", terms)
	}
	for _, g := range terms.Nodes[0].Guards {
		if g.Kind != plan.KindPlan {
			continue
		}
		kv, err := c.Get(t.Context(), store.EffectiveKey(plan.KindPlan, "pro"))
		if err != nil || kv.Kvs[0].ModRevision != g.Revision {
			t.Errorf("guarded by revision %d, so that nothing is granted: %v, %v", g.Revision, kv, err)
		}
	}
	if s := get(t, c, store.StatusKey(plan.KindPlan, "pro")); s != "" {
		t.Errorf("status %s", s)
	}
	if n := strings.Count(log.String(), "cannot be read here"); n != 1 {
		t.Errorf("told %d times:\n%s", n, log.String())
	}

	// The next version that it can read is in force again.
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 300))
	r.until("a version of today", hasAmount("pro", 300))
	r.untilRejected(0)
}

// S26: one that never had a version that it could read follows on_unavailable, never
// "no limit"; another one it leaves alone.
func TestOldReplica_S26_WithoutALastVersionIsNoOneWithoutLimits(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	for name, onPlan := range map[string]string{"org:a": "pro", "org:b": "free"} {
		put(t, c, store.DocumentKey(plan.KindTenant, name), tenantText(name, onPlan, ""))
	}
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 1))
	publishNewer(t, c, plan.KindPlan, "pro", laterText(planText("pro", 200)), 0)
	before := get(t, c, store.EffectiveKey(plan.KindPlan, "pro"))
	r := startDocuments(t, c, zerolog.Nop())
	s := r.until("the other plan", func(s *plan.Snapshot) bool { return len(s.Terms(time.Now(), "shop", "org:b").Nodes) == 1 })
	want := fmt.Sprintf("plan pro needs a newer version: this one, of feature level %d, cannot read what is enforced (6:", plan.FeatureLevel)
	if terms := s.Terms(time.Now(), "shop", "org:a"); !strings.HasPrefix(terms.Broken, want) {
		t.Errorf("terms %+v", terms)
	}
	list := fmt.Sprint(r.Rejected())
	if !strings.Contains(list, "needs a newer version") || get(t, c, store.EffectiveKey(plan.KindPlan, "pro")) != before {
		t.Errorf("rejected %s, effective %s", list, get(t, c, store.EffectiveKey(plan.KindPlan, "pro")))
	}
}

// S26: a tenant that an old replica cannot read keeps its last good version, too.
func TestOldReplica_S26_KeepsTenants(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 100))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "pro", ""))
	r := startDocuments(t, c, zerolog.Nop())
	limits := func(s *plan.Snapshot) []string {
		var names []string
		for _, n := range s.Terms(time.Now(), "shop", "org:a").Nodes {
			for i := range n.Limits {
				names = append(names, n.Limits[i].Name)
			}
		}
		return names
	}
	r.until("terms", func(s *plan.Snapshot) bool { return len(limits(s)) == 1 })
	put(t, c, store.MinimumKey, fmt.Sprintf(`{"feature_level": %d}`, plan.FeatureLevel+1))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "pro", "")+"  lunar: true\n")
	r.untilRejected(1)
	if got := limits(r.Snapshot()); !slices.Equal(got, []string{"monthly"}) {
		t.Errorf("limits %v, %+v", got, r.Snapshot().Terms(time.Now(), "shop", "org:a"))
	}
	if list := fmt.Sprint(r.Rejected()); !strings.Contains(list, fmt.Sprintf("may need a newer version: the store needs feature level %d, this one has %d", plan.FeatureLevel+1, plan.FeatureLevel)) {
		t.Errorf("rejected %s", list)
	}
	if s := get(t, c, store.StatusKey(plan.KindTenant, "org:a")); s != "" {
		t.Errorf("too old to judge, and it writes %s", s)
	}
}

// A18, S26: who cannot read the app that is enforced does not move its time zone.
func TestOldReplica_S26_A18_DoesNotMoveATimeZone(t *testing.T) {
	t.Parallel()
	for _, known := range []bool{true, false} {
		t.Run(fmt.Sprint("known before: ", known), func(t *testing.T) {
			t.Parallel()
			c := ownServer(t).Client()
			put(t, c, store.UsedKey("shop"), "")
			newer := appText("shop", "Europe/Berlin") + "  lunar: true\n"
			var r *replica
			if known {
				put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "Europe/Berlin"))
				r = startDocuments(t, c, zerolog.Nop())
				r.until("app", func(s *plan.Snapshot) bool { return s.App("shop") != nil })
				publishNewer(t, c, plan.KindApp, "shop", newer, plan.FeatureLevel+1)
			} else {
				publishNewer(t, c, plan.KindApp, "shop", newer, plan.FeatureLevel+1)
				r = startDocuments(t, c, zerolog.Nop())
			}
			r.untilRejected(1)
			before := get(t, c, store.EffectiveKey(plan.KindApp, "shop"))
			put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
			r.until("rejection", func(*plan.Snapshot) bool { return strings.Contains(fmt.Sprint(r.Rejected()), "time zone") })
			if get(t, c, store.EffectiveKey(plan.KindApp, "shop")) != before {
				t.Errorf("moved: %s", get(t, c, store.EffectiveKey(plan.KindApp, "shop")))
			}
			if !known {
				return
			}
			put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "Europe/Berlin")+"  defaults: {replicas: split}\n")
			r.until("another edit", func(s *plan.Snapshot) bool { return s.App("shop").Defaults.Replicas == plan.Split })
		})
	}
}

// S26: what a newer replica says of itself beyond what is known here is ignored.
func TestOldReplica_S26_ReadsWhatItKnowsOfAPresence(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startMember(t, c, "a", time.Minute)
	eventually(t, "registered", func() bool { return len(a.Replicas()) == 1 })
	putReplica(t, c, "later", `{"address": "h:1", "version": "9.0.0", "feature_level": 9, "region": {"a": [1]}, "clock": "2026-01-02T03:04:05Z"}`)
	eventually(t, "two live", func() bool { return a.Live() == 2 })
	if p := a.Replicas()["later"]; p.Feature != 9 || p.Version != "9.0.0" || p.Address != "h:1" || p.Clock.IsZero() {
		t.Errorf("presence %+v", p)
	}
}
