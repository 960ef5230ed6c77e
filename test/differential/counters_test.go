package differential_test

import (
	"math"
	"math/big"
	"time"
)

// A unit is a word of a rate limit file.
type unit string

const (
	second unit = "second"
	minute unit = "minute"
	hour   unit = "hour"
	day    unit = "day"
	week   unit = "week"
	month  unit = "month"
	year   unit = "year"
)

func units() []unit { return []unit{second, minute, hour, day, week, month, year} }

// seconds is how long a unit is in envoyproxy/ratelimit, which knows no calendar.
func (u unit) seconds() int64 {
	return map[unit]int64{
		second: 1, minute: 60, hour: 3600, day: 86400, week: 7 * 86400, month: 30 * 86400, year: 365 * 86400,
	}[u]
}

// window returns the window of a request, in Unix seconds.
func (w ways) window(now time.Time, l *limit) (begin, end int64) {
	n := l.unit.seconds()
	if w.calendar == nil || l.unit == second || l.unit == minute {
		begin = now.Unix() / n * n
		return begin, begin + n
	}
	t := now.In(w.calendar).Truncate(time.Minute).Add(time.Minute) // the end of the minute decides (A17)
	y, mo, d := t.Date()
	on := func(y int, mo time.Month, d int) int64 { return time.Date(y, mo, d, 0, 0, 0, 0, w.calendar).Unix() }
	switch l.unit {
	case hour:
		begin = t.Truncate(time.Hour).Unix()
		return begin, begin + n
	case day:
		return on(y, mo, d), on(y, mo, d+1)
	case week:
		monday := d - (int(t.Weekday())+6)%7
		return on(y, mo, monday), on(y, mo, monday+7)
	case month:
		return on(y, mo, 1), on(y, mo+1, 1)
	case year:
		return on(y, 1, 1), on(y+1, 1, 1)
	case second, minute:
	}
	panic("no calendar has a " + l.unit)
}

// A counter counts the hits of one descriptor.
type counter interface {
	// at tells the time, the end of the window and the limit that holds now.
	at(now time.Time, end int64, l *limit)
	fits(hits uint64) bool
	take(hits uint64)
	// owe takes what was used already, whether it is there or not.
	owe(hits uint64)
	give(hits uint64)
	left() uint64
	// reset is how many seconds a status says.
	reset(now time.Time, t *taking) int64
}

// windowed counts in a fixed window.
type windowed struct {
	used, limit uint64
	end         int64
}

func (c *windowed) at(_ time.Time, end int64, l *limit) { c.end, c.limit = end, uint64(l.perUnit) }
func (c *windowed) fits(hits uint64) bool               { return c.used+hits <= c.limit }
func (c *windowed) take(hits uint64)                    { c.used += hits }
func (c *windowed) owe(hits uint64)                     { c.used += hits }
func (c *windowed) give(hits uint64)                    { c.used -= min(c.used, hits) }
func (c *windowed) left() uint64                        { return c.limit - min(c.limit, c.used) }
func (c *windowed) reset(now time.Time, _ *taking) int64 {
	return int64(math.Ceil(time.Unix(c.end, 0).Sub(now).Seconds()))
}

// bucket is a token bucket that is full at first, counted in parts of a token: one for each nanosecond of the unit.
type bucket struct {
	level big.Int
	limit uint64
	per   int64
	last  time.Time
}

func newBucket(now time.Time, l *limit) *bucket {
	b := &bucket{limit: uint64(l.perUnit), per: l.unit.seconds() * int64(time.Second), last: now}
	b.level = *b.parts(b.limit)
	return b
}

func (b *bucket) parts(tokens uint64) *big.Int {
	return new(big.Int).Mul(new(big.Int).SetUint64(tokens), big.NewInt(b.per))
}

func (b *bucket) at(now time.Time, _ int64, _ *limit) {
	if now.After(b.last) {
		gained := new(big.Int).Mul(big.NewInt(now.Sub(b.last).Nanoseconds()), new(big.Int).SetUint64(b.limit))
		b.put(gained)
		b.last = now
	}
}

func (b *bucket) put(parts *big.Int) {
	b.level = *new(big.Int).Add(&b.level, parts)
	if full := b.parts(b.limit); b.level.Cmp(full) > 0 {
		b.level = *full
	}
}

func (b *bucket) fits(hits uint64) bool { return b.level.Cmp(b.parts(hits)) >= 0 }
func (b *bucket) give(hits uint64)      { b.put(b.parts(hits)) }

// take takes what there is, where more is charged.
func (b *bucket) take(hits uint64) {
	b.level = *new(big.Int).Sub(&b.level, b.parts(min(hits, b.left())))
}

// owe leaves a debt of at most ten windows: what is beyond is forgiven, in whole tokens.
func (b *bucket) owe(hits uint64) {
	b.level = *new(big.Int).Sub(&b.level, b.parts(hits))
	most := new(big.Int).Neg(b.parts(10 * b.limit))
	if beyond := most.Sub(most, &b.level); beyond.Sign() > 0 {
		per := big.NewInt(b.per)
		tokens := beyond.Add(beyond, per).Sub(beyond, big.NewInt(1)).Div(beyond, per)
		b.level = *new(big.Int).Add(&b.level, tokens.Mul(tokens, per))
	}
}

func (b *bucket) left() uint64 {
	if b.level.Sign() < 0 {
		return 0
	}
	return new(big.Int).Div(&b.level, big.NewInt(b.per)).Uint64()
}

// reset is until what was asked for fits where it did not or nothing is left, else until the bucket is full. -1: never.
func (b *bucket) reset(_ time.Time, t *taking) int64 {
	want := b.limit
	switch {
	case t.refuses:
		want = max(1, t.wanted)
	case b.left() == 0:
		want = max(1, t.hits)
	}
	if want > b.limit {
		return -1
	}
	return b.until(b.parts(want))
}

func (b *bucket) until(want *big.Int) int64 {
	lacks := new(big.Int).Sub(want, &b.level)
	if lacks.Sign() <= 0 || b.limit == 0 {
		return 0
	}
	second := new(big.Int).Mul(new(big.Int).SetUint64(b.limit), big.NewInt(int64(time.Second)))
	lacks.Add(lacks, second).Sub(lacks, big.NewInt(1))
	return lacks.Div(lacks, second).Int64()
}
