package authz_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A limit with a longer budget waits longer, and fails closed; the others do not wait
// with it (C20, C21).
func TestDecide_C20_C21_EachLimitHasItsOwnPatience(t *testing.T) {
	t.Parallel()
	const patient = "\nbytes: {kind: quota, amount: 1000, reset: {calendar: month}, on_unavailable: deny, lease: {wait: 2s}}"
	for _, c := range []struct {
		name, limits string
		store        time.Duration // until it answers
		want         authz.Outcome
		waited       time.Duration
	}{
		{"the store is too slow", monthly("100", ""), 1500 * time.Millisecond, authz.UnavailableAllowed, 300 * time.Millisecond},
		{"slow, but in time for the patient limit", monthly("100", "") + patient, 1500 * time.Millisecond, authz.UnavailableAllowed, 1500 * time.Millisecond},
		{"in time for all", monthly("100", "") + patient, 200 * time.Millisecond, authz.Allowed, 200 * time.Millisecond},
		{"the store is silent", monthly("100", "") + patient, time.Hour, authz.Unavailable, 2 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := newDesk(t, app("")+planDoc("free", c.limits)+tenantDoc("org:a", "{plan: free}"))
				k.store.slow(c.store)
				start := time.Now()
				k.must(from("org:a"), c.want)
				if waited := time.Since(start); waited != c.waited {
					t.Errorf("waited %v, want %v", waited, c.waited)
				}
			})
		})
	}
}

// Allow up to a cap, then deny; a route that says allow is not capped (P44, A62).
func TestDecide_P44_A57_CapOfWhatIsLetOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("units", monthly("100", ", on_unavailable: {allow: {units: 3}}"))+
			planDoc("time", monthly("100", ", on_unavailable: {allow: {for: 1m}}"))+
			tenantDoc("org:units", "{plan: units}")+tenantDoc("org:time", "{plan: time}"))
		k.store.slow(time.Hour)
		for range 3 {
			k.must(from("org:units"), authz.UnavailableAllowed)
		}
		k.must(from("org:units"), authz.Unavailable)
		forced := from("org:units")
		forced.Extensions = []authz.Field{{Name: "mete-on-unavailable", Value: "allow"}}
		k.must(forced, authz.UnavailableAllowed)
		k.must(from("org:time"), authz.UnavailableAllowed)
		time.Sleep(59 * time.Second)
		k.must(from("org:time"), authz.UnavailableAllowed)
		time.Sleep(2 * time.Second)
		k.must(from("org:time"), authz.Unavailable)
		k.store.slow(0)
		time.Sleep(10 * time.Second)
		k.must(from("org:units"), authz.Allowed)
		k.store.slow(time.Hour) // the next outage has a cap of its own
		time.Sleep(2 * time.Minute)
		for range 3 {
			k.must(from("org:units"), authz.UnavailableAllowed)
		}
		k.must(from("org:units"), authz.Unavailable)
	})
}

// exact_below: 100 % as a plan says it: every request is a transaction of its own.
func TestDecide_Q45_ExactBelow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("exact", monthly("5", ", lease: {exact_below: 100%}"))+tenantDoc("org:a", "{plan: exact}"))
		for range 5 {
			k.must(from("org:a"), authz.Allowed)
			synctest.Wait()
			for _, key := range k.memory.Accounts() {
				if n := k.memory.Account(key).Leased(); n > 1 {
					t.Errorf("%d units are out on lease after a request of 1", n)
				}
			}
		}
		k.must(from("org:a"), authz.QuotaExceeded)
	})
}

// A limit in use takes the first lease of its next window before that begins, each
// tenant at another moment, so that at midnight nobody waits and the store is not
// asked by all at once (P69, A52).
func TestDecide_P69_A52_TheNextWindowIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := app("") + planDoc("free", "hourly: {kind: quota, amount: 100000, reset: {calendar: hour}}")
		for i := range 50 {
			docs += tenantDoc(fmt.Sprint("org:", i), "{plan: free}")
		}
		k := newDesk(t, docs)
		everybody := func() {
			for i := range 50 {
				k.must(from(fmt.Sprint("org:", i)), authz.Allowed)
			}
		}
		turn := time.Now().Truncate(time.Hour).Add(time.Hour - time.Minute) // A17
		time.Sleep(time.Until(turn) - time.Minute)
		everybody()
		k.store.watch()
		for time.Now().Before(turn) {
			everybody()
			time.Sleep(time.Second)
		}
		synctest.Wait()
		moments := map[string]int{}
		for _, op := range k.store.watched() {
			if op.Want > 0 && op.Seq == 1 {
				moments[op.Key.Window]++
			}
		}
		k.store.slow(100 * time.Millisecond)
		start := time.Now()
		everybody()
		if waited := time.Since(start); waited != 0 {
			t.Errorf("requests of the new window waited %v", waited)
		}
		if len(moments) != 1 {
			t.Errorf("first leases by window: %v, want those of the next one", moments)
		}
	})
}

