package authz_test

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

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

// In a refused request each quota reports whether it would refuse, too, though nobody asks
// etcd for a lease any more.
func TestCount_P13_StatusesOfTheRefused(t *testing.T) {
	inBubble(t, edge("", limited("ip", "minute", 1), limited("org", "year", 12)), func(_ *testing.T, k *desk) {
		k.count("ip=1", "org=a x12")
		time.Sleep(15 * time.Second) // the refusal is not remembered any more, if there was one
		k.wantCount("quota_exceeded OVER:0 OVER:0", "ip=1", "org=a")
	})
}
