package authz_test

import (
	"strings"
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

// A month has the length that its days have where the quota's clock is set forward or back
// in it, whenever the tenant's account was made.
func TestDecide_C177_MonthsWithAChangeOfTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, strings.Replace(app("defaults: {plan: free}"), "Europe/Berlin", "America/New_York", 1)+planDoc("free", monthly("1000", "")))
		for _, step := range []struct {
			at, tenant string
			window     time.Duration
			id, resets string
			used       int64
		}{
			{"2026-10-20T12:00:00Z", "org:old", 2_678_400 * time.Second, "month@2026-10-01T04:00Z", "2026-11-01T04:00:00Z", 1},
			{"2026-11-01T04:30:00Z", "org:before", 2_595_600 * time.Second, "month@2026-11-01T04:00Z", "2026-12-01T05:00:00Z", 1}, // 00:30, still in summer time
			{"2026-11-01T07:30:00Z", "org:after", 2_595_600 * time.Second, "month@2026-11-01T04:00Z", "2026-12-01T05:00:00Z", 1},
			{"2026-11-20T12:00:00Z", "org:before", 2_595_600 * time.Second, "month@2026-11-01T04:00Z", "2026-12-01T05:00:00Z", 2},
			{"2026-11-20T12:00:00Z", "org:old", 2_595_600 * time.Second, "month@2026-11-01T04:00Z", "2026-12-01T05:00:00Z", 1},
			{"2026-12-01T04:58:59Z", "org:after", 2_595_600 * time.Second, "month@2026-11-01T04:00Z", "2026-12-01T05:00:00Z", 2},
			{"2026-12-01T05:00:00Z", "org:after", 2_678_400 * time.Second, "month@2026-12-01T05:00Z", "2027-01-01T05:00:00Z", 1},
			{"2027-03-02T12:00:00Z", "org:march", 2_674_800 * time.Second, "month@2027-03-01T05:00Z", "2027-04-01T04:00:00Z", 1},
			{"2027-03-14T08:00:00Z", "org:late", 2_674_800 * time.Second, "month@2027-03-01T05:00Z", "2027-04-01T04:00:00Z", 1},
			{"2027-03-31T12:00:00Z", "org:march", 2_674_800 * time.Second, "month@2027-03-01T05:00Z", "2027-04-01T04:00:00Z", 2},
			{"2027-04-01T04:00:00Z", "org:march", 2_592_000 * time.Second, "month@2027-04-01T04:00Z", "2027-05-01T04:00:00Z", 1},
		} {
			until(t, step.at)
			l := limit(t, k.must(from(step.tenant), authz.Allowed), "monthly")
			if resets := l.ResetsAt.UTC().Format(time.RFC3339); l.Window != step.window || l.WindowID != step.id || resets != step.resets || l.Used != step.used {
				t.Errorf("%s at %s: w %v of %s, resets %s, used %d; want %+v", step.tenant, step.at, l.Window, l.WindowID, resets, l.Used, step)
			}
		}
	})
}
