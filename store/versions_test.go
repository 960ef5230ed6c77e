package store_test

import (
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// During a rollout a newer version may accept a tenant that an older one rejects,
// and removes what the older one says of it. The older one does not say it again and
// again: the two would write for as long as the rollout takes.
func TestDocuments_TwoVersionsThatDisagreeDoNotWriteForEver(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "free", ""))
	r := startDocuments(t, c, zerolog.Nop())
	defer r.stop()
	r.until("tenant", func(s *plan.Snapshot) bool { return s.Tenant("org:a") != nil })
	put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "free", "")+"  newer: 1\n")
	status, effective := store.StatusKey(plan.KindTenant, "org:a"), store.EffectiveKey(plan.KindTenant, "org:a")
	r.until("status", func(*plan.Snapshot) bool { return get(t, c, status) != "" && get(t, c, effective) != "" })

	accept := func() {
		t.Helper()
		if _, err := c.Txn(t.Context()).Then(clientv3.OpDelete(status), clientv3.OpDelete(effective)).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	accept()
	for n := 6; n < 9; n++ { // each edit has rejections decided again
		put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", n))
		r.until("edit", hasAmount("free", int64(n)))
	}
	if get(t, c, status) != "" || get(t, c, effective) != "" {
		t.Errorf("written again: %s %s", get(t, c, status), get(t, c, effective))
	}
	if r.Snapshot().Tenant("org:a") == nil || len(r.Rejected()) != 1 {
		t.Errorf("rejected here: %+v", r.Rejected())
	}
	// Another edit is another matter.
	put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "free", "")+"  newer: 2\n")
	r.until("status of the next edit", func(*plan.Snapshot) bool { return get(t, c, status) != "" })
}

// A presence key that is lost while its lease lives comes back: others would count
// one replica less for ever.
func TestMembers_C110_ADeletedPresenceComesBack(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startMember(t, c, "a", 2*time.Second)
	eventually(t, "registered", func() bool { return len(a.Replicas()) == 1 })
	id := a.Incarnation()
	del(t, c, store.ReplicaKey(id))
	eventually(t, "gone", func() bool { return len(a.Replicas()) == 0 })
	eventually(t, "registered again", func() bool { return len(a.Replicas()) == 1 })
	if a.Incarnation() != id {
		t.Error("under another incarnation")
	}
}
