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
	domain  string
	hits    int64 // of the request; descriptors may have their own
	items   []descriptor
	entries []plan.DescriptorEntry // of all items
	data    mem.Buffer
	err     error

	bound bool      // an app is bound to the domain
	words *plan.App // that words the answers of the domain; nil: nothing limits it

	apps  []int              // the items that the app decides
	decs  []authz.Decision   // one for each of apps, as far as decided
	units []authz.UnitAmount // what the app's items say that they reserve

	unreadable uint64 // of the app's items, those whose units nobody can read
	beyond     int    // how many descriptors there were above the bound
	misread    uint64 // of the items of rules, those that cannot be read in full
	unread     error  // what is wrong with the first descriptor that cannot be read in full

	req   authz.Request         // of the item that is being decided
	asks  []authz.DescriptorAsk // what the domain's own rules are to count
	count authz.Count           // the answer to asks

	told     authz.Decision // what clients are told of count
	counters []string       // what counts each of told's limits
	answer
}

// A descriptor is what a descriptor says of a request. The first of a key counts.
type descriptor struct {
	from, until int // its entries

	tenant, route, class string
	method, path         string
	contentType, accept  string
	named                bool // it has a tenant, which may be ""

	hits int64
	own  bool // hits is the descriptor's own
	over override

	// reserves is the entry "units". The call's units from unitsFrom to unitsUntil are
	// what it says, unless that was a number of hits.
	reserves              string
	unitsFrom, unitsUntil int

	// settles says that the descriptor names a reservation, which may be "": it asks
	// for nothing, but says what was used of unit or is given back of it.
	settles           bool
	reservation, unit string
	giveBack          bool

	to destination
	at int // in decs or asks

	cut bool // it says more than is read
}

// A destination is who answers a descriptor.
type destination int

const (
	toNobody  destination = iota // nobody's bucket, not the bucket of "" (C028)
	toSettler                    // it is the end of a request
	toApp
	toRules
)

func (c *limitCall) read(data mem.Buffer) {
	c.data = data
	c.hits, c.unreadable, c.misread, c.beyond, c.unread = 0, 0, 0, 0, nil
	c.err = c.message(data.ReadOnlyData())
	if c.err == nil {
		c.err = c.complete()
	}
}

// Of larger calls the memory is not kept for the next one.
const (
	mostKept        = 16  // items
	mostEntriesKept = 256 // entries of all items
)

func (c *limitCall) release() {
	if cap(c.items) > mostKept || cap(c.entries) > mostEntriesKept {
		data := c.data
		*c = limitCall{answer: c.answer, data: data}
	}
	clear(c.items)
	clear(c.entries)
	clear(c.units)
	for k := range c.decs {
		c.decs[k].Reset()
	}
	c.items, c.entries, c.units = c.items[:0], c.entries[:0], c.units[:0]
	c.apps, c.decs = c.apps[:0], c.decs[:0]
	if len(c.asks) > 0 {
		clear(c.asks)
		clear(c.counters)
		c.asks, c.counters = c.asks[:0], c.counters[:0]
		c.count.Reset()
		c.told.Reset()
	}
	c.req = authz.Request{}
	c.domain, c.err, c.words = "", nil, nil
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
			c.hits = int64(uint32(s.number("hits_addend"))) //nolint:gosec // the field has 32 bits
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
		c.beyond++
		return nil
	}
	d := descriptor{from: len(c.entries)}
	s := scan("descriptors", b)
	for s.next() {
		switch s.num {
		case 1:
			s.try(c.entry(&d, s.bytes("entries")))
		case 2:
			s.try(d.over.read(s.bytes("limit")))
		case 3:
			n, err := wrapped("descriptors.hits_addend", s.bytes("hits_addend"), uint64(d.hits)) //nolint:gosec // never below 0
			d.hits, d.own = int64(min(n, plan.MaxAmount)), true
			s.try(err)
		case 4:
			d.giveBack = s.number("is_negative_hits") != 0
		}
	}
	d.until = len(c.entries)
	c.items = append(c.items, d)
	return s.err
}

// wrapped reads a UInt64Value or UInt32Value into one that was n so far. More than the largest amount of any limit
// is for the caller to take as that amount: it is refused, not taken for a fault, which
// would let the request through.
func wrapped(path string, b []byte, n uint64) (uint64, error) {
	s := scan(path, b)
	for s.next() {
		if s.num == 1 {
			n = s.number("value")
		}
	}
	return n, s.err
}

// entry reads an entry of d, whose key and value are bytes that need not be UTF-8. What
// mete knows the meaning of is noted in full; rules see no more than the bounds.
func (c *limitCall) entry(d *descriptor, b []byte) error {
	var key, value string
	s := scan("descriptors.entries", b)
	for s.next() {
		switch s.num {
		case 1:
			key = s.text("key")
		case 2:
			value = s.text("value")
		}
	}
	d.note(key, value)
	if len(c.entries)-d.from == maxEntries {
		d.cut = true
		return s.err
	}
	d.cut = d.cut || len(key) > maxText || len(value) > maxText
	c.entries = append(c.entries, plan.DescriptorEntry{Key: key[:min(len(key), maxText)], Value: value[:min(len(value), maxText)]})
	return s.err
}

// note notes an entry with a key that mete knows.
func (d *descriptor) note(key, value string) {
	var at *string
	switch key {
	case "tenant":
		at, d.named = &d.tenant, true
	case "route":
		at = &d.route
	case "class":
		at = &d.class
	case "units":
		at = &d.reserves
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
}
