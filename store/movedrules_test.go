package store_test

import (
	"maps"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// C002: rules that move from one document to another, or to other names, in one
// transaction are in force throughout, on each of the replicas that all put it in force
// at the same time.
func TestRateLimits_C002_RulesThatMoveAreNeverGone(t *testing.T) {
	t.Parallel()
	s := ownServer(t)
	const start = "domain: d\ndescriptors:\n"
	const a = "- {key: k, value: a, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	const b = "- {key: k, value: b, rate_limit: {unit: day, requests_per_unit: 1}}\n"
	layouts := []map[string]string{
		{"d/1": start + a, "d/2": start + b},
		{"d/1": start + b, "d/2": start + a},
		{"d/3": start + a + b},
		{"d/4": start + a, "d/5": start + b, "d/6": start},
	}
	there := layout{}
	there.change(t, s.Client(), layouts[0])
	var replicas []*replica
	for range 3 {
		replicas = append(replicas, startDocuments(t, s.Client(), zerolog.Nop()))
	}
	for round := range 40 {
		there.change(t, s.Client(), layouts[(round+1)%len(layouts)])
		for _, r := range replicas {
			r.until("the documents are in force", func(s *plan.Snapshot) bool { return there.is(s) && len(r.Rejected()) == 0 })
		}
	}
	for i, r := range replicas {
		r.stop()
		for j, snap := range r.snaps {
			if limitOf(snap, "d", "a") != 1 || limitOf(snap, "d", "b") != 1 {
				t.Errorf("replica %d lacks a rule in snapshot %d of %d", i, j, len(r.snaps))
			}
		}
	}
}

// A layout is the documents that are written, with their revisions.
type layout map[string]int64

// change writes other documents in place of those that are there, in one transaction.
func (l layout) change(t *testing.T, c *clientv3.Client, to map[string]string) {
	t.Helper()
	var changes []store.Change
	for name, text := range to {
		changes = append(changes, store.Change{Kind: plan.KindRateLimits, Name: name, Text: []byte(text), ModRevision: l[name]})
	}
	for name, revision := range l {
		if _, stays := to[name]; !stays {
			changes = append(changes, store.Change{Kind: plan.KindRateLimits, Name: name, ModRevision: revision})
		}
	}
	revision, err := store.ApplyDocuments(t.Context(), c, changes)
	if err != nil {
		t.Fatal(err)
	}
	clear(l)
	for name := range to {
		l[name] = revision
	}
}

// is reports whether a snapshot has just these documents.
func (l layout) is(s *plan.Snapshot) bool {
	return slices.Equal(slices.Sorted(maps.Keys(l)), s.Names(plan.KindRateLimits))
}
