package authz_test

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A17: a request that waits for a lease belongs to the window in which it began, however
// long it waits.
func TestCount_A17_AWaitChangesNoWindow(t *testing.T) {
	inBubble(t, edge("", limited("a", "hour", 10)), func(t *testing.T, k *desk) {
		time.Sleep(59*time.Minute - 50*time.Millisecond) // half a minute early, none is open yet
		k.store.slow(100 * time.Millisecond)
		c := k.count("a=1")
		if c.Outcome != authz.Allowed || c.Items[0].State.WindowID != "hour@2000-01-01T00:00Z" {
			t.Errorf("%s in %s", counted(c), c.Items[0].State.WindowID)
		}
	})
}

// P1, A56: a rule in shadow mode refuses nothing while etcd is away either.
func TestCount_P1_A56_ShadowRulesDenyNothing(t *testing.T) {
	for name, doc := range map[string]string{
		"rule":   edge("on_unavailable: deny", "{key: a, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}"),
		"domain": edge("on_unavailable: deny, shadow_mode: true", limited("a", "hour", 10)),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, doc, func(_ *testing.T, k *desk) {
				k.store.slow(time.Hour)
				k.wantCount("unavailable_allow OK:9", "a=1")
			})
		})
	}
}

// P5, A56: a rule in quota mode refuses nothing while another one has room.
func TestCount_P5_A56_QuotaRulesDenyTogether(t *testing.T) {
	doc := edge("on_unavailable: deny",
		"{key: a, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}",
		"{key: b, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}")
	inBubble(t, doc, func(_ *testing.T, k *desk) {
		k.store.slow(time.Hour)
		k.wantCount("unavailable_allow OK:9 OK:0", "a=1", "b=1")
		k.wantCount("quota_unavailable OK:9 OVER:0", "a=1", "b=1")
	})
}

// C030: where something else refuses the request nobody waits for leases, and etcd that
// does not answer is no error that would let it on.
func TestCount_C030_A56_LooksAskForNoLease(t *testing.T) {
	inBubble(t, edge("on_unavailable: deny", limited("a", "hour", 10)), func(t *testing.T, k *desk) {
		look := func() *authz.Count {
			c := new(authz.Count)
			c.Reset()
			k.d.CountDescriptors(t.Context(), time.Now(), "edge", []authz.DescriptorAsk{askOf("a=1 x3")}, true, c)
			return c
		}
		from := time.Now()
		if c := look(); counted(c) != "allowed OK:10" {
			t.Errorf("looked: %s", counted(c))
		}
		synctest.Wait()
		if n := k.store.count(); n != 0 {
			t.Errorf("%d operations", n)
		}
		k.store.slow(time.Hour)
		if c := look(); counted(c) != "allowed OK:10" || time.Since(from) > 0 {
			t.Errorf("looked while etcd is away: %s after %v", counted(c), time.Since(from))
		}
		k.count("a=2")
		if c := look(); counted(c) != "allowed OK:10" {
			t.Errorf("looked later while etcd is away: %s", counted(c))
		}
	})
}

// What two descriptors of one counter take together says how long to wait.
func TestCount_P10_P13_WaitsForAllOfACounter(t *testing.T) {
	inBubble(t, edge("", limited("a", "minute", 4), limited("b", "hour", 4)), func(t *testing.T, k *desk) {
		k.count("a=1")
		c := k.count("a=1 x2", "a=1 x2")
		if counted(c) != "rate_limited OK:3 OVER:3" || c.RetryAfter != 15*time.Second {
			t.Errorf("4 of 3: %s, retry after %v", counted(c), c.RetryAfter)
		}
		c = k.count("a=1 x2", "a=1 x3")
		if c.Outcome != authz.RequestTooLarge || c.RetryAfter != 0 {
			t.Errorf("5 of 4 a minute: %s, retry after %v", counted(c), c.RetryAfter)
		}
		c = k.count("b=1 x2", "b=1 x3")
		if c.Outcome != authz.RequestTooLarge || c.RetryAfter != 0 {
			t.Errorf("5 of 4 an hour: %s, retry after %v", counted(c), c.RetryAfter)
		}
	})
}

