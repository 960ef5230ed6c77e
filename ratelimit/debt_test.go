package ratelimit_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/ratelimit"
)

// C151: what was used beyond the reservation holds the next request back until it is paid.
func TestOwe_C151_TheNextRequestWaits(t *testing.T) {
	t.Parallel()
	b := ratelimit.NewBucket(rate(100, time.Minute), 0)
	if !take(&b, 0, 10) {
		t.Fatal("a full bucket refuses")
	}
	if forgiven := b.Owe(0, 490); forgiven != 0 || b.Debt(0) != 400 || b.Left(0) != 0 {
		t.Errorf("%d forgiven, debt %d, left %d", forgiven, b.Debt(0), b.Left(0))
	}
	if wait := b.Wait(0, 10); wait != 246*time.Second || b.Has(246*second-1, 10) || !b.Has(246*second, 10) {
		t.Errorf("wait %v, want 4m6s for 410 tokens", wait)
	}
	if b := ratelimit.NewBucket(rate(100, time.Minute), 0); b.Owe(0, 5000) != 3900 || b.Debt(0) != 1000 || b.Wait(0, 1) != time.Duration(1001*minute/100) {
		t.Errorf("debt %d, wait %v; want ten windows", b.Debt(0), b.Wait(0, 1))
	}
	// A debt refuses what asks for nothing, too, and no take makes it smaller or larger.
	b = ratelimit.NewBucket(rate(100, time.Minute), 0)
	b.Owe(0, 150)
	b.Take(0, 7)
	if b.Has(0, 0) || b.Debt(0) != 50 {
		t.Errorf("nothing fits %t, debt %d", b.Has(0, 0), b.Debt(0))
	}
}

// R23: the share of a replica that is gone is not there at once: it may have been spent.
func TestSetShare_R23_MoreComesAtItsRate(t *testing.T) {
	t.Parallel()
	whole := rate(10, time.Second)
	b := ratelimit.NewBucket(ratelimit.Share(whole, 2), 0)
	b.SetShare(0, whole)
	if b.Left(0) != 5 || b.Left(500*ms) != 10 {
		t.Errorf("%d at once, %d after half a second; want 5 and 10", b.Left(0), b.Left(500*ms))
	}
	edited := ratelimit.NewBucket(ratelimit.Share(whole, 2), 0)
	if edited.SetRate(0, whole); edited.Left(0) != 10 {
		t.Errorf("a raised limit: %d, want all at once (C017)", edited.Left(0))
	}
}

// C151: over a long span no more is served than the amount, the burst, what requests used
// beyond their reservations, and what was forgiven.
func TestOwe_C151_LongSpans(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rate(rapid.Int64Range(1, 500).Draw(t, "amount"), time.Second)
		b := ratelimit.NewBucket(r, 0)
		now, served, forgiven, last := int64(0), int64(0), int64(0), int64(0)
		for range rapid.IntRange(1, 200).Draw(t, "requests") {
			now += rapid.Int64Range(0, 2*second).Draw(t, "pause")
			reserve := rapid.Int64Range(0, r.Burst).Draw(t, "reserve")
			if !take(&b, now, reserve) {
				continue
			}
			used := reserve + rapid.Int64Range(0, 4*r.Amount).Draw(t, "more")
			forgiven += b.Owe(now, used-reserve)
			served, last = served+used, used-reserve
		}
		// One request runs at a time: what the last one used is not paid yet.
		if most := r.Amount*(now/second+1) + r.Burst + last + forgiven; served > most {
			t.Fatalf("%d served in %v, want at most %d", served, time.Duration(now), most)
		}
	})
}
