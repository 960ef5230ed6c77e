package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

func TestDocumentsAreEnforcedAsTheyAreWritten(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	revision := put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 100))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), tenantText("org:acme", "free", ""))
	s := r.until("tenant on a plan", func(s *plan.Snapshot) bool {
		terms := s.Terms(time.Now(), "shop", "org:acme")
		return terms.Broken == "" && len(terms.Nodes) == 1
	})
	var e struct {
		SourceRevision int64 `json:"source_revision"`
		Document       string
	}
	if err := json.Unmarshal([]byte(get(t, c, store.EffectiveKey(plan.KindPlan, "free"))), &e); err != nil || e.SourceRevision != revision || e.Document != planText("free", 100) {
		t.Errorf("effective: %+v, %v", e, err)
	}
	// Guards name what is in etcd.
	for _, g := range s.Terms(time.Now(), "shop", "org:acme").Nodes[0].Guards {
		key := store.DocumentKey(g.Kind, g.Name)
		if g.Kind == plan.KindPlan || g.Kind == plan.KindApp {
			key = store.EffectiveKey(g.Kind, g.Name)
		}
		kv, err := c.Get(t.Context(), key)
		if err != nil || len(kv.Kvs) == 0 || kv.Kvs[0].ModRevision != g.Revision {
			t.Errorf("guard %+v: %v, %v", g, kv, err)
		}
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 200)+"\n# a comment\n")
	r.until("edit", hasAmount("free", 200))
	if st := r.Stats(); !st.Up || st.Contact.IsZero() || st.Revision == 0 || st.ApplyDelay <= 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestAPlanAndItsAppMayNeedEachOther(t *testing.T) {
	c := ownServer(t).Client()
	app := appText("shop", "UTC") + "    classes: [{name: bots, when: {credential_prefix: [b_]}}, {name: people}]\n  defaults: {plan: free}\n"
	free := strings.Replace(planText("free", 100), "amount", "classes: [bots], amount", 1)
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), free)
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), app)
	r := startDocuments(t, c, zerolog.Nop())
	r.until("both", func(s *plan.Snapshot) bool { return s.App("shop") != nil && s.Plan("free") != nil })
	if got := r.Rejected(); len(got) > 0 {
		t.Errorf("rejected: %+v", got)
	}
}

func TestATenantWaitsForItsPlanAndParent(t *testing.T) {
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "free", "org:z"))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:z"), tenantText("org:z", "free", ""))
	r.untilRejected(2)
	if terms := r.Snapshot().Terms(time.Now(), "shop", "org:a"); terms.Broken == "" {
		t.Errorf("a tenant without a valid document has terms %+v", terms)
	}
	r.until("status", func(*plan.Snapshot) bool { return get(t, c, store.StatusKey(plan.KindTenant, "org:z")) != "" })
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5))
	r.untilRejected(0)
	r.until("no status", func(*plan.Snapshot) bool {
		return get(t, c, store.StatusKey(plan.KindTenant, "org:a")) == "" && get(t, c, store.StatusKey(plan.KindTenant, "org:z")) == ""
	})
	if terms := r.Snapshot().Terms(time.Now(), "shop", "org:a"); terms.Broken != "" || len(terms.Nodes) != 2 {
		t.Errorf("terms %+v", terms)
	}
}

// C107.
func TestKeysOutsideOfTheSchemaAreIgnoredWithOneWarning(t *testing.T) {
	c := ownServer(t).Client()
	var log syncBuffer
	r := startDocuments(t, c, zerolog.New(&log))
	for _, name := range []string{"pro", "pro-2024"} {
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 3))
	}
	put(t, c, "/mete/v1/plans/pro/notes", "call them")
	put(t, c, "/mete/v1/plans/pro/notes", "call them again")
	r.until("plans", func(s *plan.Snapshot) bool { return amount(s, "pro") == 3 && amount(s, "pro-2024") == 3 })
	del(t, c, "/mete/v1/plans/pro/notes")
	del(t, c, store.DocumentKey(plan.KindPlan, "pro-2024"))
	r.until("deletion", func(s *plan.Snapshot) bool { return s.Plan("pro-2024") == nil })
	if amount(r.Snapshot(), "pro") != 3 || len(r.Rejected()) > 0 {
		t.Errorf("pro allows %d; rejected %+v", amount(r.Snapshot(), "pro"), r.Rejected())
	}
	if n := strings.Count(log.String(), "/mete/v1/plans/pro/notes"); n != 1 {
		t.Errorf("%d warnings, want one:\n%s", n, log.String())
	}
}

func TestSeveralReplicasPublishOnce(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	var logs [3]syncBuffer
	var rs []*replica
	for i := range logs {
		rs = append(rs, startDocuments(t, c, zerolog.New(&logs[i])))
	}
	for i := range 20 {
		put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", i+1))
	}
	for _, r := range rs {
		r.until("last edit", hasAmount("pro", 20))
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), "{")
	for _, r := range rs {
		r.untilRejected(1)
	}
	time.Sleep(300 * time.Millisecond)
	st, err := c.Get(t.Context(), store.StatusKey(plan.KindPlan, "pro"))
	if err != nil || len(st.Kvs) != 1 || st.Kvs[0].Version != 1 {
		t.Errorf("status was written more than once: %v, %v", st, err)
	}
	for i := range logs {
		if n := strings.Count(logs[i].String(), "edit is rejected"); n != 1 {
			t.Errorf("replica %d logged %d rejections, want 1:\n%s", i, n, logs[i].String())
		}
	}
}

