package envoy

import (
	"time"

	"github.com/meteproject/mete/authz"
)

// leftOut says which headers a request has no room for.
type leftOut struct{ decision, state bool }

// room is what Envoy takes of a request's headers: it answers one with 500 that has more
// once mete's are added.
type room struct{ headers, bytes int }

// The limits of an Envoy that is told nothing: max_headers_count and max_request_headers_kb.
const (
	defaultHeaders     = 100
	defaultHeaderBytes = 60 << 10
)

// fit leaves out of an answer that admits what the request has no room for beside its own
// headers: the state, then the decision's id. If what says who calls does not fit either,
// it gives back what was charged and refuses. What allowed_headers hides is not counted. A
// request that is far beyond the limit shows that Envoy has another one: it is left alone.
func (s *Server) fit(c *checkCall, now time.Time) {
	if !c.dec.Outcome.Admits() {
		return
	}
	free := room{s.room.headers - len(c.req.Headers), s.room.bytes - c.size}
	if free.forAll(&c.dec) {
		return
	}
	if free.headers < -addedHeaders || free.bytes < -addedBytes {
		s.roomOfOther(c, now)
		return
	}
	c.prepare(now, &c.dec, s.pk)
	c.scratch2 = c.identity(c.scratch2[:0], true)
	free.take(&c.req, c.scratch2)
	switch {
	case free.none():
		s.decider.GiveBack(now, &c.dec)
		c.dec.Outcome, c.dec.Limits, c.dec.Worst, c.dec.RetryAfter = authz.HeadersTooLarge, c.dec.Limits[:0], -1, 0
	default:
		c.leave.decision = !free.fits(&c.req, headerDecision, idText)
		c.leave.state = !free.fits(&c.req, headerState, state(c.dec.Outcome))
		s.counters.leftOut.decision.Add(oneIf(c.leave.decision))
		s.counters.leftOut.state.Add(oneIf(c.leave.state))
	}
}

// What Envoy adds itself to a request that it has taken, such as x-request-id, at most. One with
// more than that beyond the limit shows that Envoy has another limit.
const (
	addedHeaders = 16
	addedBytes   = 4 << 10
)

// roomOfOther warns, once a minute, that Envoy takes more than what this server was told.
func (s *Server) roomOfOther(c *checkCall, now time.Time) {
	if s.counters.roomier.add(now) {
		s.log.Warn().Int("headers", len(c.req.Headers)).Int("bytes", c.size).Int("max_request_headers", s.room.headers).Int("max_request_headers_kb", s.room.bytes>>10).
			Msg("a request has more headers than max-request-headers or max-request-headers-kb says that Envoy takes: set them to max_headers_count and max_request_headers_kb of Envoy, or requests that have nearly as many get 500 there or 431 here")
	}
}

// idText is as long as a decision's id.
const idText = "00000000000000000000000000"

// forAll reports whether there is room for all that an answer to d may add: five headers,
// and one for each source. It is nearly always, so it only estimates.
func (r room) forAll(d *authz.Decision) bool {
	const own, name = 5, 512
	tenants, principals := 1, 1
	if d.App != nil {
		tenants += len(d.App.Identity.Tenant)
		principals += len(d.App.Identity.Principal)
	}
	headers := own + tenants + principals
	return r.headers >= headers && r.bytes >= headers*name+tenants*len(d.Tenant)+principals*len(d.Principal)+len(d.Class)
}

func (r room) none() bool { return r.headers < 0 || r.bytes < 0 }

// take makes room for the headers of an answer as it is sent.
func (r *room) take(req *authz.Request, answer []byte) {
	for s := scan("ok_response", answer); s.next(); {
		for option := scan("header_option", s.bytes("headers")); option.next(); {
			if option.num != 1 {
				continue
			}
			var f authz.Field
			for h := scan("header", option.bytes("header")); h.next(); {
				switch h.num {
				case 1:
					f.Name = h.text("key")
				case 2:
					f.Value = h.text("value")
				}
			}
			r.add(req, f.Name, f.Value)
		}
	}
}

// add makes room for a header. One that is there already is replaced.
func (r *room) add(req *authz.Request, name, value string) {
	r.bytes -= len(name) + len(value)
	if _, there := req.Header(name); !there {
		r.headers--
	}
}

// fits makes room for a header if there is any.
func (r *room) fits(req *authz.Request, name, value string) bool {
	with := *r
	with.add(req, name, value)
	if with.none() {
		return false
	}
	*r = with
	return true
}

func oneIf(yes bool) uint64 {
	if yes {
		return 1
	}
	return 0
}
