package envoy

import (
	"google.golang.org/grpc/mem"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// Bounds of a rate limit request (C027). Envoy's own headers end at 60 KiB unless
// told otherwise, so no value of one is cut off by these.
const (
	maxDescriptors = 1000
	maxEntries     = 64
	maxText        = 64 << 10
)

// A limitCall is one ShouldRateLimit from its bytes to its answer. It is used
// again.
type limitCall struct {
	domain string
	hits   int64 // of the request; descriptors may have their own
	items  []descriptor
	decs   []authz.Decision // one for each item, as far as decided
	req    authz.Request
	data   mem.Buffer
	err    error
	answer
}

// A descriptor is what a descriptor says of a request: the entries with the keys
// that mete knows. The first of a key counts.
type descriptor struct {
	tenant, route       string
	method, path        string
	contentType, accept string

	hits int64
	own  bool // hits is the descriptor's own

	// settles says that the descriptor names a reservation, which may be "": it asks
	// for nothing, but says what was used of unit or is given back of it.
	settles           bool
	reservation, unit string
	giveBack          bool
}

func (c *limitCall) read(data mem.Buffer) {
	c.data = data
	c.hits = 0
	c.err = c.message(data.ReadOnlyData())
	if c.err == nil {
		c.err = c.complete()
	}
}

// mostKept is how many decisions are kept for the next call.
const mostKept = 16

func (c *limitCall) release() {
	clear(c.items)
	c.items = c.items[:0]
	for i := range c.decs {
		c.decs[i].Reset()
	}
	if cap(c.decs) > mostKept {
		c.decs, c.items = nil, nil
	}
	c.decs = c.decs[:0]
	c.req = authz.Request{}
	c.domain, c.err = "", nil
	c.answer.release()
	if c.data != nil {
		c.data.Free()
		c.data = nil
	}
}

// complete checks what only the whole message can tell.
func (c *limitCall) complete() error {
	switch {
	case c.domain == "":
		return &wireError{"domain", "must not be empty"}
	case len(c.items) == 0:
		return &wireError{"descriptors", "must not be empty"}
	}
	if c.hits == 0 {
		c.hits = 1 // absent and 0 are the same on the wire (C046)
	}
	return nil
}

// message reads an envoy.service.ratelimit.v3.RateLimitRequest.
func (c *limitCall) message(b []byte) error {
	s := scan("RateLimitRequest", b)
	for s.next() {
		switch s.num {
		case 1:
			c.domain = bounded(&s, "domain")
		case 2:
			s.try(c.descriptor(s.bytes("descriptors")))
		case 3:
			c.hits = int64(uint32(s.number("hits_addend")))
		}
	}
	return s.err
}

func bounded(s *scanner, name string) string {
	t := s.text(name)
	if len(t) > maxText {
		s.fail(name, "longer than 64 KiB")
	}
	return t
}

func (c *limitCall) descriptor(b []byte) error {
	if len(c.items) == maxDescriptors {
		return &wireError{"descriptors", "more than 1000"}
	}
	var d descriptor
	entries := 0
	s := scan("descriptors", b)
	for s.next() {
		switch s.num {
		case 1:
			if entries++; entries > maxEntries {
				s.fail("entries", "more than 64 in one descriptor")
			}
			s.try(d.entry(s.bytes("entries")))
		case 2:
			s.fail("limit", "overrides are not accepted")
		case 3:
			n, err := wrapped(s.bytes("hits_addend"))
			d.hits, d.own = n, true
			s.try(err)
		case 4:
			d.giveBack = s.number("is_negative_hits") != 0
		}
	}
	if d.giveBack && !d.settles {
		s.fail("is_negative_hits", "a refund must name its request: add an entry \"reservation\" with the text of that name from the metadata of the answer that admitted it")
	}
	c.items = append(c.items, d)
	return s.err
}

// wrapped reads a UInt64Value. More than the largest amount of any limit is as
// good as that amount: it is refused, not taken for a fault, which would let the
// request through.
func wrapped(b []byte) (int64, error) {
	n := uint64(0)
	s := scan("descriptors.hits_addend", b)
	for s.next() {
		if s.num == 1 {
			n = s.number("value")
		}
	}
	return int64(min(n, plan.MaxAmount)), s.err
}

func (d *descriptor) entry(b []byte) error {
	var key, value string
	s := scan("descriptors.entries", b)
	for s.next() {
		switch s.num {
		case 1:
			key = bounded(&s, "key")
		case 2:
			value = bounded(&s, "value")
		}
	}
	var at *string
	switch key {
	case "tenant":
		at = &d.tenant
	case "route":
		at = &d.route
	case "method":
		at = &d.method
	case "path":
		at = &d.path
	case "content_type":
		at = &d.contentType
	case "accept":
		at = &d.accept
	case "unit":
		at = &d.unit
	case "reservation":
		at, d.settles = &d.reservation, true
	}
	if at != nil && *at == "" {
		*at = value
	}
	return s.err
}
