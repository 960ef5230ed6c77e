package envoy

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// A Decider decides. [authz.Decider] is one.
//
// Decide fills dec with the answer to req; it keeps nothing of req, whose strings
// end with the call. GiveBack undoes what dec charged; a repeat changes nothing. Seal
// appends the token by which what dec and more were charged can be settled, in
// characters that are the same everywhere, or nothing if that is nothing.
//
// Domain returns the app that is bound to a rate limit domain and the domain's own rules,
// nil for what there is not. CountDescriptors fills c, which is Reset, with the answer
// of those rules to all asks, whose strings and entries end with the call; with onlyLook
// it takes nothing. GiveBackCount undoes what c took; a repeat changes nothing.
type Decider interface {
	Decide(ctx context.Context, now time.Time, req *authz.Request, dec *authz.Decision)
	GiveBack(now time.Time, dec *authz.Decision)
	Seal(dst []byte, now time.Time, dec *authz.Decision, more []authz.Decision) []byte

	Domain(name string) (*plan.App, *plan.Domain)
	CountDescriptors(ctx context.Context, now time.Time, domain string, asks []authz.DescriptorAsk, onlyLook bool, c *authz.Count)
	GiveBackCount(now time.Time, c *authz.Count)
}

const (
	checkService = "envoy.service.auth.v3.Authorization"
	limitService = "envoy.service.ratelimit.v3.RateLimitService"
)

// checkHandler answers Check, from bytes to bytes.
func (s *Server) checkHandler(_ any, ctx context.Context, dec func(any) error, via grpc.UnaryServerInterceptor) (any, error) { //nolint:revive // the order is grpc's
	c, ok := s.checks.Get().(*checkCall)
	if !ok {
		c = new(checkCall)
	}
	if err := dec(c); err != nil {
		return nil, err
	}
	var out any
	var err error
	if via == nil {
		out, err = s.check(ctx, c)
	} else {
		info := &grpc.UnaryServerInfo{Server: s, FullMethod: "/" + checkService + "/Check"}
		out, err = via(ctx, c, info, func(ctx context.Context, _ any) (any, error) { return s.check(ctx, c) })
	}
	if status.Code(err) == codes.Internal {
		return nil, err // after a panic nobody knows who still holds on to c
	}
	c.release()
	s.checks.Put(c)
	return out, err
}

func (s *Server) check(ctx context.Context, c *checkCall) (out any, err error) {
	defer func() {
		if p := recover(); p != nil {
			out, err = nil, s.panicked("Check", p)
			s.giveBack(&c.dec)
		}
	}()
	if c.err != nil {
		return nil, s.malformed(c.err)
	}
	if ctx.Err() != nil {
		return nil, s.gone(ctx)
	}
	now := s.now()
	c.dec.Reset()
	if c.tooMany {
		c.dec.ID, c.dec.Outcome = authz.NewID(now), authz.HeadersTooLarge
	} else {
		s.decider.Decide(ctx, now, &c.req, &c.dec)
		s.fit(c, now)
	}
	s.count(&s.counters.checks, c.dec.Outcome, now)
	if ctx.Err() != nil {
		s.decider.GiveBack(now, &c.dec)
		return nil, s.gone(ctx)
	}
	if err := undecided(&c.dec); err != nil {
		s.decider.GiveBack(now, &c.dec)
		return nil, err
	}
	buf := s.buffers.Get(0)
	c.prepare(now, &c.dec, s.pk)
	if c.dec.Outcome.Admits() {
		c.seen = c.req.Headers
		*buf = c.admitted(*buf, s.decider)
	} else {
		*buf = s.refuse(ctx, c, *buf)
	}
	if ctx.Err() != nil {
		s.buffers.Put(buf)
		s.decider.GiveBack(now, &c.dec)
		return nil, s.gone(ctx)
	}
	return (*answered)(buf), nil
}

func (s *Server) refuse(ctx context.Context, c *checkCall, b []byte) []byte {
	if c.dec.Outcome == authz.NoApp {
		s.logUnknownHost(c.now, &c.req, c.dec.Why)
		c.unknownHost = s.unknownStatus
	}
	if s.onRefused != nil {
		s.onRefused(ctx, &c.req, &c.dec)
	}
	accept, _ := c.req.Header("accept")
	contentType, _ := c.req.Header("content-type")
	c.web = overWeb(&c.req, accept)
	return c.denied(b, accept, isGRPC(contentType))
}

// undecided returns the gRPC error of outcomes that are no answer (C117). Envoy's
// failure mode then rules, as for any server that cannot decide.
func undecided(d *authz.Decision) error {
	switch d.Outcome {
	case authz.NotReady:
		return status.Error(codes.Unavailable, why(d, "no documents have been read yet"))
	case authz.Undecided:
		return status.Error(codes.Internal, why(d, "nothing was decided"))
	case authz.Allowed, authz.Exempt, authz.Grace, authz.CountedOver, authz.UnavailableAllowed,
		authz.RateLimited, authz.QuotaExceeded, authz.RequestTooLarge,
		authz.Unauthenticated, authz.TenantUnknown, authz.Unavailable, authz.HeadersTooLarge, authz.NoApp:
		return nil
	}
	return status.Error(codes.Internal, "unknown outcome")
}

func why(d *authz.Decision, otherwise string) string { return valid(or(d.Why, otherwise)) }
