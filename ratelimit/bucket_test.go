package ratelimit_test

import (
	"math"
	"testing"
	"time"

	"github.com/meteproject/mete/ratelimit"
)

const (
	ms     = int64(time.Millisecond)
	second = int64(time.Second)
	minute = int64(time.Minute)
	hour   = int64(time.Hour)
	day    = 24 * hour

	// maxAmount is the largest amount that a plan may hold.
	maxAmount = 999_999_999_999_999
)

// rate returns n tokens a window with room for as many.
func rate(n int64, window time.Duration) ratelimit.Rate {
	return ratelimit.Rate{Amount: n, Window: window, Burst: n}
}

// take is what a request does with one bucket.
func take(b *ratelimit.Bucket, now, n int64) bool {
	if !b.Has(now, n) {
		return false
	}
	b.Take(now, n)
	return true
}

// admitted counts how many requests of n tokens b lets through, one each step in
// the half-open span.
func admitted(b *ratelimit.Bucket, from, until, step, n int64) int {
	count := 0
	for now := from; now < until; now += step {
		if take(b, now, n) {
			count++
		}
	}
	return count
}

// A request is what TestRequests plays, and what becomes of it.
type request struct {
	at, n int64
	ok    bool
	wait  time.Duration // of a refused one
	left  int64         // afterwards
}

var requestTests = []struct {
	name     string
	rate     ratelimit.Rate
	requests []request
}{
	{"a request as large as the bucket (C032)", rate(10, time.Second), []request{
		{0, 10, true, 0, 0},
		{500 * ms, 10, false, 500 * time.Millisecond, 5},
		{second, 10, true, 0, 0},
	}},
	{"one token each 100 ms (R15)", rate(10, time.Second), []request{
		{0, 10, true, 0, 0},
		{99*ms + 999_999, 1, false, 1, 0},
		{100 * ms, 1, true, 0, 0},
		{150 * ms, 1, false, 50 * time.Millisecond, 0},
		{200 * ms, 1, true, 0, 0},
	}},
	{"a refused request takes nothing (R19)", rate(10, time.Second), []request{
		{0, 8, true, 0, 2},
		{0, 3, false, 100 * time.Millisecond, 2},
		{0, 3, false, 100 * time.Millisecond, 2},
		{0, 2, true, 0, 0},
	}},
	{"one a minute (C043)", rate(1, time.Minute), []request{
		{0, 1, true, 0, 0},
		{59*second + 999*ms, 1, false, time.Millisecond, 0},
		{60 * second, 1, true, 0, 0},
		{120*second - 1, 1, false, 1, 0},
	}},
	{"one an hour (C043)", rate(1, time.Hour), []request{
		{0, 1, true, 0, 0},
		{hour - 1, 1, false, 1, 0},
		{hour, 1, true, 0, 0},
	}},
	{"weight 3 of three a minute (C043)", rate(3, time.Minute), []request{
		{0, 3, true, 0, 0},
		{40 * second, 3, false, 20 * time.Second, 2},
		{60 * second, 3, true, 0, 0},
	}},
	{"more than the bucket ever holds", rate(10, time.Second), []request{
		{0, 11, false, ratelimit.Never, 10},
	}},
	{"a burst above the rate", ratelimit.Rate{Amount: 1, Window: time.Second, Burst: 5}, []request{
		{0, 5, true, 0, 0},
		{second, 2, false, time.Second, 1},
		{10 * second, 5, true, 0, 0},
	}},
	{"a burst below the rate", ratelimit.Rate{Amount: 60, Window: time.Minute, Burst: 1}, []request{
		{0, 1, true, 0, 0},
		{500 * ms, 1, false, 500 * time.Millisecond, 0},
		{60 * second, 1, true, 0, 0},
		{60 * second, 1, false, time.Second, 0},
	}},
	{"the clock goes back (C039)", rate(10, time.Second), []request{
		{second, 10, true, 0, 0},
		{second - 3*ms, 1, false, 103 * time.Millisecond, 0},
		{second + 99*ms, 1, false, time.Millisecond, 0},
		{second + 100*ms, 1, true, 0, 0},
	}},
	{"the clock goes back to where there were tokens (C039)", rate(10, time.Second), []request{
		{second, 5, true, 0, 5},
		{second - 3*ms, 5, true, 0, 0},
	}},
	{"nothing an hour (C008)", rate(0, time.Hour), []request{
		{0, 1, false, ratelimit.Never, 0},
		{400 * day, 1, false, ratelimit.Never, 0},
		{400 * day, 0, false, ratelimit.Never, 0},
	}},
	{"no amount, but a burst (C008)", ratelimit.Rate{Window: time.Second, Burst: 5}, []request{
		{0, 1, false, ratelimit.Never, 5},
		{0, 0, false, ratelimit.Never, 5},
	}},
	{"an amount, but no burst (C008)", ratelimit.Rate{Amount: 5, Window: time.Second}, []request{
		{0, 1, false, ratelimit.Never, 0},
		{0, 0, false, ratelimit.Never, 0},
	}},
	{"12 hours idle (C036)", rate(1_000_000, time.Minute), []request{
		{0, 1_000_000, true, 0, 0},
		{12 * hour, 1, true, 0, 999_999},
	}},
	{"400 days idle (C036)", rate(1_000_000, time.Minute), []request{
		{0, 1_000_000, true, 0, 0},
		{400 * day, 1, true, 0, 999_999},
	}},
	{"from the zero time stamp (C036)", rate(1_000_000, time.Minute), []request{
		{0, 1_000_000, true, 0, 0},
		{1_795_996_800 * second, 1, true, 0, 999_999},
	}},
	{"the largest rate (C036)", rate(maxAmount, time.Second), []request{
		{0, maxAmount, true, 0, 0},
		{1, 1_000_000, false, 1, 999_999},
		{400 * day, 1, true, 0, maxAmount - 1},
	}},
	{"the widest span of time (C036)", rate(maxAmount, 1), []request{
		{math.MinInt64, maxAmount, true, 0, 0},
		{math.MaxInt64, 1, true, 0, maxAmount - 1},
	}},
}

