package e2e_test

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// A plan that says what an old replica cannot read is rejected with that reason while
// such a replica lives, and the version before stays in force everywhere; when the old
// one is gone it comes into force by itself (S24), and the store's minimum rises with
// it (S25).
func TestOldReplica_S24_S25_NewPlanWaitsForIt(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, unchanged)
	second := newReplica(t, first)
	a := newApp(t, first, "monthly: {kind: quota, amount: 300, reset: {calendar: month}}", "headers: {x_quota: true}")
	b := a.on(t, second)
	life, err := a.etcd.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.etcd.Delete(t.Context(), store.MinimumKey); err != nil { // the store of a version before levels
		t.Fatal(err)
	}
	old := `{"address": "old.test:9001", "version": "v0.2.0", "feature_level": 1}`
	if _, err := a.etcd.Put(t.Context(), store.ReplicasPrefix+"old-1", old, clientv3.WithLease(life.ID)); err != nil {
		t.Fatal(err)
	}
	a.put(t, map[string]string{"plans/" + a.name: a.plan("monthly: {kind: quota, amount: 500, reset: {calendar: month}, lease: {exact_below: 1%}}")})
	const why = "lease.exact_below: needs feature level 2; replica old-1 (version v0.2.0) has 1: upgrade it first"
	eventually(t, "metectl status tells why the plan is rejected", func() bool {
		text, code := a.metectl(t, "status")
		return code == 1 && strings.Contains(text, why)
	})
	for _, replica := range []*app{a, b} {
		wantHeader(t, replica.admit(t, 1), "X-Quota-Limit", "300")
	}

	if _, err := a.etcd.Revoke(t.Context(), life.ID); err != nil { // as etcd does when the old one has gone
		t.Fatal(err)
	}
	for _, replica := range []*app{a, b} {
		eventually(t, "the plan is in force", func() bool {
			return replica.admit(t, 1).header.Get("X-Quota-Limit") == "500"
		})
	}
	eventually(t, "nothing is rejected any more", func() bool {
		_, code := a.metectl(t, "status")
		return code == 0
	})
	if text, _ := a.metectl(t, "status", "-o", "json"); !strings.Contains(text, `"minimum_level": 2`) {
		t.Errorf("the store needs feature level 2 from now on, and metectl says %s", text)
	}
}
