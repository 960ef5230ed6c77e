package authz_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store/storetest"
)

// askOf reads "org=a route=list x5": entries, and how many hits (1 unless said). "x0"
// looks, "-3" gives back, "of 5/minute" is an override.
func askOf(text string) authz.DescriptorAsk {
	ask := authz.DescriptorAsk{Hits: 1}
	override, of := false, ""
	for word := range strings.FieldsSeq(text) {
		key, value, entry := strings.Cut(word, "=")
		n, err := strconv.ParseInt(strings.TrimLeft(word, "x-"), 10, 64)
		switch {
		case override:
			of = word
		case entry:
			ask.Entries = append(ask.Entries, plan.DescriptorEntry{Key: key, Value: value})
		case word == "of":
			override = true
		case err == nil:
			ask.Hits, ask.Refund = n, word[0] == '-'
		default:
			panic(text)
		}
	}
	if override {
		amount, unit, _ := strings.Cut(of, "/")
		n, _ := strconv.ParseInt(amount, 10, 64)
		ask.HasOverride, ask.Override = true, plan.DescriptorLimit{Amount: n, Multiplier: 1}
		for u := plan.UnitSecond; u <= plan.UnitYear; u++ {
			if u.String() == unit {
				ask.Override.Unit = u
			}
		}
	}
	return ask
}

// count counts descriptors in the domain edge.
func (k *desk) count(texts ...string) *authz.Count {
	asks := make([]authz.DescriptorAsk, 0, len(texts))
	for _, text := range texts {
		asks = append(asks, askOf(text))
	}
	c := new(authz.Count)
	c.Reset()
	k.d.CountDescriptors(context.Background(), time.Now(), "edge", asks, false, c)
	return c
}

// counted is the outcome and for each descriptor "OK", "OVER" or "shadow" and what is left.
func counted(c *authz.Count) string {
	var b strings.Builder
	b.WriteString(c.Outcome.Word())
	for i := range c.Items {
		it := &c.Items[i]
		word := " OK"
		switch {
		case it.Over:
			word = " OVER"
		case it.Shadowed:
			word = " shadow"
		case it.Unlimited:
			word = " unlimited"
		case it.Replaced:
			word = " replaced"
		}
		b.WriteString(word)
		if it.State.Limit != nil {
			fmt.Fprintf(&b, ":%d", it.State.Left)
		}
	}
	return b.String()
}

func (k *desk) wantCount(want string, texts ...string) {
	k.t.Helper()
	if got := counted(k.count(texts...)); got != want {
		k.t.Errorf("%q: %s, want %s", texts, got, want)
	}
}

// edge is a domain with rules, one a line: "org=a route 4/minute shadow".
func edge(settings string, rules ...string) string {
	b := &strings.Builder{}
	b.WriteString("domain: edge\n")
	if settings != "" {
		b.WriteString("mete: {" + settings + "}\n")
	}
	b.WriteString("descriptors:\n")
	for _, rule := range rules {
		b.WriteString("  - " + rule + "\n")
	}
	return b.String()
}

func inBubble(t *testing.T, docs string, f func(t *testing.T, k *desk)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { f(t, newDesk(t, docs)) })
}

func limited(key, unit string, n int) string {
	return fmt.Sprintf("{key: %s, rate_limit: {unit: %s, requests_per_unit: %d}}", key, unit, n)
}

// C030: what one descriptor refuses takes nothing of the others, whatever their order.
func TestCount_P13_C030_AllOrNothing(t *testing.T) {
	inBubble(t, edge("", limited("a", "minute", 10), limited("b", "minute", 3), limited("c", "hour", 10), limited("d", "hour", 2)), func(_ *testing.T, k *desk) {
		for range 3 {
			k.count("a=1", "b=1")
		}
		k.wantCount("rate_limited OK:7 OVER:0", "a=1", "b=1")
		k.wantCount("rate_limited OVER:0 OK:7", "b=1", "a=1")
		k.wantCount("allowed OK:6", "a=1")
		k.wantCount("allowed OK:9 OK:1", "c=1", "d=1")
		k.wantCount("quota_exceeded OK:9 OVER:1", "c=1", "d=1 x2")
		k.wantCount("rate_limited OK:9 OVER:0", "c=1", "b=1")
		k.wantCount("request_too_large OVER:6 OK:9", "a=1 x11", "c=1")
		k.wantCount("allowed OK:8", "c=1")
	})
}

