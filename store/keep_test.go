package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// A whole is a replica without its network side.
type whole struct {
	t       *testing.T
	decider *authz.Decider
	keeper  *quota.Keeper
	docs    *replica
	stop    func()
}

func startWhole(t *testing.T, c *clientv3.Client) *whole {
	t.Helper()
	me := unique(t)
	put(t, c, store.LiableKey(me), "")
	w := &whole{t: t}
	w.keeper = quota.NewKeeper(quota.KeeperConfig{Store: store.NewAccounts(c), Now: time.Now}, me)
	w.decider = authz.New(authz.Config{Keeper: w.keeper, Now: time.Now, MaxTenants: 100})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = w.keeper.Run(ctx) })
	w.docs = startDocuments(t, c, zerolog.Nop())
	w.stop = sync.OnceFunc(func() { w.docs.stop(); cancel(); running.Wait() })
	t.Cleanup(w.stop)
	return w
}

// admit sends n requests of org:acme under the newest snapshot; all must get in.
func (w *whole) admit(n int) {
	w.t.Helper()
	w.decider.SetSnapshot(w.docs.Snapshot())
	var dec authz.Decision
	for i := range n {
		dec.Reset()
		w.decider.Decide(w.t.Context(), time.Now(), &authz.Request{
			Headers: []authz.Field{{Name: "x-tenant", Value: "org:acme"}},
		}, &dec)
		if dec.Outcome != authz.Allowed {
			w.t.Fatalf("request %d: %v, stats %+v", i, dec.Outcome, w.keeper.Stats())
		}
	}
}

// admitPastGrant sends requests until there were more than n grants.
func (w *whole) admitPastGrant(n int64) {
	w.t.Helper()
	const most = 50_000 // no lease is larger than a tenth of the amount
	for sent := 0; w.keeper.Stats().Granted <= n; sent += 10 {
		if w.admit(10); sent > most {
			w.t.Fatalf("no grant in %d requests: %+v", sent, w.keeper.Stats())
		}
	}
}

// A bad edit disturbs no grant: the guard of a tenant is the newest revision of its
// key, though what is in force was written before (design 5).
func TestDocuments_ARejectedTenantEditDisturbsNoGrant(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 100_000))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), tenantText("org:acme", "free", ""))
	w := startWhole(t, c)
	w.docs.until("tenant", func(s *plan.Snapshot) bool { return s.Tenant("org:acme") != nil })
	w.admit(30)
	for i := range 3 {
		bad := put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), strings.Repeat("{", i+1))
		w.docs.until("the bad edit is rejected", func(s *plan.Snapshot) bool {
			list := w.docs.Rejected()
			return len(list) == 1 && list[0].Revision == bad && guardOf(s, "org:acme") == bad
		})
		before := w.keeper.Stats()
		w.admitPastGrant(before.Granted)
		if after := w.keeper.Stats(); after.Stale != before.Stale {
			t.Errorf("after bad edit %d: %+v, before it %+v", i, after, before)
		}
	}
	w.stop()

	// A replica that starts with the bad edit there already.
	w = startWhole(t, c)
	w.docs.until("tenant", func(s *plan.Snapshot) bool { return s.Tenant("org:acme") != nil })
	w.admitPastGrant(0)
	if got := w.keeper.Stats(); got.Stale > 0 {
		t.Errorf("after a restart: %+v", got)
	}
}

// guardOf returns the revision of a tenant's own guard in its terms.
func guardOf(s *plan.Snapshot, tenant string) int64 {
	for _, node := range s.Terms(time.Now(), "shop", tenant).Nodes {
		for _, g := range node.Guards {
			if g.Kind == plan.KindTenant && g.Name == tenant {
				return g.Revision
			}
		}
	}
	return 0
}

// C112: etcdctl del --prefix of the plans. Everything stays in force, over a
// restart too, and somebody is told loudly.
func TestDocuments_C112_EmptyingTheFolderOfPlansIsAnAlarm(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	const plans = 3
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	for i := range plans {
		name := fmt.Sprint("p", i)
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 10+i))
		put(t, c, store.DocumentKey(plan.KindTenant, "org:"+name), tenantText("org:"+name, name, ""))
	}
	var log syncBuffer
	r := startDocuments(t, c, zerolog.New(&log))
	r.until("tenants", func(s *plan.Snapshot) bool { return s.Tenant("org:p2") != nil && len(r.Rejected()) == 0 })
	if _, err := c.Delete(t.Context(), store.DocumentPrefix(plan.KindPlan), clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	check := func(r *replica, log *syncBuffer) {
		t.Helper()
		r.untilRejected(plans)
		for i := range plans {
			terms := r.Snapshot().Terms(time.Now(), "shop", fmt.Sprint("org:p", i))
			if terms.Broken != "" || len(terms.Nodes) != 1 || terms.Nodes[0].Limits[0].Amount != int64(10+i) {
				t.Errorf("terms of org:p%d: %+v", i, terms)
			}
		}
		if st := r.Stats(); st.Rejected[plan.KindPlan] != plans {
			t.Errorf("counted %v", st.Rejected)
		}
		if n := strings.Count(log.String(), `"level":"error"`); n != 1 || !strings.Contains(log.String(), "all plans") {
			t.Errorf("%d errors, want one:\n%s", n, log.String())
		}
	}
	check(r, &log)
	put(t, c, store.DocumentKey(plan.KindTenant, "org:more"), tenantText("org:more", "p1", ""))
	r.until("one more tenant", func(s *plan.Snapshot) bool { return s.Tenant("org:more") != nil })
	check(r, &log) // not told again
	r.stop()

	var again syncBuffer
	r = startDocuments(t, c, zerolog.New(&again))
	check(r, &again)
	for i := range plans {
		name := fmt.Sprint("p", i)
		put(t, c, store.DocumentKey(plan.KindPlan, name), planText(name, 20+i))
	}
	r.untilRejected(0)
	r.until("the new plans", hasAmount("p2", 22))
}