// editing changes a document just before it is published as it was read: once.
type editing struct {
	clientv3.KV
	effective string
	once      sync.Once
	edit      func()
}

// Do implements [store.Doer].
func (e *editing) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsTxn() {
		_, then, _ := op.Txn()
		for _, o := range then {
			if o.IsPut() && string(o.KeyBytes()) == e.effective {
				e.once.Do(e.edit)
			}
		}
	}
	return e.KV.Do(ctx, op)
}

// What was read is not put in force once it was edited or deleted, though nobody has
// touched what is in force meanwhile.
func TestPublishing_A53_WhatWasEditedSinceIsNotPutInForce(t *testing.T) {
	t.Parallel()
	for name, edited := range map[string]string{"edited": planText("pro", 200), "deleted": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ownServer(t).Client()
			key, effective := store.DocumentKey(plan.KindPlan, "pro"), store.EffectiveKey(plan.KindPlan, "pro")
			var done atomic.Bool
			slow := clientv3.NewCtxClient(t.Context())
			slow.Lease, slow.Watcher = c.Lease, c.Watcher
			slow.KV = &editing{KV: c.KV, effective: effective, edit: func() {
				defer done.Store(true)
				if edited == "" {
					del(t, c, key)
				} else {
					put(t, c, key, edited)
				}
			}}
			r := startDocuments(t, slow, zerolog.Nop())
			put(t, c, key, planText("pro", 100))
			put(t, c, store.DocumentKey(plan.KindPlan, "last"), planText("last", 1))
			r.until("the edit", func(s *plan.Snapshot) bool {
				return done.Load() && amount(s, "last") == 1 && (edited == "" || amount(s, "pro") == 200)
			})
			put(t, c, store.DocumentKey(plan.KindPlan, "last"), planText("last", 2))
			r.until("what follows", hasAmount("last", 2))
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, s := range r.snaps {
				if n := amount(s, "pro"); n == 100 {
					t.Fatal("the plan was in force as it was before the edit")
				}
			}
			kv, err := c.Get(t.Context(), effective)
			if err != nil || edited == "" && len(kv.Kvs) != 0 || edited != "" && (len(kv.Kvs) != 1 || kv.Kvs[0].Version != 1) {
				t.Errorf("in force: %v, %v; want what was written last, once", kv, err)
			}
		})
	}
}

// C149: nothing is in force before everything is read.
func TestTheFirstSnapshotIsComplete(t *testing.T) {
	c := ownServer(t).Client()
	const n = 120
	var ops []clientv3.Op
	for i := range n {
		name := fmt.Sprint("p", i)
		ops = append(ops, clientv3.OpPut(store.DocumentKey(plan.KindPlan, name), planText(name, 1)))
	}
	if _, err := c.Txn(t.Context()).Then(ops...).Commit(); err != nil {
		t.Fatal(err)
	}
	r := startDocuments(t, c, zerolog.Nop())
	r.until("snapshot", func(*plan.Snapshot) bool { return true })
	r.mu.Lock()
	defer r.mu.Unlock()
	if got := len(r.snaps[0].Names(plan.KindPlan)); got != n {
		t.Errorf("the first snapshot has %d of %d plans", got, n)
	}
}

func TestApplyDocuments(t *testing.T) {
	c := ownServer(t).Client()
	var changes []store.Change
	for i := range 130 {
		name := fmt.Sprint("p", i)
		changes = append(changes, store.Change{Kind: plan.KindPlan, Name: name, Text: []byte(planText(name, 1))})
	}
	put(t, c, store.DocumentKey(plan.KindPlan, "p100"), "mine")
	_, err := store.ApplyDocuments(t.Context(), c, changes)
	var partial *store.PartialError
	if !asPartial(err, &partial) || partial.Applied != 60 || partial.Total != 130 || !strings.Contains(err.Error(), "p100") {
		t.Errorf("got %v, want 60 of 130 and p100 named", err)
	}
	all, err := store.ListDocuments(t.Context(), c, plan.KindPlan)
	if err != nil || len(all) != 61 {
		t.Errorf("%d documents, %v; want 61", len(all), err)
	}
	got, err := store.GetDocument(t.Context(), c, plan.KindPlan, "p3")
	if err != nil || string(got.Text) != planText("p3", 1) || got.ModRevision == 0 {
		t.Errorf("got %+v, %v", got, err)
	}
	gone := store.Change{Kind: plan.KindPlan, Name: "p3", ModRevision: got.ModRevision - 1}
	if _, err := store.ApplyDocuments(t.Context(), c, []store.Change{gone}); err == nil {
		t.Error("deleted at another revision")
	}
	gone.ModRevision++
	if _, err := store.ApplyDocuments(t.Context(), c, []store.Change{gone}); err != nil {
		t.Error(err)
	}
}
