package e2e_test

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/meteproject/mete/quota"
)

// unitsWhile sends requests one by one until one is refused, and returns how many
// were served and the longest time that one of these took.
func (a *app) unitsWhile(t *testing.T) (served int, longest time.Duration) {
	t.Helper()
	for {
		began := time.Now()
		switch r := a.send(t, a.key); r.status {
		case http.StatusOK:
			served++
			longest = max(longest, time.Since(began))
		case http.StatusTooManyRequests:
			return served, longest
		default:
			t.Fatalf("request %d: got %d %s", served+1, r.status, r.body)
		}
	}
}

// The rest of a quota lies idle at one replica while all requests go to another one:
// every unit is served before anything is refused, for the idle replica is asked to
// return what it does not need, and no request waits 300 ms for it (A34, Q38, Q40).
// Without recalls the requests are refused while units are left.
func TestRecall_A34_Q38_Q40_AllIsServedBeforeARefusal(t *testing.T) {
	t.Parallel()
	const amount = 60
	idle := newWorld(t, nil, unchanged)
	asking, silent := newReplica(t, idle), newReplica(t, idle, "--recalls=false")
	used := func(t *testing.T, w *world) (int, time.Duration) {
		t.Helper()
		a := newApp(t, idle, "monthly: {kind: quota, amount: 60, on_unavailable: deny, reset: {calendar: month}}")
		b := a.on(t, w)
		a.admit(t, 1) // and has a tenth on lease
		served, longest := b.unitsWhile(t)
		return served + 1, longest
	}
	t.Run("recalls", func(t *testing.T) {
		for try := 1; ; try++ {
			got, longest := used(t, asking)
			if got != amount {
				t.Fatalf("refused after %d of %d units", got, amount)
			}
			if longest < 300*time.Millisecond {
				break
			}
			if try == 5 { // a busy machine may stand still once
				t.Fatalf("in each of %d runs a request waited 300 ms or more, in the last one %v", try, longest)
			}
		}
		if n := asking.metric(t, "mete_recalls_total"); n < 1 {
			t.Errorf("mete_recalls_total %d, want 1 at least", n)
		}
		if n := idle.metric(t, "mete_recalled_units_total"); n < 5 {
			t.Errorf("mete_recalled_units_total %d, want the 5 of a tenth that lay idle", n)
		}
	})
	t.Run("no recalls", func(t *testing.T) {
		if got, _ := used(t, silent); got >= amount {
			t.Errorf("%d of %d units are served without recalls: the other test shows nothing", got, amount)
		}
		if n := silent.metric(t, "mete_recalls_total"); n != 0 {
			t.Errorf("mete_recalls_total %d, want 0", n)
		}
	})
}

// While two replicas hold leases of a tenant its terms change: by an edit of its plan,
// a move to another one (A51) and a bump by hand. What is new is in force at both
// within a second (A54), the leases of before are closed (A53), and what was used
// stays (Q13).
func TestChange_A51_A53_A54_Q13_LeasesOfBeforeAreClosed(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, unchanged)
	second := newReplica(t, first)
	limits := func(amount string) string {
		return "monthly: {kind: quota, amount: " + amount + ", on_unavailable: deny, reset: {calendar: month}, lease: {first: 100}}"
	}
	a := newApp(t, first, limits("1000"), "headers: {x_quota: true}")
	b := a.on(t, second)
	a.admit(t, 3)
	b.admit(t, 4)
	admitted := int64(7)
	pro := *a
	pro.name += "-pro"
	for _, change := range []struct {
		what, limit string
		documents   map[string]string
	}{
		{"another amount", "2000", map[string]string{"plans/" + a.name: a.plan(limits("2000"))}},
		{"another plan", "3000", map[string]string{
			"plans/" + pro.name: pro.plan(limits("3000")), "tenants/" + a.tenant: document("Tenant", a.tenant, "  plan: "+pro.name),
		}},
		{"a bump", "3000", map[string]string{"state/versions/" + a.tenant: "by hand"}},
	} {
		if holders := a.account(t).Holders; len(holders) != 2 || len(holders[0].Leases) == 0 || len(holders[1].Leases) == 0 {
			t.Fatalf("before %s: holders %+v, want two with leases", change.what, holders)
		}
		revision, began := a.put(t, change.documents), time.Now()
		for _, replica := range []*app{a, b} {
			for limit := ""; limit != change.limit; admitted++ {
				limit = replica.admit(t, 1).header.Get("X-Quota-Limit")
				if took := time.Since(began); took > settleWithin {
					t.Fatalf("%s: X-Quota-Limit is %q after %v, want %s", change.what, limit, took, change.limit)
				}
			}
		}
		for tries := 0; !a.leasedSince(t, revision); tries++ {
			if tries == 50 { // a lease that stays is renewed after 70
				t.Fatalf("after %s: %+v still has leases of before revision %d", change.what, a.account(t), revision)
			}
			time.Sleep(10 * time.Millisecond)
			a.admit(t, 1)
			b.admit(t, 1)
			admitted += 2
		}
		if used := a.account(t).Used(); used < 7 || used > admitted {
			t.Errorf("after %s %d are used, want the 7 of before any of it, and no more than the %d served", change.what, used, admitted)
		}
	}
}

// leasedSince reports whether both replicas hold leases, and none of before a revision.
func (a *app) leasedSince(t *testing.T, revision int64) bool {
	t.Helper()
	holders := a.account(t).Holders
	for _, h := range holders {
		if len(h.Leases) == 0 || slices.ContainsFunc(h.Leases, func(l quota.Lease) bool { return l.Version < revision }) {
			return false
		}
	}
	return len(holders) == 2
}
