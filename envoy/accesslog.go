package envoy

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
)

const logService = "envoy.service.accesslog.v3.AccessLogService"

// A Settler settles what was reserved once it is known what happened.
//
// Its methods do not block, are safe for concurrent use, and a repeat changes
// nothing. What they are given ends with the call.
type Settler interface {
	// Settle settles the request of a reservation by how it ended. token is the
	// text that Decider.Seal made.
	Settle(now time.Time, token string, e *authz.Ending) authz.Settled
	// SettleUnits does it where a number is all that is known: n, from 0 to
	// plan.MaxAmount, is what was used of unit, or, with giveBack, what of it is
	// given back. An empty unit is the one that the route measures.
	SettleUnits(now time.Time, token, unit string, n int64, giveBack bool) authz.Settled
}

// logLinger is how long a stream that is to end is quiet before it does. What Envoy
// sent before has been taken in by then, unless it is still on the wire.
const logLinger = 2 * time.Millisecond

// A logStream is one StreamAccessLogs, from one thread of one Envoy. Two goroutines
// share it: one reads, the other ends the stream.
type logStream struct {
	s     *Server
	taken chan struct{} // a batch was taken in
	busy  atomic.Bool   // a batch is being taken in

	// The rest is the reader's.
	batch   logBatch
	message scanner // over the batch
	entries scanner // over its HTTP entries
	entry   logEntry
	from    string // the log's name and the node, from the first message; may be ""
	told    bool   // of something malformed, in the log
}

// logHandler answers StreamAccessLogs. Envoy waits for no answer; it loses what is on
// the wire when the stream ends, so that is done right after a batch.
func (s *Server) logHandler(_ any, ss grpc.ServerStream) error {
	l := s.newLogStream()
	s.counters.logs.streams.Add(1)
	defer s.counters.logs.streams.Add(-1)
	done := make(chan error, 1)
	s.readers.Go(func() { done <- l.read(ss) })
	return l.watch(done)
}

func (s *Server) newLogStream() *logStream {
	l := &logStream{s: s, taken: make(chan struct{}, 1)}
	l.batch.busy = &l.busy
	return l
}

// watch returns when the reader has, or when the stream is to end: because the server
// stops, or because the connection is soon cut off for its age.
func (l *logStream) watch(done <-chan error) error {
	closing, leaving := l.s.closing, false
	quiet, grace, age := stopped(), stopped(), stopped()
	defer quiet.Stop()
	defer grace.Stop()
	defer age.Stop()
	if l.s.logAge > 0 {
		age.Reset(l.s.logAge)
	}
	for {
		select {
		case err := <-done:
			return err
		case <-closing:
			closing, leaving = nil, true
			grace.Reset(l.s.logGrace)
		case <-age.C:
			leaving = true
		case <-l.taken:
			if leaving {
				quiet.Reset(logLinger)
			}
		case <-quiet.C:
			if !l.busy.Load() {
				return nil
			}
			quiet.Reset(logLinger)
		case <-grace.C:
			return nil
		}
	}
}

// stopped returns a timer that does not run yet.
func stopped() *time.Timer {
	t := time.NewTimer(time.Hour)
	t.Stop()
	return t
}

// read takes batches in until the stream ends, and begins once they can be settled. A
// batch that it has received is taken in to its end even if the stream is over.
func (l *logStream) read(ss grpc.ServerStream) error {
	if err := l.s.awaitSettling(ss.Context()); err != nil {
		return status.FromContextError(err).Err()
	}
	for {
		err := ss.RecvMsg(&l.batch)
		if err == nil {
			l.takeIn()
			l.busy.Store(false)
			select {
			case l.taken <- struct{}{}:
			default: // the other goroutine has one to look at already
			}
			continue
		}
		if errors.Is(err, io.EOF) {
			return ss.SendMsg(new(answered)) //nolint:wrapcheck // Envoy never gets here, but gRPC's other clients want a response
		}
		if status.Code(err) == codes.ResourceExhausted {
			l.s.counters.logs.tooLarge.Add(1)
			l.s.log.Warn().Err(err).Str("from", l.from).
				Msg("a batch of the access log is too large and lost; what its requests reserved stays used. Lower buffer_size_bytes in Envoy, or raise max-message-bytes")
		}
		return err //nolint:wrapcheck // it is gRPC's status already
	}
}

