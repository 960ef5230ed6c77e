package ratelimit_test

import (
	"math"
	"math/big"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

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

// anyRate draws rates of all sizes, sensible and not.
func anyRate(t *rapid.T) ratelimit.Rate {
	amount := rapid.OneOf(rapid.Int64Range(0, 100), rapid.Int64Range(1, maxAmount))
	window := rapid.OneOf(
		rapid.SampledFrom([]int64{second, minute, hour, day}),
		rapid.Int64Range(1, 10),
		rapid.Int64Range(1, math.MaxInt64),
	)
	r := rate(amount.Draw(t, "amount"), time.Duration(window.Draw(t, "window")))
	if rapid.Bool().Draw(t, "separate burst") {
		r.Burst = amount.Draw(t, "burst")
	}
	return r
}

// anySpan draws a span of time: nothing, a moment, about a token, an age.
func anySpan(t *rapid.T, r ratelimit.Rate) int64 {
	token := int64(r.Window)
	if r.Amount > 0 {
		token = max(1, int64(r.Window)/r.Amount)
	}
	token = min(token, 1000*day)
	return rapid.OneOf(
		rapid.Int64Range(0, 2),
		rapid.Int64Range(0, 3*token),
		rapid.Int64Range(0, 10*second),
		rapid.Int64Range(0, 400*day),
	).Draw(t, "span")
}

// A model is a bucket in exact fractions.
type model struct {
	rate   ratelimit.Rate
	tokens *big.Rat
	at     int64
}

func (m *model) refill(now int64) {
	if now <= m.at {
		return
	}
	elapsed := new(big.Int).Sub(big.NewInt(now), big.NewInt(m.at))
	m.at = now
	gained := new(big.Rat).SetInt(elapsed.Mul(elapsed, big.NewInt(m.rate.Amount)))
	gained.Quo(gained, big.NewRat(int64(m.rate.Window), 1))
	m.add(gained)
}

func (m *model) add(n *big.Rat) {
	m.tokens = new(big.Rat).Add(m.tokens, n)
	if burst := big.NewRat(m.rate.Burst, 1); m.tokens.Cmp(burst) > 0 {
		m.tokens = burst
	}
}

func (m *model) has(n int64) bool {
	return m.rate.Amount > 0 && m.rate.Burst > 0 && m.tokens.Cmp(big.NewRat(n, 1)) >= 0
}

func (m *model) left() int64 {
	return new(big.Int).Div(m.tokens.Num(), m.tokens.Denom()).Int64()
}

func (m *model) wait(now, n int64) time.Duration {
	if m.rate.Amount <= 0 || m.rate.Burst <= 0 || n > m.rate.Burst {
		return ratelimit.Never
	}
	missing := new(big.Rat).Sub(big.NewRat(n, 1), m.tokens)
	if missing.Sign() <= 0 {
		return 0
	}
	missing.Mul(missing, big.NewRat(int64(m.rate.Window), 1))
	missing.Quo(missing, big.NewRat(m.rate.Amount, 1))
	ns := new(big.Int).Add(missing.Num(), missing.Denom())
	ns.Sub(ns, big.NewInt(1)).Div(ns, missing.Denom())
	ns.Add(ns, big.NewInt(m.at-now))
	if !ns.IsInt64() {
		return ratelimit.Never
	}
	return time.Duration(ns.Int64())
}

func (m *model) setRate(r ratelimit.Rate) {
	full := m.rate.Burst > 0 && m.left() >= m.rate.Burst
	part := new(big.Rat).Sub(m.tokens, big.NewRat(m.left(), 1))
	if r.Window != m.rate.Window { // rounded down to the new parts
		part.Mul(part, big.NewRat(int64(r.Window), 1))
		part.SetInt(new(big.Int).Div(part.Num(), part.Denom()))
		part.Quo(part, big.NewRat(int64(r.Window), 1))
	}
	m.tokens = new(big.Rat).Add(big.NewRat(m.left(), 1), part)
	m.rate = r
	m.add(new(big.Rat))
	if full {
		m.tokens = big.NewRat(r.Burst, 1)
	}
}

// TestExact plays long runs of anything against exact fractions: nothing is lost
// and nothing is made (C033, C036).
func TestExact(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.Int64Range(-400*day, 400*day).Draw(t, "origin")
		r := anyRate(t)
		b := ratelimit.NewBucket(r, now)
		m := model{rate: r, tokens: big.NewRat(r.Burst, 1), at: now}
		var taken []int64
		units := func(t *rapid.T) int64 {
			return rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, max(1, m.rate.Burst))).Draw(t, "units")
		}
		t.Repeat(map[string]func(*rapid.T){
			"wait": func(t *rapid.T) { now += anySpan(t, m.rate) },
			"go back": func(t *rapid.T) {
				now -= rapid.Int64Range(0, 10*ms).Draw(t, "back")
			},
			"take": func(t *rapid.T) {
				n := units(t)
				m.refill(now)
				got, want := take(&b, now, n), m.has(n)
				if got != want {
					t.Fatalf("take %d: got %t, want %t", n, got, want)
				}
				if want {
					m.add(big.NewRat(-n, 1))
					taken = append(taken, n)
				}
			},
			"drain": func(*rapid.T) {
				m.refill(now)
				if n := b.Left(now); take(&b, now, n) {
					m.add(big.NewRat(-n, 1))
				}
			},
			"give": func(t *rapid.T) {
				if len(taken) == 0 {
					t.Skip("nothing was taken")
				}
				n := taken[len(taken)-1]
				taken = taken[:len(taken)-1]
				m.refill(now)
				m.add(big.NewRat(n, 1))
				b.Give(now, n)
			},
			"set rate": func(t *rapid.T) {
				r := anyRate(t)
				m.refill(now)
				if r != m.rate {
					m.setRate(r)
				}
				b.SetRate(now, r)
			},
			"": func(t *rapid.T) {
				m.refill(now)
				compare(t, &b, &m, now)
			},
		})
	})
}

