package authz_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/storetest"
)

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
		one.stop()
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

// A refund beside a limit that waits for a lease is given once, though the request is
// decided again after the wait.
func TestCount_P13_RefundsOnceBesideAWait(t *testing.T) {
	inBubble(t, edge("", limited("a", "week", 10), limited("b", "minute", 10)), func(_ *testing.T, k *desk) {
		k.count("a=1 x3", "b=1 x9")
		k.wantCount("allowed OK:9 OK:2 OK:9", "a=2", "b=1 -1", "a=3")
		k.wantCount("allowed OK:8 OK:9", "a=1 -1", "a=4")
	})
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