// C046: looking charges nothing and is over only where nothing at all is left.
func TestCount_P13_C046_Hits(t *testing.T) {
	for _, unit := range []string{"minute", "hour"} {
		t.Run(unit, func(t *testing.T) {
			inBubble(t, edge("", limited("a", unit, 4)), func(_ *testing.T, k *desk) {
				k.wantCount("allowed OK:4", "a=1 x0")
				k.wantCount("allowed OK:2", "a=1 x2")
				over := counted(k.count("a=1 x3"))
				if !strings.HasSuffix(over, " OVER:2") {
					k.t.Errorf("3 of 2: %s", over)
				}
				k.wantCount("allowed OK:2", "a=1 x0")
				k.wantCount("allowed OK:0", "a=1 x2")
				if got := counted(k.count("a=1 x0")); !strings.HasSuffix(got, " OVER:0") {
					k.t.Errorf("looked at nothing: %s", got)
				}
				if got := counted(k.count("a=1")); !strings.HasSuffix(got, " OVER:0") {
					k.t.Errorf("1 of 0: %s", got)
				}
			})
		})
	}
}

// A look opens no account.
func TestCount_P13_C046_LooksOpenNothing(t *testing.T) {
	inBubble(t, edge("", limited("a", "hour", 4)), func(t *testing.T, k *desk) {
		k.wantCount("allowed OK:4", "a=1 x0")
		synctest.Wait()
		if n := k.store.count(); n != 0 {
			t.Errorf("%d operations for a look", n)
		}
	})
}

// The same descriptor twice is charged twice; the statuses tell what each leaves.
func TestCount_P10_Twice(t *testing.T) {
	for _, unit := range []string{"minute", "day"} {
		t.Run(unit, func(t *testing.T) {
			inBubble(t, edge("", limited("a", unit, 3)), func(_ *testing.T, k *desk) {
				k.wantCount("allowed OK:2 OK:1", "a=1", "a=1")
				if got := counted(k.count("a=1", "a=1")); !strings.HasSuffix(got, " OK:1 OVER:1") {
					k.t.Errorf("two of one left: %s", got)
				}
				k.wantCount("allowed OK:0", "a=1")
			})
		})
	}
}

func TestCount_C008_P3_ZeroAndUnlimited(t *testing.T) {
	inBubble(t, edge("", limited("never", "second", 0), limited("nothing", "day", 0), "{key: free, rate_limit: {unlimited: true}}", "{key: bare}"), func(t *testing.T, k *desk) {
		c := k.count("never=1")
		if counted(c) != "rate_limited OVER:0" || c.RetryAfter != 0 || c.Items[0].State.Reset != -1 {
			t.Errorf("a rate of 0: %s, retry after %v", counted(c), c.RetryAfter)
		}
		k.wantCount("rate_limited OVER:0", "never=1 x0")
		c = k.count("nothing=1")
		if counted(c) != "quota_exceeded OVER:0" || c.RetryAfter <= 0 {
			t.Errorf("a quota of 0: %s, retry after %v", counted(c), c.RetryAfter)
		}
		k.wantCount("allowed unlimited OK OK", "free=1 x1000", "bare=1", "other=1")
		if c := k.count("other=1"); c.Items[0].Match != nil {
			t.Errorf("no rule, but %+v", c.Items[0].Match)
		}
	})
}

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

func TestCount_P13_Refunds(t *testing.T) {
	for _, unit := range []string{"minute", "month"} {
		t.Run(unit, func(t *testing.T) {
			inBubble(t, edge("", limited("a", unit, 10)), func(_ *testing.T, k *desk) {
				k.count("a=1 x10")
				k.wantCount("allowed OK:4", "a=1 -4")
				k.wantCount("allowed OK:0", "a=1 x4")
				k.wantCount("allowed OK:10", "a=1 -4000") // no more than was used
				k.wantCount("allowed OK:0", "a=1 x10")
				k.put(edge("refunds: ignore", limited("a", unit, 10)))
				k.wantCount("allowed OK:0", "a=1 -4")
			})
		})
	}
}

