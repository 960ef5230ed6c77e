package envoy

import (
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// responseHeaders is RateLimitResponse.response_headers_to_add, which Envoy adds to any
// answer.
const responseHeaders = 3

// response appends the RateLimitResponse. refusal is what clients are told; nil: the
// request goes on.
func (c *limitCall) response(b []byte, now time.Time, refusal *authz.Decision, s *Server) []byte {
	c.byRLS = true
	b = putCode(b, refusal != nil)
	b = c.eachStatus(b, now, refusal != nil, s)
	if refusal != nil {
		b = c.refuse(b, now, refusal, s)
	} else {
		b = c.advertises(b, now, s)
	}
	return c.describe(b, now, refusal, s)
}

// advertises appends the headers of an admission: what the domain's own rules have
// left. Of what the app has left ext_authz tells, and no field may be there twice (C131).
func (c *limitCall) advertises(b []byte, now time.Time, s *Server) []byte {
	if c.told.App == nil || quiet(&c.told.App.Headers) {
		return b
	}
	c.prepareTold(now, s)
	return c.advertised(b, headerList{num: responseHeaders, plain: true}, false)
}

// quiet reports whether an admission never has a header.
func quiet(h *plan.Headers) bool {
	return (h.RateLimit == plan.Never || h.RateLimit == plan.OnDenial) && h.XRateLimit == plan.XOff && !h.XQuota
}

func (c *limitCall) prepareTold(now time.Time, s *Server) {
	c.prepare(now, &c.told, s.pk)
	c.scopes = c.counters
}

// refuse appends headers and body of a refusal.
func (c *limitCall) refuse(b []byte, now time.Time, d *authz.Decision, s *Server) []byte {
	if d == &c.told {
		c.prepareTold(now, s)
	} else {
		c.prepare(now, d, s.pk)
	}
	to := headerList{num: responseHeaders, plain: true}
	st := statusOf(d.Outcome)
	contentType, accept := c.negotiation(d)
	var m int
	if isGRPC(contentType) {
		b = c.refusalHeaders(b, to, st, true)
		b, m = open(b, 5) // raw_body, which Envoy makes the grpc-message
		c.scratch = c.sentence(c.scratch[:0])
		return shut(append(b, cutText(text(c.scratch))...), m)
	}
	b = putHeader(b, to, "content-type", c.contentType(accept))
	b = c.refusalHeaders(b, to, st, false)
	b, m = open(b, 5)
	return shut(c.body(b), m)
}

// negotiation returns the request's content type and what it accepts: what the refused
// descriptor says, else the first that says anything. A descriptor that a rule is to match
// has no room for it.
func (c *limitCall) negotiation(d *authz.Decision) (contentType, accept string) {
	if d != &c.told {
		for k := range c.decs {
			if it := &c.items[c.apps[k]]; d == &c.decs[k] {
				contentType, accept = it.contentType, it.accept
			}
		}
	}
	for i := range c.items {
		contentType, accept = or(contentType, c.items[i].contentType), or(accept, c.items[i].accept)
	}
	return contentType, accept
}
