package envoy

import (
	"math"
	"net/http"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/meteproject/mete/authz"
)

// A logEntry is what mete reads of an HTTPAccessLogEntry. Its strings point into the
// message. It is used again.
type logEntry struct {
	ending authz.Ending

	kind     int32 // access_log_type
	partial  bool  // intermediate_log_entry, the older way to say that
	tunnel   bool  // a CONNECT
	flags    uint64
	details  string
	headers  []authz.Field // of the response
	trailers []authz.Field
	meta     metadata

	seconds int64 // of the duration
	nanos   int32
}

var _ authz.Response = (*logEntry)(nil)

// reset forgets everything that points into the message.
func (e *logEntry) reset() {
	clear(e.headers)
	clear(e.trailers)
	clear(e.meta.parts)
	*e = logEntry{headers: e.headers[:0], trailers: e.trailers[:0], meta: metadata{e.meta.parts[:0]}}
}

// Header returns a header of the response, by its lower-case name. Envoy logs those
// that additional_response_headers_to_log names.
func (e *logEntry) Header(name string) (string, bool) { return lastOf(e.headers, name) }

// Trailer returns a trailer of the response; additional_response_trailers_to_log.
func (e *logEntry) Trailer(name string) (string, bool) { return lastOf(e.trailers, name) }

// Lookup returns what a filter of Envoy has left of the request.
func (e *logEntry) Lookup(namespace string, path []string) (string, bool) {
	return e.meta.Lookup(namespace, path)
}

// lastOf returns the last field called name: the last one wins, as in any protobuf map.
func lastOf(fields []authz.Field, name string) (string, bool) {
	for i := len(fields) - 1; i >= 0; i-- {
		if fields[i].Name == name {
			return fields[i].Value, true
		}
	}
	return "", false
}

// maxLogged bounds the headers, and the trailers, of an entry, and the parts of its metadata.
const maxLogged = 1000

// The types of entries that may be an end; all others are steps on the way.
const (
	logNotSet        = 0
	logDownstreamEnd = 6
)

// final reports whether the entry is about the end of a request.
func (e *logEntry) final() bool {
	return e.kind == logDownstreamEnd || e.kind == logNotSet && !e.partial
}

// message reads an envoy.data.accesslog.v3.HTTPAccessLogEntry.
func (e *logEntry) message(b []byte) error {
	s := scan("log_entry", b)
	for s.next() {
		switch s.num {
		case 1:
			s.try(e.common(s.bytes("common_properties")))
		case 3:
			s.try(e.request(s.bytes("request")))
		case 4:
			s.try(e.response(s.bytes("response")))
		}
	}
	return s.err
}

func (e *logEntry) common(b []byte) error {
	s := scan("log_entry.common_properties", b)
	for s.next() {
		switch s.num {
		case 16:
			s.try(e.responseFlags(s.bytes("response_flags")))
		case 17:
			if len(e.meta.parts) == maxLogged {
				s.fail("metadata", "more than 1000 parts")
				break
			}
			e.meta.parts = append(e.meta.parts, s.bytes("metadata"))
		case 23:
			s.try(e.duration(s.bytes("duration")))
		case 27:
			e.partial = s.number("intermediate_log_entry") != 0
		case 31:
			e.ending.Reached = s.number("upstream_wire_bytes_sent") > 0
		case 33:
			e.kind = int32(s.number("access_log_type")) //nolint:gosec // enums are cut to 32 bits
		}
	}
	return s.err
}

// responseFlags reads the flags into bits by their field numbers. The one that is a
// message is left out.
func (e *logEntry) responseFlags(b []byte) error {
	s := scan("log_entry.common_properties.response_flags", b)
	for s.next() {
		if s.typ != protowire.VarintType || s.num > 63 {
			continue
		}
		e.flags &^= 1 << s.num
		if s.n != 0 {
			e.flags |= 1 << s.num
		}
	}
	return s.err
}

func (e *logEntry) duration(b []byte) error {
	s := scan("log_entry.common_properties.duration", b)
	for s.next() {
		switch s.num {
		case 1:
			e.seconds = int64(s.number("seconds")) //nolint:gosec // int64 on the wire
		case 2:
			e.nanos = int32(s.number("nanos")) //nolint:gosec // int32 on the wire
		}
	}
	e.ending.Duration = elapsed(e.seconds, e.nanos)
	return s.err
}

