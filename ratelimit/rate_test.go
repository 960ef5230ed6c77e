package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/meteproject/mete/ratelimit"
)

// R22, R23: four replicas enforce four times the limit, or their shares of it.
func TestReplicas(t *testing.T) {
	tests := []struct {
		name string
		rate ratelimit.Rate
		want int // a second, of all four
	}{
		{"full", rate(10, time.Second), 40},
		{"split", ratelimit.Share(rate(10, time.Second), 4), 12},
	}
	for _, tt := range tests {
		got := 0
		for range 4 {
			b := ratelimit.NewBucket(tt.rate, 0)
			b.Take(0, tt.rate.Burst)
			got += admitted(&b, ms, second+ms, ms, 1)
		}
		if got != tt.want {
			t.Errorf("%s: got %d a second, want %d", tt.name, got, tt.want)
		}
	}
}

func TestShare(t *testing.T) {
	tests := []struct {
		amount, burst int64
		n             int
		wantAmount    int64
		wantBurst     int64
	}{
		{10, 10, 4, 3, 3},
		{10, 10, 1, 10, 10},
		{10, 10, 0, 10, 10},
		{10, 10, -1, 10, 10},
		{12, 12, 4, 3, 3},
		{1, 1, 40, 1, 1},
		{3, 30, 4, 1, 8},
		{0, 0, 4, 0, 0},
		{0, 8, 4, 0, 2},
		{maxAmount, maxAmount, 2, 500_000_000_000_000, 500_000_000_000_000},
		{5, 5, math.MaxInt, 1, 1},
	}
	for _, tt := range tests {
		got := ratelimit.Share(ratelimit.Rate{Amount: tt.amount, Window: time.Second, Burst: tt.burst}, tt.n)
		if got.Amount != tt.wantAmount || got.Burst != tt.wantBurst || got.Window != time.Second {
			t.Errorf("share of %d (burst %d) by %d: got %v, want %d (burst %d)",
				tt.amount, tt.burst, tt.n, got, tt.wantAmount, tt.wantBurst)
		}
	}
}

// C017: a raise is of use at once, and tokens grow at the new rate.
func TestRaise(t *testing.T) {
	b := ratelimit.NewBucket(rate(1, time.Minute), 0)
	b.Take(0, 1)
	b.SetRate(0, rate(60, time.Minute))
	if got := b.Wait(0, 1); got != time.Second {
		t.Errorf("wait after a raise to one a second: got %v, want 1s", got)
	}
	if got := admitted(&b, second, 11*second, 100*ms, 1); got != 10 {
		t.Errorf("in 10 s after the raise: got %d let through, want 10", got)
	}
	if got := b.Left(hour); got != 60 {
		t.Errorf("left after an hour: got %d, want the new size, 60", got)
	}
}

func TestSetRate(t *testing.T) {
	tests := []struct {
		name string
		from ratelimit.Rate
		take int64
		at   int64
		to   ratelimit.Rate
		left int64
		wait time.Duration // for one more than is left
	}{
		{"a full bucket is full again", rate(10, time.Second), 0, 0, rate(20, time.Second), 20, ratelimit.Never},
		{"one that became full is full again", rate(10, time.Second), 10, second, rate(20, time.Second), 20, ratelimit.Never},
		{"tokens stay", rate(10, time.Second), 4, 0, rate(20, time.Second), 6, 50 * time.Millisecond},
		{"tokens are capped", rate(10, time.Second), 4, 0, rate(3, time.Second), 3, ratelimit.Never},
		{"a cut", rate(60, time.Minute), 60, 500 * ms, rate(6, time.Minute), 0, 5 * time.Second},
		{"part of a token stays", rate(60, time.Minute), 60, 500 * ms, rate(1, time.Hour), 0, 30 * time.Minute},
		{"part of a token stays, upwards", rate(1, time.Hour), 1, 30 * minute, rate(60, time.Minute), 0, 500 * time.Millisecond},
		{"to nothing", rate(10, time.Second), 4, 0, rate(0, time.Second), 0, ratelimit.Never},
		{"from nothing", rate(0, time.Second), 0, 0, rate(10, time.Second), 0, 100 * time.Millisecond},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := ratelimit.NewBucket(tt.from, 0)
			b.Take(0, tt.take)
			b.SetRate(tt.at, tt.to)
			if b.Rate() != tt.to {
				t.Errorf("rate: got %v, want %v", b.Rate(), tt.to)
			}
			left := b.Left(tt.at)
			if left != tt.left {
				t.Errorf("left: got %d, want %d", left, tt.left)
			}
			if got := b.Wait(tt.at, left+1); got != tt.wait {
				t.Errorf("wait for one more: got %v, want %v", got, tt.wait)
			}
		})
	}
}

// The same limit told again, as with every edit of a plan, changes nothing.
func TestSetRateAgain(t *testing.T) {
	b := ratelimit.NewBucket(rate(10, time.Second), 0)
	b.Take(0, 10)
	for now := int64(0); now < 100*ms; now += ms {
		b.SetRate(now, rate(10, time.Second))
	}
	if got := b.Wait(99*ms, 1); got != time.Millisecond {
		t.Errorf("wait: got %v, want 1ms", got)
	}
}

// A bucket that admits nothing is never in the way of dropping it (R32).
func TestFullOfNothing(t *testing.T) {
	b := ratelimit.NewBucket(rate(10, time.Second), 0)
	b.Take(0, 10)
	if b.Full(second - 1) {
		t.Error("a bucket that lacks part of a token is full")
	}
	b.SetRate(second-1, ratelimit.Rate{Window: time.Second, Burst: 10})
	if !b.Full(hour) {
		t.Error("a bucket that admits nothing keeps its place")
	}
}