// TestRequests plays requests and tells which are let through.
func TestRequests(t *testing.T) {
	for _, tt := range requestTests {
		t.Run(tt.name, func(t *testing.T) {
			b := ratelimit.NewBucket(tt.rate, tt.requests[0].at)
			for i, r := range tt.requests {
				if got := b.Wait(r.at, r.n); got != r.wait {
					t.Errorf("request %d: wait: got %v, want %v", i, got, r.wait)
				}
				if got := take(&b, r.at, r.n); got != r.ok {
					t.Errorf("request %d: let through: got %t, want %t", i, got, r.ok)
				}
				if got := b.Left(r.at); got != r.left {
					t.Errorf("request %d: left: got %d, want %d", i, got, r.left)
				}
			}
		})
	}
}

func TestZeroBucketRefuses(t *testing.T) {
	var b ratelimit.Bucket
	if b.Has(second, 1) || b.Has(second, 0) {
		t.Error("the zero Bucket has tokens")
	}
	if got := b.Wait(second, 1); got != ratelimit.Never {
		t.Errorf("wait: got %v, want never", got)
	}
	b.SetRate(second, rate(10, time.Second))
	if got := b.Wait(second, 1); got != 100*time.Millisecond {
		t.Errorf("wait after it was given a rate: got %v, want 100ms", got)
	}
}

func BenchmarkBucketTake(b *testing.B) {
	bucket := ratelimit.NewBucket(rate(1_000_000, time.Second), 0)
	b.ReportAllocs()
	var now int64
	for b.Loop() {
		now += 997
		take(&bucket, now, 1)
	}
}

func BenchmarkBucketWait(b *testing.B) {
	bucket := ratelimit.NewBucket(rate(10, time.Second), 0)
	bucket.Take(0, 10)
	b.ReportAllocs()
	var now int64
	for b.Loop() {
		now++
		bucket.Wait(now%ms, 1)
	}
}