// awaitSettling returns once settlements can be taken, or ctx's error if that ends first.
// What Envoy sends to a process that has just begun waits on the wire meanwhile.
func (s *Server) awaitSettling(ctx context.Context) error {
	if s.settling == nil {
		return nil
	}
	select {
	case <-s.settling:
		return nil
	case <-ctx.Done():
		return ctx.Err() //nolint:wrapcheck // its callers say what it is of
	}
}

// takeIn settles what is in the batch that was received, and lets it go.
func (l *logStream) takeIn() {
	defer l.batch.release()
	data := l.batch.data.ReadOnlyData()
	c := &l.s.counters.logs
	c.batches.Add(1)
	c.bytes.Add(uint64(len(data)))
	now := l.s.now()
	l.message = scan("StreamAccessLogsMessage", data)
	l.entries = scanner{}
	for !l.settleRest(now) {
		c.broken.Add(1) // and the next entry is somebody else's
	}
	l.entry.reset()
	l.message, l.entries = scanner{}, scanner{}
}

// settleRest settles the entries that are left of the batch. It is false if it
// panicked over one of them.
func (l *logStream) settleRest(now time.Time) (finished bool) {
	defer func() {
		if p := recover(); p != nil {
			_ = l.s.panicked("StreamAccessLogs", p)
		}
	}()
	for {
		for l.entries.next() {
			if l.entries.num != 1 {
				continue
			}
			if b := l.entries.bytes("log_entry"); l.entries.err == nil {
				l.settle(now, b)
			}
		}
		l.malformed(l.entries.err)
		l.entries = scanner{}
		if !l.message.next() {
			l.malformed(l.message.err)
			return true
		}
		l.part()
	}
}

// part looks at one field of a message.
func (l *logStream) part() {
	switch l.message.num {
	case 1:
		l.from = identifier(l.message.bytes("identifier"))
	case 2:
		l.entries = scan("http_logs", l.message.bytes("http_logs"))
	case 3:
		tcp := scan("tcp_logs", l.message.bytes("tcp_logs"))
		for tcp.next() {
			if tcp.num == 1 {
				l.s.counters.logs.tcp.Add(1)
			}
		}
		l.malformed(tcp.err)
	}
}

// malformed counts what cannot be read, and tells once per stream.
func (l *logStream) malformed(err error) {
	if err == nil {
		return
	}
	l.s.counters.logs.malformed.Add(1)
	if !l.told {
		l.told = true
		l.s.log.Warn().Err(err).Str("from", l.from).
			Msg("an entry of the access log cannot be read; what its request reserved stays used. Further ones of this stream are only counted")
	}
}

// settle settles one entry.
func (l *logStream) settle(now time.Time, b []byte) {
	c := &l.s.counters.logs
	e := &l.entry
	e.reset()
	if err := e.message(b); err != nil {
		l.malformed(err)
		return
	}
	if !e.final() {
		c.intermediate.Add(1)
		return
	}
	tokens := e.reservations()
	if tokens[0] == "" && tokens[1] == "" {
		c.unreserved.Add(1)
		return
	}
	e.conclude()
	for _, token := range tokens {
		if token != "" {
			c.settled.Count(l.s.settler.Settle(now, token, &e.ending))
		}
	}
}

// identifier returns who sends a log, for people. It is told once per stream.
func identifier(b []byte) string {
	const most = 256
	var node, name string
	s := scan("identifier", b)
	for s.next() {
		switch s.num {
		case 1:
			for n := scan("identifier.node", s.bytes("node")); n.next(); {
				if n.num == 1 {
					node = n.text("id")
				}
			}
		case 2:
			name = s.text("log_name")
		}
	}
	if name == "" && node == "" {
		return ""
	}
	return strings.Clone(valid(name[:min(len(name), most)] + " of " + node[:min(len(node), most)]))
}

// A logBatch is a StreamAccessLogsMessage.
type logBatch struct {
	busy *atomic.Bool
	data mem.Buffer
}

func (b *logBatch) read(data mem.Buffer) {
	b.busy.Store(true)
	b.data = data
}

func (b *logBatch) release() {
	b.data.Free()
	b.data = nil
}