// A50: what a refused request is charged has nothing to do with an outage.
func TestCount_P10_A50_RefusedHitsAreNoOutage(t *testing.T) {
	inBubble(t, edge("refused_hits: charged", limited("a", "minute", 1), limited("b", "hour", 100)), func(t *testing.T, k *desk) {
		k.count("a=1")
		for range 5 {
			k.count("a=1", "b=1 x30")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		s := k.keeper.Stats()
		if s.LetOnUnits != 0 || s.Overshoot[quota.UnavailableStore] != 0 || s.Overshoot[quota.UnderReserved] != 50 {
			t.Errorf("let on %d, overshoot %v", s.LetOnUnits, s.Overshoot)
		}
	})
}

// C019: an edit that leaves a limit as it was takes no lease away, in any time zone.
func TestCount_C019_EditsInATimeZone(t *testing.T) {
	for _, zone := range []string{"UTC", "Europe/Berlin"} {
		t.Run(zone, func(t *testing.T) {
			inBubble(t, edge("time_zone: "+zone, limited("a", "day", 100)), func(t *testing.T, k *desk) {
				k.count("a=1")
				before := k.store.count()
				k.put(edge("time_zone: "+zone, limited("a", "day", 100), limited("more", "day", 1)))
				k.wantCount("allowed OK:98", "a=1")
				synctest.Wait()
				if n := k.store.count() - before; n != 0 {
					t.Errorf("%d operations for an edit of something else", n)
				}
			})
		})
	}
}

// C027: counters that nobody asks for any more keep no old documents in memory.
func TestCount_C027_OldDomainsAreForgotten(t *testing.T) {
	t.Parallel()
	k := newDesk(t, edge("", limited("a", "minute", 4), limited("b", "day", 4)))
	k.count("a=1", "b=1")
	old := weak.Make(k.catalog.Snapshot().Domain("edge"))
	table := weak.Make(old.Value().Table)
	k.put(edge("", limited("a", "minute", 5), limited("b", "day", 5)))
	for range 10 {
		runtime.GC()
		if old.Value() == nil && table.Value() == nil {
			break
		}
	}
	if old.Value() != nil || table.Value() != nil {
		t.Error("an old domain is still in memory")
	}
	k.wantCount("allowed OK:2 OK:3", "a=1", "b=1")
}

// P13: what others have used long after this replica last heard of them can be given back
// here, too.
func TestCount_P13_RefundsOfWhatOthersUsedSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		doc := edge("", limited("a", "month", 100))
		m := &storetest.Memory{}
		one, two := newDeskOn(t, m, "r1", doc, 0), newDeskOn(t, m, "r2", doc, 0)
		two.wantCount("allowed OK:100", "a=1 -20") // nothing so far
		time.Sleep(time.Hour)
		one.count("a=1 x50")
		time.Sleep(5 * time.Minute)
		two.wantCount("allowed OK:70", "a=1 -20")
	})
}

// C26: what values without room take of the slots that they share is in no account, and
// counted as that once, with all descriptors, however often it is decided again.
func TestCount_C26_UncountedOnce(t *testing.T) {
	for _, choice := range []string{"allow", "deny"} {
		t.Run(choice, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				doc := edge("on_unavailable: "+choice, limited("a", "hour", 10),
					"{key: w, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 10}}", "{key: known, value: one, rate_limit: {unit: hour, requests_per_unit: 10}}")
				k := newDeskWith(t, &storetest.Memory{}, "r1", doc, authz.Config{MaxCounters: 1})
				k.count("a=known")
				k.store.slow(time.Hour)
				before := k.d.Stats().Uncounted
				k.wantCount("allowed OK:8 OK:5 OK:9 OK:10", "a=new x2", "a=new x3", "w=new", "a=refund -7")
				if n := k.d.Stats().Uncounted - before; n != 6 {
					t.Errorf("%d hits not counted, want 6", n)
				}
				k.wantCount("quota_exceeded OVER:5", "a=new x6") // the limit's own amount
				k.wantCount("allowed OK:0", "a=new x5")
				k.wantCount("quota_exceeded OVER:0", "a=new")
				k.count("known=one") // a value of the rules has its counter, and waits for etcd
				if s := k.d.Stats(); s.Counters != 2 {
					t.Errorf("%d counters are kept, want that of the rule's own value, too", s.Counters)
				}
			})
		})
	}
}

// For a request that a bucket refuses nobody asks etcd for a lease. A quota that it would not
// fit into at all tells so.
func TestCount_P13_P16_RefusedByABucket(t *testing.T) {
	inBubble(t, edge("", limited("ip", "minute", 1), limited("org", "year", 12)), func(t *testing.T, k *desk) {
		k.count("ip=1")
		from := time.Now()
		k.wantCount("rate_limited OVER:0 OK:12", "ip=1", "org=a")
		k.wantCount("request_too_large OVER:0 OVER:12", "ip=1", "org=a x13")
		synctest.Wait()
		if n := k.store.count(); n != 0 || time.Since(from) > 0 {
			t.Errorf("%d operations in %v for refused requests", n, time.Since(from))
		}
	})
}

// A17: so it is for requests that an app decides, where Envoy does not say when they began.
func TestDecide_A17_AWaitChangesNoWindow(t *testing.T) {
	docs := app("defaults: {plan: p}\n") + planDoc("p", "hourly: {kind: quota, amount: 10, reset: {calendar: hour}}\n")
	inBubble(t, docs, func(t *testing.T, k *desk) {
		time.Sleep(59*time.Minute - 50*time.Millisecond)
		k.store.slow(100 * time.Millisecond)
		dec := k.ask(from("t"))
		if dec.Outcome != authz.Allowed || dec.Limits[0].WindowID != "hour@2000-01-01T00:00Z" {
			t.Errorf("%s in %s", dec.Outcome.Word(), dec.Limits[0].WindowID)
		}
	})
}