// elapsed is a time that is never below 0, nor more than 292 years.
func elapsed(seconds int64, nanos int32) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	switch {
	case seconds < 0, seconds == 0 && nanos < 0:
		return 0
	case seconds > most:
		return math.MaxInt64
	}
	d := time.Duration(seconds)*time.Second + time.Duration(nanos)
	if d < 0 {
		return math.MaxInt64
	}
	return d
}

// methodConnect is CONNECT among Envoy's numbers of methods.
const methodConnect = 6

func (e *logEntry) request(b []byte) error {
	s := scan("log_entry.request", b)
	for s.next() {
		if s.num == 1 {
			e.tunnel = int32(s.number("request_method")) == methodConnect //nolint:gosec // enums are cut to 32 bits
		}
	}
	return s.err
}

func (e *logEntry) response(b []byte) (err error) {
	s := scan("log_entry.response", b)
	for s.next() {
		switch s.num {
		case 1:
			s.try(e.code(s.bytes("response_code")))
		case 4:
			e.headers, err = logField(e.headers, "log_entry.response.response_headers", s.bytes("response_headers"))
			s.try(err)
		case 5:
			e.trailers, err = logField(e.trailers, "log_entry.response.response_trailers", s.bytes("response_trailers"))
			s.try(err)
		case 6:
			e.details = s.text("response_code_details")
		}
	}
	return s.err
}

// code reads the UInt32Value that is absent, or 0, where no response was sent.
func (e *logEntry) code(b []byte) error {
	s := scan("log_entry.response.response_code", b)
	for s.next() {
		if s.num == 1 {
			e.ending.Status = int(uint32(s.number("value"))) //nolint:gosec // uint32 on the wire
		}
	}
	return s.err
}

// logField appends one entry of a map of texts.
func logField(to []authz.Field, path string, b []byte) ([]authz.Field, error) {
	if len(to) == maxLogged {
		return to, &wireError{path, "more than 1000 entries"}
	}
	if k, v, ok := plainPair(b); ok {
		return append(to, authz.Field{Name: text(k), Value: text(v)}), nil
	}
	var f authz.Field
	s := scan(path, b)
	for s.next() {
		switch s.num {
		case 1:
			f.Name = s.text("key")
		case 2:
			f.Value = s.text("value")
		}
	}
	return append(to, f), s.err
}

// Where an answer's metadata is in the log. Envoy's filters have these namespaces
// whatever their instances are called.
const (
	checkNamespace = "envoy.filters.http.ext_authz"
	limitNamespace = "envoy.filters.http.ratelimit"
)

// reservations returns the tokens of what the request reserved, "" for none: by the
// check, and by the rate limit service, where it was asked, too.
func (e *logEntry) reservations() (tokens [2]string) {
	for i, namespace := range [...]string{checkNamespace, limitNamespace} {
		fields, _, _ := e.meta.namespace(namespace)
		if token := textIn(fields, metaReservation); token != "" && admits(textIn(fields, metaOutcome)) {
			tokens[i] = token
		}
	}
	return tokens
}

// textIn returns a text in a Struct, or "".
func textIn(fields []byte, name string) string {
	v, _, _ := entry(fields, name)
	s, _ := scalar(v)
	return s
}

// admits reports whether word is of an outcome that lets the request on: nothing else
// reserves, so a reservation beside a refusal is none of ours.
func admits(word string) bool {
	for o := range outcomes {
		if o := authz.Outcome(o); o.Admits() && o.Word() == word {
			return true
		}
	}
	return false
}

// conclude fills in what follows from all of the entry.
func (e *logEntry) conclude() {
	if e.ending.Status < 200 && e.ending.Status != http.StatusSwitchingProtocols {
		e.ending.Status = 0 // what Envoy has sent is no response yet
	}
	e.ending.Followed = e.details == followedDetails
	e.ending.GRPC = e.grpcStatus()
	e.ending.Unfinished = e.brokeOff()
	e.ending.Response = e
}
