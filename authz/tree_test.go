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
	return "daily: {kind: quota, amount: " + amount + ", cascade: true, reset: {calendar: day}}"
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
		k := newDesk(t, treeDocs+planDoc("org", "daily: {kind: quota, amount: 3, reset: {calendar: day}}")+
			tenantDoc("org:o", "{plan: org}")+tenantDoc("user:own", `{parent: "org:o"}`)+tenantDoc("user:pooled", `{parent: "org:o", pool: root}`))
		for range 3 {
			k.must(from("user:own"), authz.Allowed) // its own counter of the inherited plan
		}
		k.must(from("user:own"), authz.QuotaExceeded)
		for range 3 {
			k.must(from("user:pooled"), authz.Allowed)
		}
		dec := k.must(from("user:pooled"), authz.QuotaExceeded)
		if node := dec.Limits[dec.Worst].Tenant; node != "org:o" {
			t.Errorf("refused by %s, want the pool org:o", node)
		}
		k.must(from("org:o"), authz.QuotaExceeded)
	})
}
