package ratelimit_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meteproject/mete/ratelimit"
)

// C033: however often a bucket is asked, it refills.
func TestFrequentCallsDoNotStopTheRefill(t *testing.T) {
	tests := []struct {
		rate       ratelimit.Rate
		span, step int64
		want       int
	}{
		{rate(20, time.Minute), 60 * second, second, 20},
		{rate(60, time.Minute), 10 * second, ms, 10},
		{rate(7, time.Second), 10 * second, 1_000_003, 70}, // a rate and a step that do not divide
		{rate(1, time.Hour), 10 * hour, second, 10},
	}
	for _, tt := range tests {
		b := ratelimit.NewBucket(tt.rate, 0)
		b.Take(0, tt.rate.Burst)
		if got := admitted(&b, tt.step, tt.span+tt.step, tt.step, 1); got != tt.want {
			t.Errorf("%v asked each %v: got %d let through, want %d", tt.rate, time.Duration(tt.step), got, tt.want)
		}
	}
}

// C034: a bucket is not topped up once a window.
func TestNeverTwiceTheRate(t *testing.T) {
	b := ratelimit.NewBucket(rate(3, time.Second), 0)
	var times []int64
	for now := int64(0); now < 10*second; now += 100 * ms {
		if take(&b, now, 1) {
			times = append(times, now)
		}
	}
	if len(times) > 33 {
		t.Errorf("in 10 s: got %d let through, want at most 33", len(times))
	}
	for i, from := range times {
		n := 0
		for _, at := range times[i:] {
			if at < from+second {
				n++
			}
		}
		if n > 6 || from >= 2*second && n > 3 {
			t.Errorf("in the second from %v: got %d let through", time.Duration(from), n)
		}
	}
	steady := 0
	for _, at := range times {
		if at >= 5*second {
			steady++
		}
	}
	if steady != 15 {
		t.Errorf("in the last 5 s: got %d let through, want 15", steady)
	}
}

// C045: exactly the limit, in one go and one by one.
func TestLastToken(t *testing.T) {
	for _, n := range []int64{1, 2, 10} {
		b := ratelimit.NewBucket(rate(n, time.Hour), 0)
		if !take(&b, 0, n) || take(&b, 0, 1) {
			t.Errorf("limit %d in one go: want all of it, and no more", n)
		}
		b = ratelimit.NewBucket(rate(n, time.Hour), 0)
		if got := admitted(&b, 0, 100, 1, 1); int64(got) != n {
			t.Errorf("limit %d one by one: got %d", n, got)
		}
	}
}

// R16: a quiet customer may burst, and then goes on at the pace of the limit.
func TestBurstThenPace(t *testing.T) {
	b := ratelimit.NewBucket(rate(10, time.Second), 0)
	if got := admitted(&b, hour, hour+1, 1, 10); got != 1 {
		t.Fatal("want the whole bucket at once")
	}
	if got := admitted(&b, hour+ms, hour+10*second+ms, ms, 1); got != 100 {
		t.Errorf("in the 10 s after it: got %d let through, want 100", got)
	}
}

// R17, R18: a request takes from every bucket or from none; the second caps
// bursts, the minute what is sustained.
func TestTwoBuckets(t *testing.T) {
	s := ratelimit.NewBucket(rate(10, time.Second), 0)
	m := ratelimit.NewBucket(rate(60, time.Minute), 0)
	both := func(now int64) bool {
		if !s.Has(now, 1) || !m.Has(now, 1) {
			return false
		}
		s.Take(now, 1)
		m.Take(now, 1)
		return true
	}
	first, later := 0, 0
	for now := int64(0); now < 10*minute; now += 10 * ms {
		switch {
		case !both(now):
		case now < second/10:
			first++
		case now >= 9*minute:
			later++
		}
	}
	if first != 10 {
		t.Errorf("at once: got %d let through, want 10, the second's", first)
	}
	if later != 60 {
		t.Errorf("in the last minute: got %d let through, want 60, the minute's", later)
	}
	now := 10 * minute
	m.Take(now, m.Left(now))
	if before := s; both(now) || s.Left(now) != before.Left(now) {
		t.Error("refused by the minute: want nothing taken from the second")
	}
}

// C049: exactly the limit, whatever happens at once.
func TestAtOnce(t *testing.T) {
	for range 1000 {
		var mu sync.Mutex
		b := ratelimit.NewBucket(rate(5, time.Second), 0)
		for _, now := range []int64{0, 10 * minute} {
			var admitted atomic.Int64
			var all sync.WaitGroup
			for range 50 {
				all.Go(func() {
					mu.Lock()
					defer mu.Unlock()
					if take(&b, now, 1) {
						admitted.Add(1)
					}
				})
			}
			all.Wait()
			if got := admitted.Load(); got != 5 {
				t.Fatalf("at %v: got %d let through, want 5", time.Duration(now), got)
			}
		}
	}
}
