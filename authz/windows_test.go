package authz_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

const hourly = "hourly: {kind: quota, amount: 100000, reset: {calendar: hour}}"

// A tenant that asked at the end of one window, and not in the next, has the lease of a
// window in advance again, and no purse of the one between is kept.
func TestDecide_P69_AfterAWindowWithoutRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", hourly)+tenantDoc("org:a", "{plan: free}")) // purses are forgotten on the way
		end := time.Now().Truncate(time.Hour).Add(time.Hour)
		time.Sleep(time.Until(end.Add(-65 * time.Second)))
		k.must(from("org:a"), authz.Allowed) // opens the next window's purse
		end = end.Add(5 * time.Hour)
		time.Sleep(time.Until(end.Add(-10 * time.Minute)))
		k.must(from("org:a"), authz.Allowed)
		time.Sleep(time.Until(end.Add(-65 * time.Second)))
		k.must(from("org:a"), authz.Allowed)
		time.Sleep(time.Until(end.Add(-time.Minute)))
		k.store.slow(100 * time.Millisecond)
		start := time.Now()
		k.must(from("org:a"), authz.Allowed)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the first request of the window waited %v", waited)
		}
		k.store.slow(0)
		time.Sleep(10 * time.Minute)
		k.must(from("org:a"), authz.Allowed)
		if n := k.keeper.Stats().Purses; n > 2 {
			t.Errorf("%d purses are open, want those of this window and the one before", n)
		}
	})
}

// A request that began in the window before changes nothing about when the next one is
// opened.
func TestDecide_P69_A17_AfterALateRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", hourly)+tenantDoc("org:a", "{plan: free}"))
		turn := time.Now().Truncate(time.Hour).Add(time.Hour - time.Minute)
		time.Sleep(time.Until(turn.Add(30 * time.Second)))
		k.must(from("org:a"), authz.Allowed)
		late := from("org:a")
		late.Start = turn.Add(-time.Minute)
		k.must(late, authz.Allowed)
		k.must(from("org:a"), authz.Allowed)
		time.Sleep(time.Minute)
		k.must(from("org:a"), authz.Allowed)
		synctest.Wait()
		if all := k.memory.Accounts(); len(all) != 2 {
			t.Errorf("accounts %v, want those of the two windows", all)
		}
		turn = turn.Add(time.Hour)
		time.Sleep(time.Until(turn.Add(-5 * time.Second)))
		k.must(from("org:a"), authz.Allowed)
		time.Sleep(time.Until(turn))
		k.store.slow(100 * time.Millisecond)
		start := time.Now()
		k.must(from("org:a"), authz.Allowed)
		if waited := time.Since(start); waited != 0 {
			t.Errorf("the first request of the next window waited %v", waited)
		}
	})
}