// What others have used can be given back here, and no more than that.
func TestCount_P13_RefundsOfOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		doc := edge("", limited("a", "month", 100))
		m := &storetest.Memory{}
		one, two := newDeskOn(t, m, "r1", doc, 0), newDeskOn(t, m, "r2", doc, 0)
		one.count("a=1 x50")
		if err := one.keeper.Settle(t.Context()); err != nil {
			t.Fatal(err)
		}
		two.wantCount("allowed OK:70", "a=1 -20")
		two.wantCount("allowed OK:100", "a=1 -1000")
	})
}

// A refund is given although another descriptor of the request refuses.
func TestCount_P13_RefundsBesideRefusals(t *testing.T) {
	inBubble(t, edge("", limited("a", "minute", 5), limited("b", "month", 5)), func(_ *testing.T, k *desk) {
		k.count("a=1 x5", "b=1 x5")
		k.wantCount("rate_limited OVER:0 OK:2", "a=1", "b=1 -2")
	})
}

// The way of envoyproxy/ratelimit, for those who ask for it.
func TestCount_P10_RefusedHitsCharged(t *testing.T) {
	inBubble(t, edge("refused_hits: charged", limited("a", "hour", 12), limited("b", "minute", 12), limited("c", "hour", 100)), func(_ *testing.T, k *desk) {
		for _, key := range []string{"a", "b"} {
			k.count(key + "=1 x5")
			k.count(key+"=1 x5", "c="+key)
			if c := k.count(key+"=1 x5", "c="+key); !c.Refused() || c.Items[1].State.Left != 98 {
				k.t.Errorf("%s: %s", key, counted(c))
			}
			if c := k.count(key + "=1"); !c.Refused() {
				k.t.Errorf("%s: %s, although the refused hits are charged", key, counted(c))
			}
		}
	})
}

// Units of an hour and longer follow the calendar of the domain's zone.
func TestCount_P11_C052_C053_Calendar(t *testing.T) {
	berlin, _ := time.LoadLocation("Europe/Berlin")
	for _, tt := range []struct {
		unit, zone, used, last, next string
	}{
		{"hour", "UTC", "2026-12-01T10:00:00Z", "2026-12-01T10:58:00Z", "2026-12-01T11:00:00Z"},
		{"day", "UTC", "2026-12-01T00:00:00Z", "2026-12-01T23:58:00Z", "2026-12-02T00:00:00Z"},
		{"week", "UTC", "2026-11-30T00:00:00Z", "2026-12-06T23:58:00Z", "2026-12-07T00:00:00Z"},
		{"month", "UTC", "2026-12-01T00:00:00Z", "2026-12-31T23:58:00Z", "2027-01-01T00:00:00Z"},
		{"month", "UTC", "2027-02-10T00:00:00Z", "2027-02-28T23:58:00Z", "2027-03-01T00:00:00Z"},
		{"month", "UTC", "2028-02-10T00:00:00Z", "2028-02-29T23:58:00Z", "2028-03-01T00:00:00Z"},
		{"year", "UTC", "2028-01-01T00:00:00Z", "2028-12-31T12:00:00Z", "2029-01-01T00:00:00Z"},
		{"month", "Europe/Berlin", "2026-12-01T00:00:00Z", "2026-12-31T22:58:00Z", "2026-12-31T23:00:00Z"},
	} {
		t.Run(tt.unit+" "+tt.next, func(t *testing.T) {
			inBubble(t, edge("time_zone: "+tt.zone, limited("a", tt.unit, 2)), func(t *testing.T, k *desk) {
				until := func(at string) {
					when, err := time.Parse(time.RFC3339, at)
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Until(when))
				}
				until(tt.used)
				k.wantCount("allowed OK:0", "a=1 x2")
				until(tt.last)
				c := k.count("a=1")
				end, _ := time.Parse(time.RFC3339, tt.next)
				if !c.Refused() || c.RetryAfter != time.Until(end) {
					t.Errorf("at %s: %s, retry after %v", time.Now().In(berlin), counted(c), c.RetryAfter)
				}
				until(tt.next)
				k.wantCount("allowed OK:1", "a=1")
			})
		})
	}
}

// An edit of an amount sets nothing back (C017), one that changes nothing neither (C019).
func TestCount_P21_C017_C019_Edits(t *testing.T) {
	inBubble(t, edge("", limited("a", "minute", 10), limited("b", "month", 100)), func(_ *testing.T, k *desk) {
		k.count("a=1 x10", "b=1 x100")
		k.put(edge("", "{key: more}", limited("b", "month", 250), limited("a", "minute", 10)))
		k.wantCount("rate_limited OVER:0", "a=1")
		k.wantCount("allowed OK:149", "b=1")
		k.put(edge("", limited("a", "minute", 600)))
		time.Sleep(time.Second)
		k.wantCount("allowed OK:9 OK", "a=1", "b=1")
	})
}

