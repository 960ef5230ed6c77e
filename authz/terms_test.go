package authz_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A move to another plan, an override and an edit of the plan each raise
// the quota version: leases of before are closed as soon as the replica hears of it,
// what was used stays, and new ones are made under the new version (Q13).
func TestDecide_A51_A53_A54_Q13_EachChangeOfTermsClosesTheLeases(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, edit string
		ceiling    int64
	}{
		{"another plan", tenantDoc("org:a", "{plan: pro}"), 500},
		{"an override", tenantDoc("org:a", "{plan: free, overrides: {monthly: {amount: 70, reason: agreed on the phone, until: 2100-01-01T00:00:00Z}}}"), 70},
		{"an edit of the plan", planDoc("free", monthly("60", "")), 60},
		{"a lower amount", planDoc("free", monthly("10", "")), 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newDesk(t, app("")+planDoc("free", monthly("100", ""))+planDoc("pro", monthly("500", ""))+tenantDoc("org:a", "{plan: free}"))
				for range 12 {
					k.must(from("org:a"), authz.Allowed)
				}
				before := k.account("org:a")
				k.put(c.edit)
				want := authz.Allowed
				if c.ceiling < 13 {
					want = authz.QuotaExceeded
				}
				k.must(from("org:a"), want)
				synctest.Wait()
				after := k.account("org:a")
				if after.Used() < 12 || after.Used() > 13 {
					t.Errorf("used %d after the change, want what it was", after.Used())
				}
				for _, l := range after.Holders[0].Leases {
					for _, old := range before.Holders[0].Leases {
						if l.ID == old.ID || l.Version <= old.Version {
							t.Errorf("lease %+v is not newer than %+v", l, old)
						}
					}
				}
				if after.Used()+after.Leased() > max(c.ceiling, 12) {
					t.Errorf("used %d and leased %d of %d", after.Used(), after.Leased(), c.ceiling)
				}
			})
		})
	}
}

// account returns the only account of a tenant.
func (k *desk) account(tenant string) quota.Account {
	k.t.Helper()
	var found []quota.Account
	for _, key := range k.memory.Accounts() {
		if key.Tenant == tenant {
			found = append(found, k.memory.Account(key))
		}
	}
	if len(found) != 1 {
		k.t.Fatalf("%s has %d accounts", tenant, len(found))
	}
	return found[0]
}

// All replicas put a request into the same window, wherever they stand and however
// their clocks differ by less than a minute: one account, one end (S14).
func TestDecide_S14_AllReplicasAgreeOnTheWindow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		docs := app("") + planDoc("free", monthly("1000", "")) + tenantDoc("org:a", "{plan: free}")
		began := time.Now().Add(time.Second)
		ends := map[time.Time]bool{}
		for i := range 4 {
			k := newDeskOn(t, m, fmt.Sprint("r", i), docs, 0)
			req := from("org:a")
			req.Start = began // as Envoy says
			dec := new(authz.Decision)
			dec.Reset()
			k.d.Decide(t.Context(), time.Now().In(time.FixedZone("elsewhere", i*3600)), &req, dec)
			ends[limit(t, dec, "monthly").ResetsAt.UTC()] = true
		}
		if accounts := m.Accounts(); len(accounts) != 1 || len(ends) != 1 {
			t.Errorf("%d accounts and ends %v, want one of each", len(accounts), ends)
		}
	})
}

// Requests in progress settle where they were charged: after a change of terms in the
// same account, after the end of their window in that window's (A55).
func TestDecide_A55_RequestsInProgressSettleWhereTheyBegan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", "hourly: {kind: quota, amount: 100, reset: {calendar: hour}}")+tenantDoc("org:a", "{plan: free}"))
		k.must(from("org:a"), authz.Allowed)
		running := k.must(from("org:a"), authz.Allowed)
		k.put(planDoc("free", "hourly: {kind: quota, amount: 50, reset: {calendar: hour}}"))
		k.must(from("org:a"), authz.Allowed)
		k.d.GiveBack(time.Now(), running)
		time.Sleep(time.Minute)
		if a := k.account("org:a"); a.Used() != 2 || a.Leased() > 48 {
			t.Errorf("used %d, leased %d after one of three requests was given back, want 2 used", a.Used(), a.Leased())
		}
		time.Sleep(time.Until(time.Now().Truncate(time.Hour).Add(time.Hour - 61*time.Second))) // the last second of the window (A17)
		running = k.must(from("org:a"), authz.Allowed)
		first := limit(t, running, "hourly").WindowID
		time.Sleep(2 * time.Second)
		next := limit(t, k.must(from("org:a"), authz.Allowed), "hourly").WindowID
		k.d.GiveBack(time.Now(), running)
		time.Sleep(2 * time.Minute)
		for _, key := range k.memory.Accounts() {
			want := map[string]int64{first: 2, next: 1}[key.Window]
			if used := k.memory.Account(key).Used(); used != want {
				t.Errorf("window %s: used %d, want %d", key.Window, used, want)
			}
		}
		if first == next {
			t.Error("the window did not end")
		}
	})
}

// What was used belongs to the account of the limit and its window, and to no key or
// edit: another window begins at 0, the one before goes on where it was.
func TestDecide_C183_AnotherWindowAnotherKeyTheSameCustomer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		of := func(limit string) string {
			return planDoc("own", "calls: {kind: quota, amount: "+limit+"}")
		}
		k := newDesk(t, identityApp("[{api_key: x-api-key}]", "")+of("5, reset: {calendar: month}, when_used_up: count")+
			tenantDoc("org:a", "{plan: own}")+credentialDoc("mk_1", `{tenant: "org:a"}`))
		until(t, "2026-12-10T11:00:00Z")
		used := func(key string, want authz.Outcome, window string, n int64) {
			t.Helper()
			l := limit(t, k.must(with("x-api-key", key), want), "calls")
			if l.WindowID != window || l.Used != n {
				t.Errorf("with %s: %d used in %s, want %d in %s", key, l.Used, l.WindowID, n, window)
			}
		}
		const month, day = "month@2026-12-01T00:00Z", "day@2026-12-10T00:00Z"
		for i := range int64(7) {
			o := authz.Allowed
			if i >= 5 {
				o = authz.CountedOver
			}
			used("mk_1", o, month, i+1)
		}
		k.put(of("5, reset: {calendar: month}")) // it denies
		used("mk_1", authz.QuotaExceeded, month, 7)
		k.put(credentialDoc("mk_2", `{tenant: "org:a", principal: other}`))
		used("mk_2", authz.QuotaExceeded, month, 7)
		k.put(of("5, reset: {calendar: day}"))
		used("mk_2", authz.Allowed, day, 1)
		k.put(tenantDoc("org:a", "{plan: own, limits: {}}"))
		used("mk_1", authz.Allowed, day, 2)
		k.put(of("9, reset: {calendar: month}"))
		used("mk_1", authz.Allowed, month, 8)
		k.remove(plan.KindCredential, credentialName(t, "mk_1"))
		used("mk_2", authz.Allowed, month, 9)
		k.put(tenantDoc("org:a", "{plan: own, limits: {}}"))
		used("mk_2", authz.QuotaExceeded, month, 9)
		time.Sleep(10 * time.Minute) // all purses are reported and forgotten
		used("mk_2", authz.QuotaExceeded, month, 9)
	})
}
