package envoy

import (
	"context"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// limitHandler answers ShouldRateLimit, from bytes to bytes.
func (s *Server) limitHandler(_ any, ctx context.Context, dec func(any) error, via grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // the order is grpc's
	c, ok := s.limits.Get().(*limitCall)
	if !ok {
		c = new(limitCall)
	}
	if err := dec(c); err != nil {
		return nil, err
	}
	var out any
	var err error
	if via == nil {
		out, err = s.limit(ctx, c)
	} else {
		info := &grpc.UnaryServerInfo{Server: s, FullMethod: "/" + limitService + "/ShouldRateLimit"}
		out, err = via(ctx, c, info, func(ctx context.Context, _ any) (any, error) { return s.limit(ctx, c) })
	}
	if status.Code(err) == codes.Internal {
		return nil, err // after a panic nobody knows who still holds on to c
	}
	c.release()
	s.limits.Put(c)
	return out, err
}

func (s *Server) limit(ctx context.Context, c *limitCall) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, s.panicked("ShouldRateLimit", p)
			s.giveAllBack(c)
		}
	}()
	if c.err != nil {
		return nil, s.malformed(c.err)
	}
	now := s.now()
	s.settleAll(ctx, now, c)
	if ctx.Err() != nil {
		return nil, s.gone(ctx)
	}
	worst, err := s.decideAll(ctx, now, c)
	if ctx.Err() != nil {
		err = s.gone(ctx)
	}
	if err != nil {
		s.giveAllBack(c)
		return nil, err
	}
	if worst >= 0 {
		// All or nothing, over descriptors too: what the others took goes back.
		s.giveAllBack(c)
		if s.onRefused != nil {
			c.request(worst)
			s.onRefused(ctx, &c.req, &c.decs[worst])
		}
	}
	buf := s.buffers.Get(0)
	*buf = c.response(*buf, now, worst, s)
	if ctx.Err() != nil {
		s.buffers.Put(buf)
		s.giveAllBack(c)
		return nil, s.gone(ctx)
	}
	return (*answered)(buf), nil
}

// decideAll decides each descriptor. It returns the one that was refused with the
// longest wait, or -1. After a refusal the rest is decided all the same, so that
// the wait is true for all of them; limit then gives everything back.
func (s *Server) decideAll(ctx context.Context, now time.Time, c *limitCall) (worst int, err error) {
	worst = -1
	c.grow()
	for i := range c.items {
		d := &c.decs[i]
		d.Reset()
		if c.items[i].tenant == "" || c.items[i].settles {
			d.Outcome = authz.Exempt // nobody's bucket, not the bucket of "" (C028)
			continue
		}
		c.request(i)
		s.decider.Decide(ctx, now, &c.req, d)
		s.count(&s.counters.descriptors, d.Outcome, now)
		if d.Outcome == authz.NoApp {
			d.Outcome = authz.Exempt // an unknown domain has no limits
		}
		if d.Outcome == authz.Unavailable {
			// Envoy's status_on_error says what callers see.
			return -1, status.Error(codes.Unavailable, d.Outcome.Word())
		}
		if err := undecided(d); err != nil {
			return -1, err
		}
		if !d.Outcome.Admits() && (worst < 0 || longer(d, &c.decs[worst])) {
			worst = i
		}
	}
	return worst, nil
}

// longer tells whether d's wait is longer than e's. For ever, which is 0, is the
// longest.
func longer(d, e *authz.Decision) bool {
	if d.RetryAfter <= 0 || e.RetryAfter <= 0 {
		return d.RetryAfter <= 0 && e.RetryAfter > 0
	}
	return d.RetryAfter > e.RetryAfter
}

// grow makes room for a decision on each descriptor.
func (c *limitCall) grow() {
	if n := len(c.items); cap(c.decs) >= n {
		c.decs = c.decs[:n]
	} else {
		c.decs = make([]authz.Decision, n)
	}
}

// request makes c.req the request that descriptor i speaks of.
func (c *limitCall) request(i int) {
	d := &c.items[i]
	c.req = authz.Request{
		Domain: c.domain, Method: d.method, Path: d.path,
		Tenant: d.tenant, Route: d.route, Hits: c.hits,
	}
	if d.own {
		c.req.Hits, c.req.CheckOnly = d.hits, d.hits == 0
	}
}