// P36: a counter that somebody has cleared by hand is full again.
func TestCount_P36_ClearedBucket(t *testing.T) {
	inBubble(t, edge("", limited("a", "minute", 3)), func(_ *testing.T, k *desk) {
		k.count("a=x/y x3")
		k.count("a=z x3")
		k.catalog.SetVoid("edge?a=x%2Fy", 1000)
		k.publish()
		k.wantCount("allowed OK:2", "a=x/y")
		k.wantCount("rate_limited OVER:0", "a=z")
	})
}

// Requests that want the counters in different orders do not stop each other, and no
// more than the limits pass.
func TestCount_C049_Concurrently(t *testing.T) {
	t.Parallel()
	k := newDesk(t, edge("", limited("a", "day", 300), limited("b", "day", 200), limited("c", "minute", 0+1000000)))
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			texts := []string{"a=1", "b=1", "c=1"}
			if i%2 == 1 {
				texts = []string{"c=1", "b=1", "a=1"}
			}
			for range 50 {
				if !k.count(texts...).Refused() {
					admitted.Add(1)
				}
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != 200 {
		t.Errorf("%d admitted of a limit of 200", n)
	}
	if left := k.count("a=1 x0").Items[0].State.Left; left != 100 {
		t.Errorf("%d left of the wider limit, want 100", left)
	}
}

// Long values have counters of their own, under names of bounded length; bytes are
// compared as bytes (C027).
func TestCount_C027_LongAndStrangeValues(t *testing.T) {
	inBubble(t, edge("", limited("a", "hour", 1)), func(t *testing.T, k *desk) {
		long := strings.Repeat("x", 60_000)
		for _, value := range []string{long, long + "y", "\xff", "\xfe", "%FF", "", strings.Repeat("%", 255)} {
			k.wantCount("allowed OK:0", "a="+value)
			if c := k.count("a=" + value); !c.Refused() || len(c.Items[0].State.Tenant) > 256 {
				t.Errorf("%.20q: %s, counter %s", value, counted(c), c.Items[0].State.Tenant)
			}
		}
	})
}

// While etcd is away the domain's choice holds for hours; minutes go on.
func TestCount_A56_C117_EtcdAway(t *testing.T) {
	for choice, want := range map[string]string{"allow": "unavailable_allow OK:9", "deny": "quota_unavailable OK:10"} {
		t.Run(choice, func(t *testing.T) {
			inBubble(t, edge("on_unavailable: "+choice, limited("a", "hour", 10), limited("b", "minute", 1)), func(_ *testing.T, k *desk) {
				k.store.slow(time.Hour)
				k.wantCount(want, "a=1")
				k.wantCount("allowed OK:0", "b=1")
				k.wantCount(map[string]string{"allow": "rate_limited OK:9 OVER:0", "deny": "rate_limited OK:10 OVER:0"}[choice], "a=1 x0", "b=1")
			})
		})
	}
}

func TestCount_C004_NoDocument(t *testing.T) {
	t.Parallel()
	k := newDesk(t, "domain: other\n")
	if c := k.count("a=1"); c.Outcome != authz.NoApp || c.Domain != nil {
		t.Errorf("unknown domain: %v", c.Outcome.Word())
	}
	k.catalog.PutBroken(plan.KindRateLimits, "edge", 7, "rate limits edge have never been valid")
	k.publish()
	if c := k.count("a=1"); c.Outcome.Admits() && c.Outcome != authz.UnavailableAllowed || !strings.Contains(c.Why, "never been valid") {
		t.Errorf("a domain that was never valid: %v (%s)", c.Outcome.Word(), c.Why)
	}
	d := authz.New(authz.Config{Keeper: idleKeeper(), Now: time.Now})
	c := new(authz.Count)
	c.Reset()
	if d.CountDescriptors(t.Context(), time.Now(), "edge", nil, false, c); c.Outcome != authz.NotReady {
		t.Errorf("no documents: %v", c.Outcome.Word())
	}
}

// Nothing is charged where something else refuses; what was charged can be given back.
func TestCount_C030_LookAndGiveBack(t *testing.T) {
	inBubble(t, edge("", limited("a", "hour", 10), limited("b", "minute", 10)), func(t *testing.T, k *desk) {
		c := new(authz.Count)
		c.Reset()
		asks := []authz.DescriptorAsk{askOf("a=1 x3"), askOf("b=1 x3")}
		k.d.CountDescriptors(t.Context(), time.Now(), "edge", asks, true, c)
		if counted(c) != "allowed OK:10 OK:10" {
			t.Errorf("looked: %s", counted(c))
		}
		c.Reset()
		k.d.CountDescriptors(t.Context(), time.Now(), "edge", asks, false, c)
		if counted(c) != "allowed OK:7 OK:7" {
			t.Errorf("charged: %s", counted(c))
		}
		k.d.GiveBackCount(time.Now(), c)
		k.d.GiveBackCount(time.Now(), c)
		k.wantCount("allowed OK:9 OK:9", "a=1", "b=1")
	})
}

// R22, R23: the shares of split limits.
func TestCount_R22_R23_Split(t *testing.T) {
	inBubble(t, edge("replicas: split", limited("a", "minute", 10)), func(_ *testing.T, k *desk) {
		k.d.SetReplicas(4)
		k.wantCount("allowed OK:2", "a=1")
		k.d.SetReplicas(1)
		k.wantCount("allowed OK:1", "a=1")
	})
}

// P16: nothing left is remembered, the store is not asked again.
func TestCount_P16_RemembersRefusals(t *testing.T) {
	inBubble(t, edge("", limited("a", "month", 5)), func(t *testing.T, k *desk) {
		k.count("a=1 x5")
		k.count("a=1")
		before := k.store.count()
		for range 100 {
			k.wantCount("quota_exceeded OVER:0", "a=1")
		}
		if n := k.store.count() - before; n != 0 {
			t.Errorf("%d operations for 100 refusals", n)
		}
	})
}

// Tenants and counters of one name are not each other's (C022).
func TestCount_C022_NotATenant(t *testing.T) {
	docs := app("defaults: {plan: p}\n") + planDoc("p", "monthly: {kind: quota, amount: 5, reset: {calendar: month}}\n") + "\n---\n" + edge("", limited("a", "month", 5))
	inBubble(t, docs, func(_ *testing.T, k *desk) {
		k.count("a=1 x5")
		k.must(from("edge?a=1"), authz.Allowed)
		k.wantCount("quota_exceeded OVER:0", "a=1")
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

// A refund beside a limit that waits for a lease is given once, though the request is
// decided anew after the wait.
func TestCount_P13_RefundsOnceBesideAWait(t *testing.T) {
	inBubble(t, edge("", limited("a", "week", 10), limited("b", "minute", 10)), func(_ *testing.T, k *desk) {
		k.count("a=1 x3", "b=1 x9")
		k.wantCount("allowed OK:9 OK:2 OK:9", "a=2", "b=1 -1", "a=3")
		k.wantCount("allowed OK:8 OK:9", "a=1 -1", "a=4")
	})
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

// A look tells what was left before its request, whatever else the request takes, in
// whatever order.
func TestCount_P13_LooksBesideATake(t *testing.T) {
	for _, unit := range []string{"minute", "hour"} {
		t.Run(unit, func(t *testing.T) {
			inBubble(t, edge("", limited("a", unit, 2)), func(_ *testing.T, k *desk) {
				if got := counted(k.count("a=1 x9", "a=1 x0")); !strings.HasSuffix(got, " OVER:2 OK:2") {
					k.t.Errorf("9 of 2 and a look: %s", got)
				}
				k.wantCount("allowed OK:0 OK:0", "a=1 x2", "a=1 x0")
				if got := counted(k.count("a=1 x0", "b=1")); !strings.HasSuffix(got, " OVER:0 OK") {
					k.t.Errorf("a look at nothing: %s", got)
				}
			})
		})
	}
}

// What was charged past the amount is given back first, and nothing of it can be spent.
func TestCount_P13_RefundsOfRefusedHits(t *testing.T) {
	inBubble(t, edge("refused_hits: charged", limited("a", "hour", 2)), func(_ *testing.T, k *desk) {
		k.wantCount("allowed OK:1", "a=1")
		if c := k.count("a=1 x5"); !c.Refused() {
			k.t.Errorf("5 of 1: %s", counted(c))
		}
		k.wantCount("allowed OK:0", "a=1 -3") // 3 of 2 are used
		k.wantCount("quota_exceeded OVER:0", "a=1 x0")
		if c := k.count("a=1"); !c.Refused() { // counted: 4 of 2
			k.t.Errorf("1 of nothing: %s", counted(c))
		}
		k.wantCount("allowed OK:1", "a=1 -3")
		k.wantCount("allowed OK:0", "a=1")
	})
}

// In a refused request each quota tells whether it would refuse, too, though nobody asks
// etcd for a lease any more.
func TestCount_P13_StatusesOfTheRefused(t *testing.T) {
	inBubble(t, edge("", limited("ip", "minute", 1), limited("org", "year", 12)), func(_ *testing.T, k *desk) {
		k.count("ip=1", "org=a x12")
		time.Sleep(15 * time.Second) // the refusal is not remembered any more, if there was one
		k.wantCount("quota_exceeded OVER:0 OVER:0", "ip=1", "org=a")
	})
}

// C027, C041: made-up values fill the table past its bound only as long as their buckets
// are not full again, and never drop one that is not.
func TestCount_C027_C041_MadeUpValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDeskWith(t, &storetest.Memory{}, "r1", edge("", limited("ip", "minute", 60), limited("steady", "minute", 2)), authz.Config{MaxCounters: 100})
		k.count("steady=1 x2")
		for i := range 3000 {
			k.count(fmt.Sprint("ip=", i))
		}
		if n := k.d.Stats().Counters; n < 3000 {
			t.Errorf("%d counters are kept, some of 3000 drained ones are dropped", n)
		}
		k.wantCount("rate_limited OVER:0", "steady=1")
		time.Sleep(20 * time.Second) // the buckets of the values are full again, the steady one is not
		for i := range 3000 {
			k.count(fmt.Sprint("ip=later", i))
			time.Sleep(2 * time.Millisecond)
		}
		k.wantCount("rate_limited OVER:0", "steady=1 x2")
		time.Sleep(20 * time.Second)
		for i := range 1500 {
			k.count(fmt.Sprint("ip=last", i))
			time.Sleep(20 * time.Millisecond)
		}
		if s := k.d.Stats(); s.Counters > 400 || s.EvictedCounters < 6000 {
			t.Errorf("%d counters are kept and %d were dropped, with a bound of 100", s.Counters, s.EvictedCounters)
		}
	})
}

// A lease that was on its way while more was charged than there is cannot be spent.
func TestCount_P10_ALeaseThatComesTooLate(t *testing.T) {
	inBubble(t, edge("refused_hits: charged", limited("a", "week", 8)), func(t *testing.T, k *desk) {
		k.store.slow(50 * time.Millisecond)
		k.wantCount("allowed OK:7", "a=1") // its lease is used up, and the next one is asked for
		if c := k.count("a=1 x1000"); !c.Refused() {
			t.Fatalf("1000 of 7: %s", counted(c))
		}
		time.Sleep(60 * time.Millisecond) // that lease is here
		if c := k.count("a=1"); !c.Refused() {
			t.Errorf("1 of nothing: %s", counted(c))
		}
	})
}

// R7: a bucket that has run out tells when a request fits, one that has not when it is full.
func TestCount_R7_UntilARequestFits(t *testing.T) {
	docs := app("defaults: {plan: p}\n") + planDoc("p", "per_minute: {kind: rate, amount: 6, window: 1m}\n") + "\n---\n" + edge("", limited("a", "minute", 6))
	inBubble(t, docs, func(t *testing.T, k *desk) {
		for left, want := range []time.Duration{10 * time.Second, 50 * time.Second, 40 * time.Second} {
			tenant, counter := from(fmt.Sprint("t", left)), fmt.Sprint("a=", left)
			for range 5 - left {
				k.ask(tenant)
				k.count(counter)
			}
			if got := limit(t, k.must(tenant, authz.Allowed), "per_minute").Reset; got != want {
				t.Errorf("a tenant with %d left: %v, want %v", left, got, want)
			}
			if got := k.count(counter).Items[0].State.Reset; got != want {
				t.Errorf("a counter with %d left: %v, want %v", left, got, want)
			}
		}
	})
}
