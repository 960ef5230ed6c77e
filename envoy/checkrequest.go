package envoy

import (
	"time"

	"google.golang.org/grpc/mem"

	"github.com/meteproject/mete/authz"
)

// maxFields is how many headers, and how many context extensions, a check may carry. Envoy
// takes 100 headers unless told otherwise, and 8 MiB of them at most. A request with more is
// refused: which of them names the caller nobody could say without reading all.
const maxFields = 1 << 14

const (
	// maxParts bounds the parts of the metadata, of which Envoy sends one.
	maxParts = 1000
	// What a call keeps for the next one; more is left to the garbage collector.
	keptFields = 1000
	keptText   = 64 << 10
)

// A checkCall is one Check from its bytes to its answer. It is used again.
type checkCall struct {
	req  authz.Request
	dec  authz.Decision
	meta metadata
	data mem.Buffer // what the strings of req point into
	low  []byte     // names that had to be made lower case
	err  error

	size    int  // bytes of all headers
	tooMany bool // there are more headers or extensions than maxFields
	answer
}

func (c *checkCall) read(data mem.Buffer) {
	c.data = data
	c.req.Metadata = &c.meta
	c.err = c.message(data.ReadOnlyData())
}

// release forgets everything that points into the message and lets it go.
func (c *checkCall) release() {
	c.req = authz.Request{Headers: emptied(c.req.Headers, keptFields), Extensions: emptied(c.req.Extensions, keptFields)}
	c.dec.Reset()
	c.meta.parts = emptied(c.meta.parts, keptFields)
	c.low, c.err = emptied(c.low, keptText), nil
	c.size, c.tooMany = 0, false
	c.answer.release()
	if c.data != nil {
		c.data.Free()
		c.data = nil
	}
}

// emptied returns s with nothing in it, to be filled again unless it is larger than most.
func emptied[T any](s []T, most int) []T {
	if cap(s) > most {
		return nil
	}
	clear(s)
	return s[:0]
}

// message reads an envoy.service.auth.v3.CheckRequest.
func (c *checkCall) message(b []byte) error {
	s := scan("CheckRequest", b)
	for s.next() {
		if s.num == 1 {
			s.try(c.attributes(s.bytes("attributes")))
		}
	}
	return s.err
}

func (c *checkCall) attributes(b []byte) error {
	s := scan("attributes", b)
	for s.next() {
		switch s.num {
		case 1:
			s.try(c.source(s.bytes("source")))
		case 4:
			s.try(c.request(s.bytes("request")))
		case 10:
			s.try(c.extension(s.bytes("context_extensions")))
		case 11:
			if len(c.meta.parts) == maxParts {
				s.fail("metadata_context", "more than 1000 parts")
				break
			}
			c.meta.parts = append(c.meta.parts, s.bytes("metadata_context"))
		}
	}
	return s.err
}

func (c *checkCall) source(b []byte) error {
	s := scan("attributes.source", b)
	for s.next() {
		switch s.num {
		case 1:
			s.try(c.address(s.bytes("address")))
		case 4:
			c.req.Peer = s.text("principal")
		}
	}
	return s.err
}

// address reads an envoy.config.core.v3.Address, of which a socket_address has an address.
func (c *checkCall) address(b []byte) error {
	const path = "attributes.source.address"
	s := scan(path, b)
	for s.next() {
		if s.num != 1 {
			continue
		}
		a := scan(path+".socket_address", s.bytes("socket_address"))
		for a.next() {
			if a.num == 2 {
				c.req.Address = a.text("address")
			}
		}
		s.try(a.err)
	}
	return s.err
}

func (c *checkCall) request(b []byte) error {
	s := scan("attributes.request", b)
	for s.next() {
		switch s.num {
		case 1:
			at, err := timestamp("attributes.request.time", s.bytes("time"))
			c.req.Start = at
			s.try(err)
		case 2:
			s.try(c.http(s.bytes("http")))
		}
	}
	return s.err
}

func timestamp(path string, b []byte) (time.Time, error) {
	var seconds int64
	var nanos int32
	s := scan(path, b)
	for s.next() {
		switch s.num {
		case 1:
			seconds = int64(s.number("seconds"))
		case 2:
			nanos = int32(s.number("nanos"))
		}
	}
	if s.err != nil || seconds == 0 && nanos == 0 {
		return time.Time{}, s.err
	}
	return time.Unix(seconds, int64(nanos)).UTC(), nil
}

func (c *checkCall) http(b []byte) error {
	s := scan("attributes.request.http", b)
	for s.next() {
		switch s.num {
		case 2:
			c.req.Method = s.text("method")
		case 3:
			s.try(c.header("attributes.request.http.headers", s.bytes("headers")))
		case 4:
			c.req.Path = s.text("path")
		case 5:
			c.req.Host = s.text("host")
		case 13:
			s.try(c.headerMap(s.bytes("header_map")))
		}
	}
	return s.err
}

func (c *checkCall) headerMap(b []byte) error {
	s := scan("attributes.request.http.header_map", b)
	for s.next() {
		if s.num == 1 {
			s.try(c.header("attributes.request.http.header_map.headers", s.bytes("headers")))
		}
	}
	return s.err
}

// header reads a header in either form: an entry of the map, or a HeaderValue,
// whose bytes come as text or raw. Headers of one name stay apart.
func (c *checkCall) header(path string, b []byte) error {
	if len(c.req.Headers) == maxFields {
		c.tooMany = true
		return nil
	}
	var f authz.Field
	var raw string
	s := scan(path, b)
	for s.next() {
		switch s.num {
		case 1:
			f.Name = c.lower(s.text("key"))
		case 2:
			f.Value = s.text("value")
		case 3:
			raw = s.text("raw_value")
		}
	}
	if raw != "" {
		f.Value = raw
	}
	c.size += len(f.Name) + len(f.Value)
	c.req.Headers = append(c.req.Headers, f)
	return s.err
}

func (c *checkCall) extension(b []byte) error {
	if len(c.req.Extensions) == maxFields {
		c.tooMany = true
		return nil
	}
	var f authz.Field
	s := scan("attributes.context_extensions", b)
	for s.next() {
		switch s.num {
		case 1:
			f.Name = s.text("key")
		case 2:
			f.Value = s.text("value")
		}
	}
	c.req.Extensions = append(c.req.Extensions, f)
	return s.err
}

// lower returns name in lower case, as Envoy nearly always sends it already.
func (c *checkCall) lower(name string) string {
	i := 0
	for i < len(name) && (name[i] < 'A' || name[i] > 'Z') {
		i++
	}
	if i == len(name) {
		return name
	}
	from := len(c.low)
	for _, ch := range []byte(name) {
		c.low = append(c.low, lowerByte(ch))
	}
	return text(c.low[from:])
}

func lowerByte(ch byte) byte {
	if ch >= 'A' && ch <= 'Z' {
		return ch + 'a' - 'A'
	}
	return ch
}
