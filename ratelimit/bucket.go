package ratelimit

import (
	"math"
	"math/bits"
	"time"
)

// A Rate is Amount tokens a Window, with room for Burst. A Rate with Amount or
// Burst 0 admits nothing, ever (case C008).
type Rate struct {
	Amount int64         // tokens a window; 0 to 999,999,999,999,999
	Window time.Duration // above 0
	Burst  int64         // tokens that the bucket holds
}

// Share returns what one of n replicas enforces of r when the limit is split:
// amount and burst divided by n, rounded up, and never below 1 unless r itself
// is 0 (R23). n below 1 counts as 1.
func Share(r Rate, n int) Rate {
	if n <= 1 {
		return r
	}
	r.Amount = ceilDiv(r.Amount, int64(n))
	r.Burst = ceilDiv(r.Burst, int64(n))
	return r
}

func ceilDiv(a, b int64) int64 {
	if a <= 0 {
		return 0
	}
	return (a-1)/b + 1
}

// nothing reports whether r admits nothing.
func (r Rate) nothing() bool { return r.Amount <= 0 || r.Burst <= 0 }

// Never is the wait for something that waiting cannot bring.
const Never = time.Duration(math.MaxInt64)

// A Bucket is the token bucket of one rate limit of one tenant. It is a plain
// value: its owner guards it. The zero Bucket has a zero Rate and refuses
// everything.
type Bucket struct {
	rate   Rate
	tokens int64  // up to rate.Burst, and below 0 what is owed, as of at
	rest   uint64 // of the next token, in 1/Window, as of at
	at     int64  // nanoseconds
}

// NewBucket returns a full bucket (R16).
func NewBucket(r Rate, now int64) Bucket {
	return Bucket{rate: r, tokens: r.Burst, at: now}
}

// Rate returns the rate that b enforces.
func (b *Bucket) Rate() Rate { return b.rate }

// refill brings b to now. A clock that went back changes nothing: the bucket
// waits until it has caught up (case C039).
func (b *Bucket) refill(now int64) {
	if now <= b.at {
		return
	}
	elapsed := uint64(now - b.at)
	b.at = now
	if b.rate.Amount <= 0 || b.rate.Window <= 0 {
		return
	}
	if b.tokens >= b.rate.Burst {
		b.rest = 0
		return
	}
	window := uint64(b.rate.Window)
	hi, lo := bits.Mul64(elapsed, uint64(b.rate.Amount))
	lo, carry := bits.Add64(lo, b.rest, 0)
	hi += carry
	room := uint64(b.rate.Burst - b.tokens)
	if hi >= window { // more than 2^64 tokens
		b.tokens, b.rest = b.rate.Burst, 0
		return
	}
	gained, rest := bits.Div64(hi, lo, window)
	if gained >= room {
		b.tokens, b.rest = b.rate.Burst, 0
		return
	}
	b.tokens += int64(gained)
	b.rest = rest
}

// Has reports whether n tokens are there. It takes none.
func (b *Bucket) Has(now, n int64) bool {
	b.refill(now)
	return !b.rate.nothing() && b.tokens >= n
}

// Take takes n tokens, which Has has just found there under the same lock and at
// the same time. Taking more than there is leaves 0, or the debt that there was.
func (b *Bucket) Take(now, n int64) {
	b.refill(now)
	b.tokens = min(b.tokens, max(0, b.tokens-n))
}

// debtWindows is how many windows a debt takes to be paid at most. One wrong number must
// not close a limit for ever.
const debtWindows = 10

// Owe takes n tokens that were used already, whether they are there or not: what is
// missing is a debt, which is paid before anything else is admitted. A debt is at most
// what ten windows bring; Owe returns how many tokens were forgiven for that.
func (b *Bucket) Owe(now, n int64) (forgiven int64) {
	b.refill(now)
	b.tokens -= n
	return b.forgive()
}

// forgive brings the debt into its bound, and returns by how much.
func (b *Bucket) forgive() int64 {
	forgiven := max(0, -b.rate.Amount*debtWindows-b.tokens)
	b.tokens += forgiven
	return forgiven
}

