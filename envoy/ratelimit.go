package envoy

import (
	"cmp"
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
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
	if err := c.assign(s.decider.Domain(c.domain)); err != nil {
		return nil, s.malformed(err)
	}
	now := s.now()
	s.noteUnread(now, c)
	s.settleAll(ctx, now, c)
	if ctx.Err() != nil {
		return nil, s.gone(ctx)
	}
	refusal, err := s.refusal(ctx, now, c)
	if ctx.Err() != nil {
		err = s.gone(ctx)
	}
	if err != nil {
		s.giveAllBack(c)
		return nil, err
	}
	buf := s.buffers.Get(0)
	*buf = c.response(*buf, now, refusal, s)
	if ctx.Err() != nil {
		s.buffers.Put(buf)
		s.giveAllBack(c)
		return nil, s.gone(ctx)
	}
	return (*answered)(buf), nil
}

// noteUnread counts and logs the descriptors that cannot be read, or not in full.
func (s *Server) noteUnread(now time.Time, c *limitCall) {
	s.counters.unreadableUnits.Add(c.unreadable)
	if c.unread == nil {
		return
	}
	s.counters.unreadableDescriptors.Add(c.misread)
	if seen, log := s.unread.add(now, int64(c.misread)); log { //nolint:gosec // fewer than the bytes of a message
		s.log.Warn().Str("domain", c.domain).Str("problem", c.unread.Error()).Int64("descriptors", seen).
			Msg("rate limit descriptors cannot be read in full; their rules decide, and what has no rule is over the limit")
	}
}

// refusal decides and counts all descriptors. It returns what clients are told if one
// of them refuses: of the one with the longest wait. Nil: the request goes on.
//
// All or nothing, over all descriptors: where one refuses nobody has taken anything.
// The domain's rules see to it among themselves, for a domain may want otherwise. A
// refusal stands although another descriptor cannot be decided: an error may let the
// request through, by what Envoy is told to do with errors (C117).
func (s *Server) refusal(ctx context.Context, now time.Time, c *limitCall) (*authz.Decision, error) {
	if c.beyond > 0 && c.words != nil {
		c.told = authz.Decision{Outcome: authz.RateLimited, App: c.words, ID: authz.NewID(now), Worst: -1}
		return &c.told, nil
	}
	worst, away, err := s.decideAll(ctx, now, c)
	if err != nil || ctx.Err() != nil {
		return nil, err
	}
	err = s.countAll(ctx, now, c, worst >= 0 || away != nil)
	switch {
	case ctx.Err() != nil || err != nil && !isAway(err):
		return nil, err
	case worst < 0 && !c.count.Refused() && (err != nil || away != nil):
		return nil, cmp.Or(away, err)
	}
	c.tell(now)
	var by *authz.Decision
	if worst >= 0 {
		by = &c.decs[worst]
		c.request(worst)
	}
	if c.count.Refused() && (by == nil || longer(&c.told, by)) {
		by = &c.told
		c.req = authz.Request{Domain: c.domain, Hits: c.hits}
	}
	if by != nil {
		s.giveDecisionsBack(c)
		if s.onRefused != nil {
			s.onRefused(ctx, &c.req, by)
		}
	}
	return by, nil
}

// isAway reports whether nothing could be decided for want of etcd or of documents.
func isAway(err error) bool { return status.Code(err) == codes.Unavailable }

// decideAll decides each descriptor of the app. It returns the one that was refused with
// the longest wait, as an index of c.decs, or -1, and the first error of those for which
// etcd or the documents are away. After either the rest is decided all the same, so that
// the wait is true for all of them.
func (s *Server) decideAll(ctx context.Context, now time.Time, c *limitCall) (worst int, away, err error) {
	worst = -1
	for k := range c.decs {
		d := &c.decs[k]
		d.Reset()
		c.request(k)
		s.decider.Decide(ctx, now, &c.req, d)
		s.count(&s.counters.descriptors, d.Outcome, now)
		if d.Outcome == authz.NoApp {
			d.Outcome = authz.Exempt // it was bound a moment ago
		}
		switch err := undecided(d); {
		case isAway(err):
			away = cmp.Or(away, err)
		case err != nil:
			return -1, nil, err
		case d.Outcome == authz.Unavailable:
			// Envoy's status_on_error says what callers see.
			away = cmp.Or(away, status.Error(codes.Unavailable, d.Outcome.Word()))
		case !d.Outcome.Admits() && (worst < 0 || longer(d, &c.decs[worst])):
			worst = k
		}
	}
	return worst, away, nil
}

// countAll counts the descriptors that no app decides, if there are any. With onlyLook
// it takes nothing.
func (s *Server) countAll(ctx context.Context, now time.Time, c *limitCall, onlyLook bool) error {
	if len(c.asks) == 0 {
		return nil
	}
	c.count.Reset()
	s.decider.CountDescriptors(ctx, now, c.domain, c.asks, onlyLook, &c.count)
	n := &c.count
	if n.Outcome != authz.NoApp || !c.bound {
		s.count(&s.counters.counted, n.Outcome, now)
	}
	switch n.Outcome {
	case authz.Allowed, authz.UnavailableAllowed, authz.RateLimited, authz.QuotaExceeded, authz.RequestTooLarge:
		return nil
	case authz.NoApp:
		return nil // a domain that nobody knows has no limits
	case authz.Unavailable:
		return status.Error(codes.Unavailable, valid(or(n.Why, n.Outcome.Word())))
	case authz.NotReady:
		return status.Error(codes.Unavailable, valid(or(n.Why, "no documents have been read yet")))
	case authz.Undecided, authz.Exempt, authz.Grace, authz.CountedOver, authz.Unauthenticated, authz.TenantUnknown, authz.HeadersTooLarge:
	}
	return status.Error(codes.Internal, valid(or(n.Why, "nothing was decided")))
}

// longer reports whether d's wait is longer than e's. For ever, which is 0, is the
// longest.
func longer(d, e *authz.Decision) bool {
	if d.RetryAfter <= 0 || e.RetryAfter <= 0 {
		return d.RetryAfter <= 0 && e.RetryAfter > 0
	}
	return d.RetryAfter > e.RetryAfter
}
