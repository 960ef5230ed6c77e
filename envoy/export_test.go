package envoy

import (
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/meteproject/mete/authz"
)

// White-box helpers for the tests, which live in package envoy_test.

const (
	MaxFields      = maxFields
	MaxLogged      = maxLogged
	MaxDescriptors = maxDescriptors
	MaxEntries     = maxEntries
	MaxText        = maxText
)

type Metadata = metadata

func NewMetadata(parts ...[]byte) *Metadata { return &metadata{parts} }

// A CheckCall is a pooled check.
type CheckCall struct{ c checkCall }

func (c *CheckCall) Read(b []byte) (*authz.Request, error) {
	c.c.read(mem.SliceBuffer(b))
	return &c.c.req, c.c.err
}

func (c *CheckCall) Metadata() authz.Metadata { return &c.c.meta }

func (c *CheckCall) Release() { c.c.release() }

// A Descriptor is what was read of a descriptor.
type Descriptor struct {
	Tenant, Route, Method, Path string
	Class, Units                string
	Hits                        int64
	Own                         bool

	Settles, GiveBack bool
	Reservation, Unit string

	Entries             string // keys and values, quoted
	Override            bool
	Amount, Multiplier  uint32
	OverrideUnit        int32
	ContentType, Accept string
	NamesTenant         bool
}

func ReadRateLimit(b []byte) (domain string, hits int64, items []Descriptor, err error) {
	var c limitCall
	c.read(mem.SliceBuffer(b))
	for _, d := range c.items {
		one := Descriptor{
			Tenant: d.tenant, Route: d.route, Method: d.method, Path: d.path, Class: d.class, Units: d.reserves, Hits: d.hits, Own: d.own,
			Settles: d.settles, GiveBack: d.giveBack, Reservation: d.reservation, Unit: d.unit,
			Override: d.over.given, Amount: d.over.amount, Multiplier: d.over.multiplier, OverrideUnit: d.over.unit,
			ContentType: d.contentType, Accept: d.accept, NamesTenant: d.named,
		}
		for _, e := range c.entries[d.from:d.until] {
			one.Entries += fmt.Sprintf("%q=%q ", e.Key, e.Value)
		}
		items = append(items, one)
	}
	return c.domain, c.hits, items, c.err
}

// Check returns the bytes of the CheckResponse for d.
func Check(d *authz.Decision, now time.Time, accept string, grpc bool, pk func(string) [9]byte, by Decider) []byte {
	var a answer
	a.prepare(now, d, pk)
	if d.Outcome.Admits() {
		return a.admitted(nil, by)
	}
	return a.denied(nil, accept, grpc)
}

// A LogEntry is a reused entry of the access log.
type LogEntry struct{ e logEntry }

// Read reads an entry that is to be settled. Without a token it is not.
func (l *LogEntry) Read(b []byte) (e *authz.Ending, token string, final bool, err error) {
	l.e.reset()
	if err := l.e.message(b); err != nil {
		return nil, "", false, err
	}
	l.e.conclude()
	tokens := l.e.reservations()
	if token = tokens[0]; token == "" || tokens[1] == "" {
		return &l.e.ending, token + tokens[1], l.e.final(), nil
	}
	return &l.e.ending, token + "+" + tokens[1], l.e.final(), nil
}

// LogHandler is the handler of StreamAccessLogs.
func LogHandler(s *Server) func(grpc.ServerStream) error {
	return func(ss grpc.ServerStream) error { return s.logHandler(nil, ss) }
}

// LogLinger is how long an ending log stream must be quiet.
const LogLinger = logLinger

// A LogReader takes batches in without a stream.
type LogReader struct{ l *logStream }

func NewLogReader(s *Server) *LogReader { return &LogReader{s.newLogStream()} }

func (r *LogReader) Take(b mem.Buffer) {
	r.l.batch.read(b)
	r.l.takeIn()
}

// Readers waits until no log stream is read any more.
func Readers(s *Server) { s.readers.Wait() }

// Fields returns the values of RateLimit-Policy and RateLimit for d.
func Fields(d *authz.Decision, pk func(string) [9]byte) (policy, state string) {
	var a answer
	a.prepare(time.Time{}, d, pk)
	return string(a.policies(nil)), string(a.states(nil))
}

func PartitionKeys(secret string) func(string) [9]byte { return partitionKeys([]byte(secret)) }

func Seconds(d time.Duration) int64   { return seconds(d) }
func IsGRPC(contentType string) bool  { return isGRPC(contentType) }
func WantsProblem(accept string) bool { return wantsProblem(accept) }
func Span(d time.Duration) string     { return string(span(nil, d)) }
func Thousands(n int64) string        { return string(thousands(nil, n)) }
func JSONText(s string) string        { return string(jsonText(nil, s)) }

// NewCodec is the codec of a server, for a benchmark without HTTP/2.
func NewCodec(s *Server) encoding.CodecV2 { return newCodec(s.buffers) }

// Handler is the unary handler of a service.
func Handler(s *Server, service string) grpc.MethodHandler {
	if service == "check" {
		return s.checkHandler
	}
	return s.limitHandler
}

// PutHeader is one HeaderValueOption as field 1.
func PutHeader(name, value string) []byte { return putHeader(nil, headerList{num: 1}, name, value) }

// ReadBuffer reads a check from a buffer of gRPC's.
func (c *CheckCall) ReadBuffer(b mem.Buffer) { c.c.read(b) }

// A Feed is a connection of which only what comes is looked at.
type Feed struct {
	n *intake
	c *intakeConn
}

func NewFeed(message int64) *Feed {
	n := newIntake(&Options{MaxMessage: int(message), MaxUnfinished: 1 << 40, Now: time.Now})
	return &Feed{n, &intakeConn{n: n, Conn: nowhere{}, preface: preface, streams: map[uint32]unfinished{}}}
}

// Received takes what a client sends, Sent what the server does.
func (f *Feed) Received(b []byte) error { return f.c.received(b) }
func (f *Feed) Sent(b []byte)           { f.c.sent(b) }

// State is the memory of what is unfinished, how many streams are open, and how many
// messages were too large.
func (f *Feed) State() (held int64, streams int, tooLarge uint64) {
	return f.n.held.Load(), len(f.c.streams), f.n.tooLarge.total.Load()
}

// MemoryOf is what a frame of n bytes is counted as.
func MemoryOf(n int) int64 { return memoryOf(n) }

type nowhere struct{ net.Conn }

func (nowhere) RemoteAddr() net.Addr { return &net.TCPAddr{} }
