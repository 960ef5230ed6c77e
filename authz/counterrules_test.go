package authz_test

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// P1, C126: shadow rules refuse nothing and leave their siblings alone.
func TestCount_P1_C126_Shadow(t *testing.T) {
	inBubble(t, edge("",
		"{key: user, rate_limit: {unit: minute, requests_per_unit: 2}, shadow_mode: true}",
		"{key: user, value: mallory, rate_limit: {unit: minute, requests_per_unit: 1}}",
		"{key: month, rate_limit: {unit: month, requests_per_unit: 2}, shadow_mode: true}",
		limited("ip", "minute", 3)), func(_ *testing.T, k *desk) {
		k.count("user=ann x2")
		k.wantCount("allowed shadow:0", "user=ann")
		k.count("user=mallory")
		k.wantCount("rate_limited OVER:0", "user=mallory")
		k.count("month=1 x2")
		k.wantCount("allowed shadow:0", "month=1")
		for left := range 3 {
			k.wantCount(fmt.Sprintf("allowed shadow:0 OK:%d", 2-left), "user=ann", "ip=2")
		}
		k.wantCount("rate_limited shadow:0 OVER:0", "user=ann", "ip=2")
		k.count("user=ann", "ip=1 x3")
		k.wantCount("rate_limited shadow:0 OVER:0", "user=ann x0", "ip=1")
	})
}

// P2: a whole domain in shadow mode, switched by an edit.
func TestCount_P2_C126_ShadowDomain(t *testing.T) {
	inBubble(t, edge("shadow_mode: true", limited("a", "minute", 1)), func(_ *testing.T, k *desk) {
		k.count("a=1")
		k.wantCount("allowed shadow:0", "a=1")
		k.put(edge("", limited("a", "minute", 1)))
		k.wantCount("rate_limited OVER:0", "a=1")
	})
}

// P5, C126: quota rules refuse once all of them are over; a normal rule always does.
func TestCount_P5_C126_QuotaMode(t *testing.T) {
	inBubble(t, edge("",
		"{key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}",
		"{key: b, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 3}}",
		limited("c", "minute", 5)), func(_ *testing.T, k *desk) {
		k.wantCount("allowed OK:0 OK:2 OK:4", "a=1", "b=1", "c=1")
		k.wantCount("allowed OK:0 OK:1 OK:3", "a=1", "b=1", "c=1")
		k.wantCount("allowed OK:0 OK:0 OK:2", "a=1", "b=1", "c=1")
		k.wantCount("quota_exceeded OVER:0 OVER:0 OK:2", "a=1", "b=1", "c=1")
		k.wantCount("rate_limited OK:0 OK:3 OVER:2", "a=1", "b=2 x0", "c=1 x3")
	})
}

func TestCount_P4_Replaces(t *testing.T) {
	inBubble(t, edge("",
		"{key: user, rate_limit: {name: per_user, unit: minute, requests_per_unit: 1}}",
		"{key: search, rate_limit: {name: search, unit: minute, requests_per_unit: 3, replaces: [{name: per_user}]}}"), func(_ *testing.T, k *desk) {
		for i := range 3 {
			k.wantCount(fmt.Sprintf("allowed replaced OK:%d", 2-i), "user=1", "search=1")
		}
		k.wantCount("rate_limited replaced OVER:0", "user=1", "search=1")
		k.wantCount("allowed OK:0", "user=1")
	})
}

// C051, S31: an override is a counter of its own; a domain may ignore them.
func TestCount_P14_S31_C051_Overrides(t *testing.T) {
	inBubble(t, edge("", limited("a", "minute", 100), "{key: free, rate_limit: {unlimited: true}}"), func(_ *testing.T, k *desk) {
		k.wantCount("allowed OK:0", "a=1 x5 of 5/minute")
		k.wantCount("rate_limited OVER:0", "a=1 of 5/minute")
		k.wantCount("allowed OK:499", "a=1 of 500/minute")
		k.wantCount("rate_limited OVER:0", "a=1 of 5/minute")
		k.wantCount("allowed OK:99", "a=1")
		k.wantCount("allowed OK:1", "unconfigured=1 of 2/hour")
		k.wantCount("allowed OK:1", "unconfigured=2 of 2/hour")
		k.wantCount("allowed OK:6", "free=1 of 7/day")
		k.wantCount("rate_limited OVER:0", "a=1 of 0/second")
		k.put(edge("overrides: ignore", limited("a", "minute", 100)))
		k.wantCount("allowed OK:98 OK", "a=1 of 5/minute", "unconfigured=1 of 2/hour")
	})
}