// The codes and units of a RateLimitResponse.
const (
	codeOK        = 1
	codeOverLimit = 2

	unitSecond = 1
	unitMinute = 2
	unitHour   = 3
	unitDay    = 4
	unitMonth  = 5
	unitYear   = 6
	unitWeek   = 7
)

// response appends the RateLimitResponse. Descriptor worst refused; -1: none did.
func (c *limitCall) response(b []byte, now time.Time, worst int, s *Server) []byte {
	c.byRLS = true
	code := uint64(codeOK)
	if worst >= 0 {
		code = codeOverLimit
	}
	b = putNumber(b, 1, code)
	for i := range c.items {
		c.prepare(now, &c.decs[i], s.pk)
		b = c.status(b, worst >= 0)
	}
	if worst < 0 {
		return c.reserved(b, now, s)
	}
	c.prepare(now, &c.decs[worst], s.pk)
	it := &c.items[worst]
	to := headerList{num: 3, plain: true}
	st := statusOf(c.d.Outcome)
	var m int
	if isGRPC(it.contentType) {
		b = c.refusalHeaders(b, to, st, true)
		b, m = open(b, 5) // raw_body, which Envoy makes the grpc-message
		c.scratch = c.sentence(c.scratch[:0])
		return shut(append(b, cutText(text(c.scratch))...), m)
	}
	b = putHeader(b, to, "content-type", c.contentType(it.accept))
	b = c.refusalHeaders(b, to, st, false)
	b, m = open(b, 5)
	return shut(c.body(b), m)
}

// status appends the DescriptorStatus of the decision that was prepared last. Where
// everything was given back it tells what is left after that.
func (c *limitCall) status(b []byte, givenBack bool) []byte {
	b, m := open(b, 2)
	code := uint64(codeOK)
	if !c.d.Outcome.Admits() {
		code = codeOverLimit
	}
	b = putNumber(b, 1, code)
	if l := c.tightest(); l != nil {
		left := l.Left
		if givenBack && c.d.Outcome.Admits() && !l.Looked {
			left += returned(l)
		}
		b = currentLimit(b, l)
		if left > 0 {
			b = putNumber(b, 3, saturated(left))
		}
		if l.Reset >= 0 {
			var d int
			b, d = open(b, 4)
			if n := seconds(l.Reset); n > 0 {
				b = putNumber(b, 1, uint64(n)) // whole seconds: Envoy cuts fractions off
			}
			b = shut(b, d)
		}
	} else if c.d.Outcome.Admits() && len(c.d.Limits) > 0 {
		b = putNumber(b, 3, math.MaxUint32) // nothing but unlimited ones
	}
	return shut(b, m)
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
func (c *limitCall) tightest() *authz.LimitState {
	if w := c.worst(); w != nil && !hidden(w) {
		return w
	}
	var best *authz.LimitState
	for i := range c.d.Limits {
		l := &c.d.Limits[i]
		if l.Limit.Unlimited || hidden(l) {
			continue
		}
		if best == nil || nearer(l, best) {
			best = l
		}
	}
	return best
}

func saturated(n int64) uint64 { return uint64(min(max(n, 0), math.MaxUint32)) }

func currentLimit(b []byte, l *authz.LimitState) []byte {
	b, m := open(b, 2)
	if n := saturated(l.Limit.Amount); n > 0 {
		b = putNumber(b, 1, n)
	}
	if u := unitOf(l); u > 0 {
		b = putNumber(b, 2, u)
	}
	if plain(l.Limit.Name) {
		b = putText(b, 3, l.Limit.Name)
	}
	return shut(b, m)
}

// unitOf is Envoy's unit for the limit's window; 0 (UNKNOWN) where there is none.
func unitOf(l *authz.LimitState) uint64 {
	if l.Limit.Kind == plan.Quota {
		switch l.Limit.Reset.Kind {
		case plan.CalendarHour:
			return unitHour
		case plan.CalendarDay:
			return unitDay
		case plan.CalendarWeek:
			return unitWeek
		case plan.CalendarMonth:
			return unitMonth
		case plan.CalendarYear:
			return unitYear
		case plan.CalendarBilling, plan.Cron:
			return 0
		case plan.Every, plan.AfterFirstUse:
		}
	}
	if l.Window%time.Second != 0 {
		return 0
	}
	switch int64(l.Window / time.Second) {
	case 1:
		return unitSecond
	case 60:
		return unitMinute
	case 3600:
		return unitHour
	case 86400:
		return unitDay
	case 604800:
		return unitWeek
	}
	return 0
}
