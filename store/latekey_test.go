package store_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// A put of an earlier try that comes late leaves a replica's keys under a lease that
// nobody keeps alive. They must not run out with it, while units are leased.
func TestMembers_A45_ALatePutDoesNotEndAnIncarnation(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := startMember(t, c, "a", 3*time.Second)
	eventually(t, "registered", func() bool { return len(a.incarnations()) == 1 && len(a.Replicas()) == 1 })
	id := a.Incarnation()
	leaseOf := func(key string) clientv3.LeaseID {
		r, err := c.Get(t.Context(), key)
		if err != nil || len(r.Kvs) != 1 {
			return clientv3.NoLease
		}
		return clientv3.LeaseID(r.Kvs[0].Lease)
	}
	late, err := c.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{store.LiableKey(id), store.ReplicaKey(id)} {
		kept := leaseOf(key)
		if _, err := c.Put(t.Context(), key, "{}", clientv3.WithLease(late.ID)); err != nil {
			t.Fatal(err)
		}
		a.Check()
		eventually(t, key+" is under its own lease again", func() bool { return leaseOf(key) == kept })
	}
	if ids := a.incarnations(); ids[len(ids)-1] != id {
		t.Errorf("incarnations %v", ids)
	}
}