// C156: what cannot be read is decided by its rule, and without one it is over the limit;
// the other descriptors are decided all the same.
func TestCount_C156_WhatCannotBeRead(t *testing.T) {
	inBubble(t, edge("", limited("a", "minute", 3), "{key: free, rate_limit: {unlimited: true}}", "{key: none}"), func(_ *testing.T, k *desk) {
		k.wantCount("allowed OK:2", "a=1 ?")
		k.wantCount("allowed unlimited", "free=1 ?")
		k.wantCount("allowed OK", "none=1 -2 ?")
		for _, unruled := range []string{"none=1 ?", "unconfigured=1 ?", "unconfigured=1 x0 ?"} {
			k.wantCount("rate_limited OVER OK:2", unruled, "a=1")
		}
		c := k.count("a=1", "none=1 ?")
		if c.RetryAfter != 0 || c.Worst != 1 || !c.Refused() {
			t.Errorf("retry after %s, worst %d", c.RetryAfter, c.Worst)
		}
		k.wantCount("allowed OK:1", "a=1 ?")
		k.wantCount("allowed OK:0", "a=1")
		k.wantCount("rate_limited OVER:0 OVER", "a=1 ?", "none=1 ?")
		k.put(edge("shadow_mode: true", limited("a", "minute", 3)))
		k.wantCount("allowed shadow", "none=1 ?")
	})
}

// C153: once a look has matched a rule its charges are bills: they count in full, beyond the
// limit too, whatever refuses. Weighted requests to other rules stay free when refused.
func TestCount_C153_ChargesOfARuleThatIsLookedAt(t *testing.T) {
	docs := edge("", limited("org", "hour", 20), limited("min", "minute", 20), limited("plain", "hour", 20))
	inBubble(t, docs, func(t *testing.T, k *desk) {
		k.wantCount("allowed OK:11", "org=a x9") // not yet: a weighted request
		k.wantCount("allowed OK:11", "org=a x0")
		k.wantCount("allowed OK:2", "org=a x9")
		k.wantCount("allowed OK:2", "org=a x0")
		k.wantCount("quota_exceeded OVER:0", "org=a x9") // charged all the same: 27 of 20
		k.wantCount("quota_exceeded OVER:0", "org=a x0")
		k.wantCount("request_too_large OVER:0", "org=b x400")
		k.wantCount("quota_exceeded OVER:0", "org=b x0")
		k.wantCount("request_too_large OVER:20", "plain=a x21")
		k.wantCount("allowed OK:0", "plain=a x20")

		k.wantCount("allowed OK:20", "min=a x0")
		k.wantCount("request_too_large OVER:0", "min=a x50")
		c := k.count("min=a x0")
		if !c.Refused() || c.RetryAfter != 93*time.Second {
			t.Errorf("refused %t, retry after %s, want 1m33s for 30 owed and 1 asked for", c.Refused(), c.RetryAfter)
		}
		time.Sleep(c.RetryAfter)
		k.wantCount("allowed OK:1", "min=a x0")
		// A bill beside a descriptor that refuses is charged once.
		k.wantCount("quota_exceeded OVER:0 OVER:0", "plain=a", "min=a x11")
		if c := k.count("min=a x0"); c.RetryAfter != 33*time.Second {
			t.Errorf("retry after %s, want 33s for 10 owed and 1 asked for", c.RetryAfter)
		}
	})
}

