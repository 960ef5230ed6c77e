package ratelimit_test

import (
	"math"
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/ratelimit"
)

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

// forgive brings the debt into its bound of ten windows.
func (m *model) forgive() int64 {
	forgiven := max(0, -10*m.rate.Amount-m.left())
	m.tokens = new(big.Rat).Add(m.tokens, big.NewRat(forgiven, 1))
	return forgiven
}

func (m *model) setRate(r ratelimit.Rate, share bool) (forgiven int64) {
	full := !share && m.rate.Burst > 0 && m.left() >= m.rate.Burst
	part := new(big.Rat).Sub(m.tokens, big.NewRat(m.left(), 1))
	if r.Window != m.rate.Window { // rounded down to the new parts
		part.Mul(part, big.NewRat(int64(r.Window), 1))
		part.SetInt(new(big.Int).Div(part.Num(), part.Denom()))
		part.Quo(part, big.NewRat(int64(r.Window), 1))
	}
	m.tokens = new(big.Rat).Add(big.NewRat(m.left(), 1), part)
	m.rate = r
	m.add(new(big.Rat))
	forgiven = m.forgive()
	if full {
		m.tokens = big.NewRat(r.Burst, 1)
	}
	return forgiven
}

// owe takes what was used already of both, and returns how much.
func (m *model) owe(t *rapid.T, b *ratelimit.Bucket, now int64) int64 {
	n := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, max(1, min(maxAmount, 12*m.rate.Amount)))).Draw(t, "used")
	m.refill(now)
	m.add(big.NewRat(-n, 1))
	if got, want := b.Owe(now, n), m.forgive(); got != want {
		t.Fatalf("owe %d: %d forgiven, want %d", n, got, want)
	}
	return n
}

// change gives both another rate, or another share of one.
func (m *model) change(t *rapid.T, b *ratelimit.Bucket, now int64) {
	r, share := anyRate(t), rapid.Bool().Draw(t, "share")
	m.refill(now)
	want := int64(0)
	if r != m.rate {
		want = m.setRate(r, share)
	}
	set := b.SetRate
	if share {
		set = b.SetShare
	}
	if got := set(now, r); got != want {
		t.Fatalf("%d forgiven, want %d", got, want)
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
			"owe":      func(t *rapid.T) { taken = append(taken, m.owe(t, &b, now)) },
			"set rate": func(t *rapid.T) { m.change(t, &b, now) },
			"": func(t *rapid.T) {
				m.refill(now)
				compare(t, &b, &m, now)
			},
		})
	})
}

// compare checks all that b says at now against m.
func compare(t *rapid.T, b *ratelimit.Bucket, m *model, now int64) {
	if got := b.Left(now); got != max(0, m.left()) || got > m.rate.Burst {
		t.Fatalf("left: got %d, want %d of %d", got, m.left(), m.rate.Burst)
	}
	if got := b.Debt(now); got != max(0, -m.left()) || got > 10*m.rate.Amount {
		t.Fatalf("debt: got %d, want %d", got, -m.left())
	}
	for _, n := range []int64{0, 1, max(0, m.left()), max(0, m.left()) + 1, m.rate.Burst, m.rate.Burst + 1} {
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
	// R32: a full bucket is as a new one would be.
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
