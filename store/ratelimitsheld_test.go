package store_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// A fullStore takes no transaction that puts a key while it is on.
type fullStore struct {
	clientv3.KV

	on  atomic.Bool
	key string
}

func (f *fullStore) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if _, then, _ := op.Txn(); f.on.Load() {
		for _, o := range then {
			if o.IsPut() && string(o.KeyBytes()) == f.key {
				return clientv3.OpResponse{}, errors.New("no space")
			}
		}
	}
	return f.KV.Do(ctx, op)
}

// startFull starts a replica whose etcd refuses to put one document in force.
func startFull(t *testing.T, c *clientv3.Client, name string, on bool) (*replica, *fullStore) {
	t.Helper()
	kv := &fullStore{KV: c.KV, key: store.EffectiveKey(plan.KindRateLimits, name)}
	kv.on.Store(on)
	mine := clientv3.NewCtxClient(t.Context())
	mine.KV, mine.Watcher = kv, c.Watcher
	return startDocuments(t, mine, zerolog.Nop()), kv
}

// C002: where etcd takes only some edits of those in which rules move, no snapshot lacks
// a rule, for as long as that lasts; then all edits are in force.
func TestRateLimits_C002_HalfOfAMoveIsNotHandedOut(t *testing.T) {
	t.Parallel()
	const start = "domain: d\ndescriptors:\n"
	const a = "- {key: k, value: a, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	const b = "- {key: k, value: b, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	for name, to := range map[string]map[string]string{
		"to another document": {"d/1": start + b, "d/2": start + a},
		"to another name":     {"d/2": start + a + b},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ownServer(t).Client()
			there := layout{}
			there.change(t, c, map[string]string{"d/1": start + a, "d/2": start + b})
			r, kv := startFull(t, c, "d/2", false)
			r.until("the documents are in force", there.is)
			kv.on.Store(true)
			there.change(t, c, to)
			first := store.EffectiveKey(plan.KindRateLimits, "d/1")
			r.until("half of it is done", func(*plan.Snapshot) bool {
				text := get(t, c, first)
				return text == "" || strings.Contains(text, "value: b")
			})
			put(t, c, store.DocumentKey(plan.KindPlan, "later"), planText("later", 1))
			r.until("a document that is written later", func(*plan.Snapshot) bool {
				return get(t, c, store.EffectiveKey(plan.KindPlan, "later")) != ""
			})
			kv.on.Store(false)
			r.until("all of it", func(s *plan.Snapshot) bool { return there.is(s) && amount(s, "later") == 1 })
			r.stop()
			for i, snap := range r.snaps {
				if limitOf(snap, "d", "a") != 1 || limitOf(snap, "d", "b") != 1 {
					t.Errorf("snapshot %d of %d lacks a rule: a %d, b %d", i, len(r.snaps), limitOf(snap, "d", "a"), limitOf(snap, "d", "b"))
				}
			}
		})
	}
}

// C004: a replica that starts while etcd takes no edit goes on with what is in force.
func TestRateLimits_C004_AStartWaitsForNoEdit(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	const text = "domain: d\ndescriptors: [{key: k, value: a, rate_limit: {unit: day, requests_per_unit: 1}}]\n"
	there := layout{}
	there.change(t, c, map[string]string{"d": text})
	first := startDocuments(t, c, zerolog.Nop())
	first.until("the document is in force", there.is)
	first.stop()
	there.change(t, c, map[string]string{"d": strings.Replace(text, "unit: 1", "unit: 2", 1)})
	r, kv := startFull(t, c, "d", true)
	r.until("what is in force", func(s *plan.Snapshot) bool { return limitOf(s, "d", "a") == 1 })
	kv.on.Store(false)
	r.until("the edit", func(s *plan.Snapshot) bool { return limitOf(s, "d", "a") == 2 })
}