// While nothing can be settled, names that somebody makes up do not fill the memory: past
// the bound they share slots with the limit's own amount, in no account (C26).
func TestDecide_C26_NoRoomForMoreTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDeskOn(t, &storetest.Memory{}, "r1", app("defaults: {plan: free}\n")+planDoc("free", monthly("100", "")), 100)
		k.store.slow(time.Hour)
		for i := range 2000 {
			want := authz.Allowed
			if i < 100 {
				want = authz.UnavailableAllowed
			}
			k.must(from(fmt.Sprint("made-up:", i)), want)
		}
		s := k.d.Stats()
		if s.Tenants != 100 || s.Uncounted != 1900 || s.Shared != 1900 {
			t.Errorf("%d tenants kept and %d requests not counted, want 100 and 1,900", s.Tenants, s.Uncounted)
		}
		k.store.slow(0)
		time.Sleep(2 * time.Minute)
		k.must(from("made-up:1999"), authz.Allowed)
		time.Sleep(time.Minute)
		var used int64
		for _, key := range k.memory.Accounts() {
			used += k.memory.Account(key).Used()
		}
		if used+k.d.Stats().Uncounted != 2001 {
			t.Errorf("%d counted and %d not, of 2,001", used, s.Uncounted)
		}
	})
}

// hold takes what is left of a tenant's account of 5 units on lease to another replica.
func hold(t *testing.T, m *storetest.Memory, tenant string) {
	t.Helper()
	for _, key := range m.Accounts() {
		left := 5 - m.Account(key).Used() - m.Account(key).Leased()
		if key.Tenant != tenant || left == 0 {
			continue
		}
		op := quota.Operation{Key: key, Holder: "r3", Seq: 1, Want: 2 * left, Min: left, Ceiling: 5, Replicas: 1}
		if r, err := m.Apply(t.Context(), op); err != nil || r.Left != 0 {
			t.Fatalf("%+v, %v; want all that is left", r, err)
		}
	}
}

// A tenant that is known to be used up by use stays refused while etcd is away, whatever
// the limit says; one that only found the rest on lease to others is let on again, since
// that may have come back.
func TestDecide_A56_A57_UsedUpByUseStaysRefused(t *testing.T) {
	t.Parallel()
	for _, choice := range []string{"allow", "deny"} {
		t.Run(choice, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				memory := &storetest.Memory{}
				docs := app("") + planDoc("free", monthly("5", ", on_unavailable: "+choice)) +
					tenantDoc("org:used", "{plan: free}") + tenantDoc("org:leased", "{plan: free}")
				k, other := newDeskOn(t, memory, "r1", docs, 100), newDeskOn(t, memory, "r2", docs, 100)
				for range 5 {
					other.must(from("org:used"), authz.Allowed)
				}
				time.Sleep(2 * time.Minute) // it is reported
				k.must(from("org:used"), authz.QuotaExceeded)
				k.must(from("org:leased"), authz.Allowed)
				hold(t, memory, "org:leased")
				for k.ask(from("org:leased")).Outcome == authz.Allowed {
				}
				k.store.slow(time.Hour)
				other.store.slow(time.Hour)
				time.Sleep(11 * time.Second) // a refusal is remembered for 10 s
				for range 100 {
					k.must(from("org:used"), authz.QuotaExceeded)
					time.Sleep(time.Second)
				}
				forced := from("org:used")
				forced.Extensions = []authz.Field{{Name: "mete-on-unavailable", Value: "allow"}}
				k.must(forced, authz.QuotaExceeded)
				want := map[string]authz.Outcome{"allow": authz.UnavailableAllowed, "deny": authz.Unavailable}[choice]
				k.must(from("org:leased"), want)
				k.store.slow(0)
				time.Sleep(10 * time.Second)
				k.must(from("org:used"), authz.QuotaExceeded)
				k.store.slow(time.Hour)
				time.Sleep(31 * 24 * time.Hour) // the next window is another account
				k.must(from("org:used"), want)
			})
		})
	}
}