// C153: 10,000 a day in calls of 4,000, looked at before and told after: the third is the
// last one.
func TestCount_C153_ABudgetEnds(t *testing.T) {
	inBubble(t, edge("", limited("org", "day", 10_000)), func(t *testing.T, k *desk) {
		served := 0
		for range 200 {
			if !k.count("org=a x0").Refused() {
				served++
				k.count("org=a x4000")
			}
		}
		if served != 3 {
			t.Errorf("%d of 200 served, want 3", served)
		}
	})
}

// C153: what another replica has seen holds here, from the documents on; Envoy's own limits
// and refunds are not concerned.
func TestCount_C153_KnownFromElsewhere(t *testing.T) {
	inBubble(t, edge("", limited("org", "hour", 20)), func(_ *testing.T, k *desk) {
		k.catalog.SetSettledLater("edge / org")
		k.put(edge("", limited("org", "hour", 20), limited("other", "hour", 1)))
		k.wantCount("request_too_large OVER:0", "org=a x25")
		k.wantCount("allowed OK:5", "org=a -10")
		k.wantCount("request_too_large OVER:5", "org=a x6 of 5/minute")
	})
}

// P2: the switch for everything, flipped while requests are decided. Run with the race
// detector.
func TestSetShadowMode_P2_C126_UnderLoad(t *testing.T) {
	t.Parallel()
	docs := app("defaults: {plan: p}\n") + planDoc("p", "per_minute: {kind: rate, amount: 1, window: 1m}\n") + "\n---\n" + edge("", limited("a", "hour", 1), limited("b", "minute", 1))
	k := newDesk(t, docs)
	requests := func(want bool) {
		for range 20 {
			c, dec := k.count("a=1", "b=1"), k.ask(from("t"))
			if want && (c.Refused() || !dec.Outcome.Admits()) {
				t.Errorf("refused in shadow mode: %s, %s", counted(c), dec.Outcome.Word())
			}
		}
	}
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() { requests(false) })
	}
	for i := range 100 {
		k.d.SetShadowMode(i%2 == 0)
	}
	all.Wait()
	k.d.SetShadowMode(true)
	requests(true)
	if c := k.count("a=1", "b=1"); !c.Items[0].Shadowed || !c.Items[1].Shadowed {
		t.Errorf("not told as shadowed: %s", counted(c))
	}
	k.d.SetShadowMode(false)
	if c, dec := k.count("a=1", "b=1"), k.ask(from("t")); !c.Refused() || dec.Outcome.Admits() {
		t.Errorf("after the switch: %s, %s", counted(c), dec.Outcome.Word())
	}
}

// P14: an override stands alone: the flags of the rule it takes the place of do not hold.
func TestCount_P14_P1_P4_P5_OverridesDropTheRule(t *testing.T) {
	inBubble(t, edge("",
		"{key: a, shadow_mode: true, rate_limit: {name: a, unit: minute, requests_per_unit: 9}}",
		"{key: b, rate_limit: {unit: minute, requests_per_unit: 9, replaces: [{name: a}]}}",
		"{key: q, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 9}}"), func(_ *testing.T, k *desk) {
		k.wantCount("allowed OK:0 OK:8", "a=1 of 1/minute", "b=1")
		k.wantCount("rate_limited OVER:0 OK:8", "a=1 of 1/minute", "b=1")
		k.wantCount("allowed OK:0 OK:8", "q=1 of 1/minute", "q=1")
		k.wantCount("rate_limited OVER:0 OK:8", "q=1 of 1/minute", "q=1")
		k.wantCount("allowed OK:1", "of 2/minute") // without entries: one counter of the domain
		k.wantCount("allowed OK:0", "of 2/minute")
	})
}

// C126: a quota rule in shadow mode is one that always has room.
func TestCount_P5_P1_C126_ShadowedQuotaRule(t *testing.T) {
	inBubble(t, edge("",
		"{key: a, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}",
		"{key: b, quota_mode: true, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}"), func(_ *testing.T, k *desk) {
		k.count("a=1", "b=1")
		k.wantCount("allowed OK:0 shadow:0", "a=1", "b=1")
		k.wantCount("rate_limited OVER:0", "a=1")
		k.wantCount("allowed shadow:0", "b=1")
	})
}