// P1: a shadow rule that is over takes nothing.
func TestCount_P1_P13_OverInShadowTakesNothing(t *testing.T) {
	inBubble(t, edge("", "{key: a, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 2}}"), func(t *testing.T, k *desk) {
		k.count("a=1 x2")
		k.wantCount("allowed shadow:0", "a=1 x5")
		time.Sleep(2 * time.Minute)
		for _, key := range k.memory.Accounts() {
			if n := k.memory.Account(key).Used(); n != 2 {
				t.Errorf("%v: %d used, want 2", key, n)
			}
		}
	})
}

// C030: what a refused request took of a bucket is given back, and no more.
func TestCount_P10_C030_GivesBackRefusedHits(t *testing.T) {
	inBubble(t, edge("refused_hits: charged", limited("a", "minute", 5)), func(_ *testing.T, k *desk) {
		k.count("a=1 x3")
		c := k.count("a=1 x4")
		k.wantCount("rate_limited OVER:0", "a=1 x0")
		k.d.GiveBackCount(time.Now(), c)
		k.wantCount("allowed OK:2", "a=1 x0")
	})
}

// A49, C030: what was let on without a lease is not there to be spent when it is given back.
func TestCount_A49_C030_GivesBackWhatWasLetOn(t *testing.T) {
	inBubble(t, edge("", limited("a", "hour", 100)), func(_ *testing.T, k *desk) {
		k.wantCount("allowed OK:99", "a=1") // 9 more are leased
		k.store.slow(time.Hour)
		c := k.count("a=1 x20")
		k.d.GiveBackCount(time.Now(), c)
		k.wantCount("allowed OK:90", "a=1 x9")
		k.wantCount("unavailable_allow OK:89", "a=1")
	})
}

// A57, A61: what is let on while etcd is away is counted as that, and who is denied hears for
// how long nobody will be asked.
func TestCount_A57_A61_LetOnAndDenied(t *testing.T) {
	doc := func(choice string) string { return edge("on_unavailable: "+choice, limited("a", "hour", 100)) }
	inBubble(t, doc("allow"), func(t *testing.T, k *desk) {
		k.store.slow(time.Hour)
		k.count("a=1 x7")
		if n := k.keeper.Stats().LetOnUnits; n != 7 {
			t.Errorf("%d units let on, want 7", n)
		}
		k.put(doc("deny"))
		if c := k.count("a=1"); c.Outcome != authz.Unavailable || c.RetryAfter < 4*time.Second {
			t.Errorf("%s, retry after %v", counted(c), c.RetryAfter)
		}
	})
}

// P4: an unlimited one is not taken out: it counts nothing.
func TestCount_P4_UnlimitedStays(t *testing.T) {
	inBubble(t, edge("",
		"{key: a, rate_limit: {unit: minute, requests_per_unit: 3, replaces: [{name: all}]}}",
		"{key: b, rate_limit: {name: all, unlimited: true}}",
		"{key: c, rate_limit: {name: all, unit: minute, requests_per_unit: 3}}"), func(t *testing.T, k *desk) {
		c := k.count("a=1", "b=1", "c=1")
		if counted(c) != "allowed OK:2 unlimited replaced" || c.Items[1].Replaced {
			t.Errorf("%s, the unlimited one replaced: %v", counted(c), c.Items[1].Replaced)
		}
	})
}

// P14, C012: where all values of a pattern share a counter, so do limits that Envoy sends.
func TestCount_P14_C012_OverridesOfASharedCounter(t *testing.T) {
	inBubble(t, edge("", "{key: a, value: x*, share_threshold: true, rate_limit: {unit: minute, requests_per_unit: 9}}"), func(_ *testing.T, k *desk) {
		k.wantCount("allowed OK:1", "a=x1 of 2/minute")
		k.wantCount("allowed OK:0", "a=x2 of 2/minute")
	})
}

// A counter that is used up by use stays over its limit while etcd is away.
func TestCount_A56_A57_UsedUpByUseStaysOver(t *testing.T) {
	inBubble(t, edge("", limited("a", "hour", 4)), func(t *testing.T, k *desk) {
		k.count("a=1 x4")
		time.Sleep(time.Minute) // it is reported
		k.wantCount("quota_exceeded OVER:0", "a=1")
		k.store.slow(time.Hour)
		time.Sleep(11 * time.Second) // a refusal is remembered for 10 s
		for range 20 {
			k.wantCount("quota_exceeded OVER:0", "a=1")
			time.Sleep(time.Second)
		}
		k.wantCount("unavailable_allow OK:3", "a=2")
	})
}