// compare checks all that b says at now against m.
func compare(t *rapid.T, b *ratelimit.Bucket, m *model, now int64) {
	if got := b.Left(now); got != m.left() || got < 0 || got > m.rate.Burst {
		t.Fatalf("left: got %d, want %d of %d", got, m.left(), m.rate.Burst)
	}
	for _, n := range []int64{0, 1, m.left(), m.left() + 1, m.rate.Burst, m.rate.Burst + 1} {
		if got, want := b.Has(now, n), m.has(n); got != want {
			t.Fatalf("has %d: got %t, want %t", n, got, want)
		}
		wait := b.Wait(now, n)
		if want := m.wait(now, n); wait != want {
			t.Fatalf("wait for %d: got %v, want %v", n, wait, want)
		}
		then := now + int64(wait)
		if wait == ratelimit.Never || then < now {
			continue
		}
		// C128: after that wait the request fits, and not a moment sooner.
		after, before := *b, *b
		if !after.Has(then, n) || wait > 0 && before.Has(then-1, n) {
			t.Fatalf("wait for %d: got %v, want the first moment at which it fits", n, wait)
		}
	}
	// R32: whoever comes back to a full bucket finds what a new one would be.
	nothing := m.rate.Amount == 0 || m.rate.Burst == 0
	if b.Full(now) && !nothing && *b != ratelimit.NewBucket(m.rate, m.at) {
		t.Fatalf("a full bucket differs from a new one: %+v", *b)
	}
	if !nothing && b.Full(now) != (b.UntilFull(now) == 0) {
		t.Fatalf("full: got %t, but %v until then", b.Full(now), b.UntilFull(now))
	}
}

// C128: a request that was refused by several buckets fits after the longest of
// their waits, if nobody else comes, and not before.
func TestWaitOfSeveral(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(1, 50).Draw(t, "units")
		buckets := make([]ratelimit.Bucket, rapid.IntRange(1, 4).Draw(t, "buckets"))
		for i := range buckets {
			r := rate(rapid.Int64Range(1, 1000).Draw(t, "amount"), time.Duration(rapid.Int64Range(1, day).Draw(t, "window")))
			r.Burst = rapid.Int64Range(n, 2000).Draw(t, "burst")
			buckets[i] = ratelimit.NewBucket(r, 0)
			buckets[i].Take(0, rapid.Int64Range(0, r.Burst).Draw(t, "used"))
		}
		now := rapid.Int64Range(0, day).Draw(t, "now")
		fits := func(at int64) bool {
			for i := range buckets {
				if b := buckets[i]; !b.Has(at, n) {
					return false
				}
			}
			return true
		}
		var wait int64
		for i := range buckets {
			b := buckets[i]
			wait = max(wait, int64(b.Wait(now, n)))
		}
		if !fits(now+wait) || wait > 0 && fits(now+wait-1) {
			t.Fatalf("after %v: want the first moment at which %d fit", time.Duration(wait), n)
		}
	})
}

// A Give right after a Take leaves no trace.
func TestGiveUndoesTake(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := rate(rapid.Int64Range(1, 1000).Draw(t, "amount"), time.Duration(rapid.Int64Range(1, day).Draw(t, "window")))
		b := ratelimit.NewBucket(r, 0)
		b.Take(0, rapid.Int64Range(0, r.Burst).Draw(t, "used"))
		now := anySpan(t, r)
		n := rapid.Int64Range(0, b.Left(now)).Draw(t, "units")
		want := b
		b.Take(now, n)
		later := now + anySpan(t, r)
		b.Give(later, n)
		if want.Left(later); b != want {
			t.Fatalf("after take and give: got %+v, want %+v", b, want)
		}
	})
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
