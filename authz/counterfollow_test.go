package authz_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store/storetest"
)

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
	k.catalog.PutBroken(plan.KindRateLimits, "edge", 7, "rate limits edge have never been valid", nil)
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

// R22, R23: the shares of split limits.
func TestCount_R22_R23_Split(t *testing.T) {
	inBubble(t, edge("replicas: split", limited("a", "minute", 10)), func(_ *testing.T, k *desk) {
		k.d.SetReplicas(4)
		k.wantCount("allowed OK:2", "a=1")
		k.d.SetReplicas(1)
		k.wantCount("allowed OK:1", "a=1")
	})
}

// C027, C041: made-up values fill the table up to its bound, and never drop a bucket that
// is not full.
func TestCount_C027_C041_MadeUpValues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDeskWith(t, &storetest.Memory{}, "r1", edge("", limited("ip", "minute", 60), limited("steady", "minute", 2)), authz.Config{MaxCounters: 100})
		k.count("steady=1 x2")
		for i := range 3000 {
			k.count(fmt.Sprint("ip=", i))
		}
		if s := k.d.Stats(); s.Counters != 100 || s.Shared != 2901 {
			t.Errorf("%d counters are kept and %d requests shared one, want 100 and 2,901", s.Counters, s.Shared)
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
			time.Sleep(100 * time.Millisecond)
		}
		if s := k.d.Stats(); s.Counters > 100 || s.EvictedCounters < 1500 {
			t.Errorf("%d counters are kept and %d were dropped, with a bound of 100", s.Counters, s.EvictedCounters)
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