// Give puts n tokens back, up to the burst: what a Take or an Owe took is undone.
func (b *Bucket) Give(now, n int64) {
	b.refill(now)
	b.tokens = min(b.rate.Burst, b.tokens+n)
	if b.tokens == b.rate.Burst {
		b.rest = 0
	}
}

// Left returns the whole tokens that are there, from 0 up.
func (b *Bucket) Left(now int64) int64 {
	b.refill(now)
	return max(0, b.tokens)
}

// Debt returns the tokens that are owed, from 0 up.
func (b *Bucket) Debt(now int64) int64 {
	b.refill(now)
	return max(0, -b.tokens)
}

// Wait returns how long until n tokens are there if nobody takes any: 0 if they
// are there now, Never if the bucket cannot hold as many or does not refill.
func (b *Bucket) Wait(now, n int64) time.Duration {
	b.refill(now)
	if b.rate.nothing() || n > b.rate.Burst {
		return Never
	}
	return b.until(now, n)
}

// UntilFull returns how long until b is full if nobody takes any.
func (b *Bucket) UntilFull(now int64) time.Duration {
	b.refill(now)
	if b.rate.Amount <= 0 && b.tokens < b.rate.Burst {
		return Never
	}
	return b.until(now, b.rate.Burst)
}

// Full reports whether b is full: a full bucket can be dropped and made again
// without anybody noticing (R32). So can one that admits nothing.
func (b *Bucket) Full(now int64) bool {
	b.refill(now)
	return b.tokens >= b.rate.Burst || b.rate.nothing()
}

// until returns the nanoseconds, rounded up, from now until b holds n tokens. Where
// the clock went back they include the time until it has caught up.
func (b *Bucket) until(now, n int64) time.Duration {
	if b.tokens >= n {
		return 0
	}
	hi, lo := bits.Mul64(uint64(n-b.tokens), uint64(b.rate.Window))
	lo, borrow := bits.Sub64(lo, b.rest, 0)
	hi -= borrow
	amount := uint64(b.rate.Amount)
	if hi >= amount {
		return Never
	}
	wait, rest := bits.Div64(hi, lo, amount)
	if rest > 0 && wait < math.MaxUint64 {
		wait++
	}
	wait, carry := bits.Add64(wait, uint64(b.at-now), 0)
	if carry > 0 || wait > uint64(Never) {
		return Never
	}
	return time.Duration(wait)
}

// SetRate makes b enforce r from now on. Tokens stay, capped at the new burst,
// and grow at the new rate (case C017); a full bucket is full again, so that a
// raise is there at once. It returns how many tokens of a debt were forgiven, as Owe does.
func (b *Bucket) SetRate(now int64, r Rate) (forgiven int64) {
	if r == b.rate {
		return 0
	}
	b.refill(now)
	full := b.tokens >= b.rate.Burst && b.rate.Burst > 0
	forgiven = b.grow(r)
	if full {
		b.tokens, b.rest = r.Burst, 0
	}
	return forgiven
}

// SetShare is SetRate where r is another share of the same limit, because a replica came
// or went. Tokens that the new share has more than the old one come at its rate: those
// of the replica that is gone may have been spent there.
func (b *Bucket) SetShare(now int64, r Rate) (forgiven int64) {
	if r == b.rate {
		return 0
	}
	b.refill(now)
	return b.grow(r)
}

// grow changes the rate and keeps the tokens, as far as r has room for them.
func (b *Bucket) grow(r Rate) (forgiven int64) {
	b.rest = scale(b.rest, b.rate.Window, r.Window)
	b.rate = r
	if b.tokens >= r.Burst {
		b.tokens, b.rest = r.Burst, 0
	}
	return b.forgive()
}

// scale turns a part of a token counted in 1/from into one counted in 1/to.
func scale(rest uint64, from, to time.Duration) uint64 {
	if from == to {
		return rest
	}
	if from <= 0 || to <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(rest, uint64(to))
	rest, _ = bits.Div64(hi, lo, uint64(from)) // rest is below from
	return rest
}
