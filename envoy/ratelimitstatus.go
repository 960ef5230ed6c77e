package envoy

import (
	"math"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// The codes of a RateLimitResponse.
const (
	codeOK        = 1
	codeOverLimit = 2
)

// eachStatus appends a DescriptorStatus for each descriptor, in their order.
func (c *limitCall) eachStatus(b []byte, now time.Time, refused bool, s *Server) []byte {
	for i := range c.items {
		var m int
		b, m = open(b, 2)
		switch d := &c.items[i]; d.to {
		case toApp:
			c.prepare(now, &c.decs[d.at], s.pk)
			b = c.decidedStatus(b, refused)
		case toRules:
			b = c.countedStatus(b, d.at, refused)
		case toNobody, toSettler:
			b = putNumber(b, 1, codeOK)
		}
		b = shut(b, m)
	}
	for range c.beyond {
		var m int
		b, m = open(b, 2)
		b = shut(putCode(b, refused), m)
	}
	return b
}

// decidedStatus appends the fields of the status of the decision that was prepared last.
// Where everything was given back it tells what is left after that.
func (c *limitCall) decidedStatus(b []byte, givenBack bool) []byte {
	b = putCode(b, refuses(c.d.Outcome))
	l := c.tightest()
	switch {
	case l != nil:
		left := l.Left
		if givenBack && c.d.Outcome.Admits() && !l.Looked {
			left += returned(l)
		}
		name := l.Limit.Name
		if !plain(name) {
			name = ""
		}
		unit, times := unitOf(l)
		b = currentLimit(b, l.Limit.Amount, unit, times, name)
		b = remaining(b, left)
		b = untilReset(b, l.Reset, false)
	case c.d.Outcome.Admits() && len(c.d.Limits) > 0:
		b = remaining(b, math.MaxUint32) // nothing but unlimited ones
	}
	return b
}

// countedStatus appends the fields of the status of the k-th descriptor that the
// domain's rules counted.
func (c *limitCall) countedStatus(b []byte, k int, refused bool) []byte {
	if k >= len(c.count.Items) {
		return putNumber(b, 1, codeOK) // nobody knows the domain
	}
	it := &c.count.Items[k]
	over := it.Over && refused // else Envoy would see a contradiction
	b = putCode(b, over)
	l := &it.State
	switch {
	case it.Unlimited:
		return remaining(b, math.MaxUint32)
	case it.Replaced || l.Limit == nil:
		return b
	}
	name := ""
	if it.Named {
		name = cutText(l.Limit.Name)
	}
	unit, times := c.windowOf(k)
	b = currentLimit(b, l.Limit.Amount, unit, times, name)
	left := l.Left
	if it.Shadowed || !refused && l.Looked && l.Left < l.Asked && !c.asks[k].Refund {
		left = 0 // it would have refused
	}
	b = remaining(b, left)
	return untilReset(b, l.Reset, over)
}

func putCode(b []byte, over bool) []byte {
	if over {
		return putNumber(b, 1, codeOverLimit)
	}
	return putNumber(b, 1, codeOK)
}

// refuses reports whether an outcome is a refusal of its own: what could not be decided
// beside a refusal is none.
func refuses(o authz.Outcome) bool {
	return !o.Admits() && o != authz.Unavailable && o != authz.NotReady
}

// returned is what of a limit is there again once a charge of it was given back: not
// what was taken past its amount.
func returned(l *authz.LimitState) int64 {
	if l.Limit.Kind != plan.Quota {
		return l.Asked
	}
	return max(0, l.Asked-max(0, l.Used-l.Limit.Amount))
}

// tightest is the limit to report of a decision: the refused one with the longest
// wait, else the one nearest to its end.
func (a *answer) tightest() *authz.LimitState {
	if w := a.worst(); w != nil && !hidden(w) {
		return w
	}
	var best *authz.LimitState
	for i := range a.d.Limits {
		l := &a.d.Limits[i]
		if l.Limit.Unlimited || hidden(l) {
			continue
		}
		if best == nil || nearer(l, best) {
			best = l
		}
	}
	return best
}

// saturated returns n in the 32 bits that Envoy has for it.
func saturated(n int64) uint64 { return uint64(min(max(n, 0), math.MaxUint32)) }

func remaining(b []byte, left int64) []byte {
	if n := saturated(left); n > 0 {
		return putNumber(b, 3, n)
	}
	return b
}

// untilReset appends a time in whole seconds, since Envoy cuts fractions off. Below 0
// nobody knows it, and over says that a client waits for it: at least a second (C127).
func untilReset(b []byte, reset time.Duration, over bool) []byte {
	if reset < 0 {
		return b
	}
	n := seconds(reset)
	if over {
		n = max(n, 1)
	}
	b, m := open(b, 4)
	if n > 0 {
		b = putNumber(b, 1, uint64(n))
	}
	return shut(b, m)
}

// currentLimit appends a RateLimit with what it allows in a window of some units.
func currentLimit(b []byte, amount int64, unit uint64, times int64, name string) []byte {
	b, m := open(b, 2)
	if n := saturated(amount); n > 0 {
		b = putNumber(b, 1, n)
	}
	if unit > 0 {
		b = putNumber(b, 2, unit)
	}
	if name != "" {
		var text int
		b, text = open(b, 3)
		b = append(b, name...)
		tame(b[text:]) // Envoy writes it into a header as it is
		b = shut(b, text)
	}
	if unit > 0 && times > 1 {
		var w int
		b, w = open(b, 4) // unit_multiplier, a UInt32Value
		b = putNumber(b, 1, saturated(times))
		b = shut(b, w)
	}
	return shut(b, m)
}
