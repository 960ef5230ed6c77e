package authz_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

const treeDocs = `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec: {time_zone: UTC, identity: {tenant: [{request_header: x-tenant}]}}
`

func quotaOf(amount string) string {
	return "daily: {kind: quota, amount: " + amount + ", reset: {calendar: day}}"
}

func TestTree_C096_AllOrNothingOverThePath(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, treeDocs+planDoc("root", quotaOf("10"))+planDoc("org", quotaOf("8"))+planDoc("project", quotaOf("6"))+planDoc("key", quotaOf("4"))+
			tenantDoc("acct:r", "{plan: root}")+tenantDoc("org:o", `{plan: org, parent: "acct:r"}`)+
			tenantDoc("project:p", `{plan: project, parent: "org:o"}`)+tenantDoc("key:k", `{plan: key, parent: "project:p"}`))
		var admitted atomic.Int64
		var callers sync.WaitGroup
		for range 5 {
			callers.Go(func() {
				for range 10 {
					if k.ask(from("key:k")).Outcome == authz.Allowed {
						admitted.Add(1)
					}
				}
			})
		}
		callers.Wait()
		if n := admitted.Load(); n != 4 {
			t.Fatalf("%d admitted, want 4", n)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for _, key := range k.memory.Accounts() {
			if a := k.memory.Account(key); a.Used() != 4 || a.Leased() != 0 {
				t.Errorf("%s: used %d, leased %d, want 4 and 0", key.Tenant, a.Used(), a.Leased())
			}
		}
	})
}

func TestTree_C098_RefusalNamesTheAncestor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, treeDocs+planDoc("org", quotaOf("30"))+planDoc("project", quotaOf("10"))+
			tenantDoc("org:o", "{plan: org}")+tenantDoc("project:1", `{plan: project, parent: "org:o"}`)+tenantDoc("project:2", `{plan: project, parent: "org:o"}`)+
			tenantDoc("project:3", `{plan: project, parent: "org:o"}`)+tenantDoc("project:4", `{plan: project, parent: "org:o"}`))
		for _, p := range []string{"project:1", "project:2", "project:3"} {
			for range 10 {
				k.must(from(p), authz.Allowed)
			}
			k.must(from(p), authz.QuotaExceeded)
		}
		dec := k.must(from("project:4"), authz.QuotaExceeded)
		worst := dec.Limits[dec.Worst]
		if worst.Tenant != "org:o" || worst.Leaf || worst.Used != 30 {
			t.Errorf("refused by %s used %d, want org:o used 30", worst.Tenant, worst.Used)
		}
		if own := limit(t, dec, "daily"); own.Refused || own.Used != 0 {
			t.Errorf("the project below its limit: %+v", own)
		}
	})
}

func TestTree_PoolRootAndNoCascade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, treeDocs+planDoc("org", "daily: {kind: quota, amount: 3, cascade: false, reset: {calendar: day}}")+
			tenantDoc("org:o", "{plan: org}")+tenantDoc("user:own", `{parent: "org:o"}`)+tenantDoc("user:pooled", `{parent: "org:o", pool: root}`))
		for range 3 {
			k.must(from("user:own"), authz.Allowed) // its own counter of the inherited plan
		}
		k.must(from("user:own"), authz.QuotaExceeded)
		for range 3 {
			k.must(from("user:pooled"), authz.Allowed)
		}
		dec := k.must(from("user:pooled"), authz.QuotaExceeded)
		if worst := dec.Limits[dec.Worst]; worst.Tenant != "org:o" || worst.Leaf {
			t.Errorf("refused by %s, the caller itself: %v; want the pool org:o above it", worst.Tenant, worst.Leaf)
		}
		k.must(from("org:o"), authz.QuotaExceeded)
	})
}

// A tenant that moves into another tree has its accounts there from then on, also at
// a replica that has a purse open: else it would go on in the old one here, and begin
// again elsewhere.
func TestTree_AMovedTenantLeavesItsOldAccounts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, treeDocs+planDoc("user", quotaOf("100"))+tenantDoc("org:a", "{}")+tenantDoc("org:b", "{}")+
			tenantDoc("user:u", `{plan: user, parent: "org:a"}`))
		for range 3 {
			k.must(from("user:u"), authz.Allowed)
		}
		k.put(tenantDoc("user:u", `{plan: user, parent: "org:b"}`))
		k.store.watch()
		for range 20 {
			k.must(from("user:u"), authz.Allowed)
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(3 * time.Minute)
		var closed, lent bool
		for _, op := range k.store.watched() {
			closed = closed || op.Key.Root == "org:a" && op.Used == 3 && len(op.Hold) == 0
			lent = lent || op.Key.Root == "org:b" && op.Want > 0
			if op.Key.Root == "org:a" && (op.Want > 0 || op.Used != 3) {
				t.Errorf("in the old tree: used %d, wants %d", op.Used, op.Want)
			}
		}
		if !closed || !lent {
			t.Errorf("old account closed: %v, new one used: %v", closed, lent)
		}
		if a := k.memory.Account(k.memory.Accounts()[0]); a.Used() != 23 || a.Leased() != 0 {
			t.Errorf("used %d, leased %d, want 23 and 0", a.Used(), a.Leased())
		}
	})
}
