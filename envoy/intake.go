package envoy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc/credentials"
)

// intake bounds what the connections of a server may take: how many there are, and the
// memory of messages that have begun to come and are not whole. gRPC bounds a message and
// the streams of a connection, and not the product of the two.
//
// It looks at frames as they pass and hands them on unchanged. A connection that takes too
// much is closed, as it would be at a restart; its calls are made again elsewhere or fail.
type intake struct {
	connections int64 // at most, at once
	each, all   int64 // bytes of unfinished messages, of a connection and in all
	message     int64 // bytes of a message
	now         func() time.Time
	log         zerolog.Logger
	permits     func(tls.ConnectionState) func(service string) bool // nil: everything, to all

	open     atomic.Int64
	held     atomic.Int64
	refused  counted // connections beyond the bound
	evicted  counted // connections that took too much
	tooLarge counted // messages

	forbidden counted // calls of services that the peer may not call

	mu   sync.Mutex
	live map[*intakeConn]struct{} // guarded by mu
}

func newIntake(o *Options) *intake {
	all := int64(orDefault(o.MaxUnfinished, defaultUnfinished))
	return &intake{
		connections: int64(orDefault(o.MaxConnections, defaultConnections)),
		each:        all / 2, all: all,
		message: int64(orDefault(o.MaxMessage, defaultMessage)),
		now:     o.Now, log: o.Log, permits: o.Permits,
		live: map[*intakeConn]struct{}{},
	}
}

// counted counts what happens, and logs it at most once a minute: its senders choose how
// often it happens.
type counted struct {
	total atomic.Uint64
	next  atomic.Int64 // no line before, in nanoseconds from 1970
}

const intakeLogEvery = time.Minute

func (n *counted) add(now time.Time) (tell bool) {
	n.total.Add(1)
	next, at := n.next.Load(), now.UnixNano()
	return at >= next && n.next.CompareAndSwap(next, at+int64(intakeLogEvery))
}

var (
	errTooManyConnections = errors.New("accept a connection: as many are open as max-connections allows")
	errTookTooMuch        = errors.New("read from a connection: it was closed because its unfinished messages take more memory than max-unfinished-bytes allows")
)

// over returns credentials that admit a connection by the bounds of n, and then as inner
// does.
func (n *intake) over(inner credentials.TransportCredentials) credentials.TransportCredentials {
	return intakeCredentials{inner, n}
}

type intakeCredentials struct {
	credentials.TransportCredentials
	n *intake
}

// ServerHandshake implements [credentials.TransportCredentials].
func (c intakeCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	n := c.n
	if n.open.Add(1) > n.connections {
		n.open.Add(-1)
		if n.refused.add(n.now()) {
			n.log.Warn().Stringer("from", raw.RemoteAddr()).Int64("max_connections", n.connections).Uint64("refused", n.refused.total.Load()).
				Msg("a connection was refused because as many are open as max-connections allows")
		}
		return nil, nil, errTooManyConnections
	}
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		n.open.Add(-1)
		return nil, nil, fmt.Errorf("admit a connection: %w", err)
	}
	counted := &intakeConn{Conn: conn, n: n, preface: preface, streams: map[uint32]unfinished{}}
	n.mu.Lock()
	n.live[counted] = struct{}{}
	n.mu.Unlock()
	return counted, n.permit(info), nil
}

// ClientHandshake implements [credentials.TransportCredentials]. A server needs none.
func (c intakeCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("connect: these are credentials of a server")
}

// Clone implements [credentials.TransportCredentials].
func (c intakeCredentials) Clone() credentials.TransportCredentials {
	return intakeCredentials{c.TransportCredentials.Clone(), c.n}
}

// took is told that c holds delta bytes more than before. It closes connections until what
// is left is within the bounds, and returns an error if c is one of them.
func (n *intake) took(c *intakeConn, delta int64) error {
	if delta == 0 {
		return nil
	}
	mine, all := c.held.Add(delta), n.held.Add(delta)
	if mine > n.each {
		n.evict(c)
	} else if all > n.all {
		n.evict(n.largest())
	}
	if c.gone.Load() {
		c.drop() // what was added after it had left
		return errTookTooMuch
	}
	return nil
}

// largest is the connection that holds most; nil: there is none any more.
func (n *intake) largest() (most *intakeConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for c := range n.live {
		if most == nil || c.held.Load() > most.held.Load() {
			most = c
		}
	}
	return most
}

func (n *intake) evict(c *intakeConn) {
	if c == nil || !c.leave() {
		return
	}
	if n.evicted.add(n.now()) {
		n.log.Warn().Stringer("from", c.RemoteAddr()).Int64("each", n.each).Int64("all", n.all).Uint64("closed", n.evicted.total.Load()).
			Msg("a connection was closed because unfinished messages take more memory than max-unfinished-bytes allows, which is for all together, half of it for one connection")
	}
	_ = c.Conn.Close() // it is of no use any more, whatever that says
}

// An intakeConn is a connection that is looked at. One goroutine reads from it, one writes.
type intakeConn struct {
	net.Conn
	n    *intake
	held atomic.Int64
	gone atomic.Bool // it is counted no more

	// The reader's.
	preface int // bytes of it that are still to come
	in      frame
	padding int // bytes at the end of the frame; below 0: not known yet
	message unfinished
	known   bool // the frame is of a stream that is in streams
	whole   bool // a message has ended within the frame

	out frame // the writer's

	mu      sync.Mutex
	streams map[uint32]unfinished // guarded by mu: what the client has begun and nobody has ended
}

// Read implements [net.Conn].
func (c *intakeConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		if err := c.received(b[:n]); err != nil {
			return 0, err
		}
	}
	return n, err //nolint:wrapcheck // it is the connection's own
}

// Write implements [net.Conn].
func (c *intakeConn) Write(b []byte) (int, error) {
	c.sent(b)
	return c.Conn.Write(b) //nolint:wrapcheck // it is the connection's own
}

// Close implements [net.Conn].
func (c *intakeConn) Close() error {
	c.leave()
	return c.Conn.Close() //nolint:wrapcheck // it is the connection's own
}

// leave takes c out of what is counted. It is false if that was done before.
func (c *intakeConn) leave() bool {
	if !c.gone.CompareAndSwap(false, true) {
		return false
	}
	n := c.n
	n.mu.Lock()
	delete(n.live, c)
	n.mu.Unlock()
	n.open.Add(-1)
	c.drop()
	return true
}

// drop lets go of all that c holds. It may be called again.
func (c *intakeConn) drop() { c.n.held.Add(-c.held.Swap(0)) }

// received looks at what the client has sent.
func (c *intakeConn) received(b []byte) error {
	skip := min(c.preface, len(b))
	c.preface -= skip
	b = b[skip:]
	for len(b) > 0 {
		if c.in.have < frameHeader {
			var whole bool
			if b, whole = c.in.begin(b); !whole {
				return nil
			}
			c.begins()
		}
		part := b[:min(len(b), c.in.left)]
		b = b[len(part):]
		c.payload(part)
		if c.in.left > 0 {
			return nil
		}
		c.in.have = 0
		if err := c.ends(); err != nil {
			return err
		}
	}
	return nil
}

// begins looks at the head of a frame of the client's.
func (c *intakeConn) begins() {
	c.known, c.whole, c.padding = false, false, 0
	if c.in.kind() != frameData {
		return
	}
	if c.in.has(flagPadded) {
		c.padding = -1
	}
	c.mu.Lock()
	c.message, c.known = c.streams[c.in.stream()]
	c.mu.Unlock()
}

// payload looks at a part of the payload of a frame.
func (c *intakeConn) payload(part []byte) {
	left := c.in.left
	c.in.left -= len(part)
	if !c.known || len(part) == 0 {
		return
	}
	if c.padding < 0 {
		c.padding = int(part[0])
		part = part[1:]
		left--
	}
	part = part[:max(0, min(len(part), left-c.padding))]
	whole, large := c.message.take(part, c.n.message)
	c.whole = c.whole || whole
	if large {
		c.n.toldTooLarge(c)
	}
}

// ends takes a frame of the client's into account that has come to its end.
func (c *intakeConn) ends() error {
	id := c.in.stream()
	switch c.in.kind() {
	case frameHeaders:
		if !c.in.ends() {
			c.mu.Lock()
			if _, ok := c.streams[id]; !ok {
				c.streams[id] = unfinished{}
			}
			c.mu.Unlock()
			return nil
		}
	case frameData:
		if c.known && !c.in.ends() {
			delta := c.message.ended(memoryOf(c.in.size()), c.whole)
			c.mu.Lock()
			if _, ok := c.streams[id]; ok {
				c.streams[id] = c.message
			} else {
				delta = 0 // the server has ended the stream meanwhile, and what it had taken
			}
			c.mu.Unlock()
			return c.n.took(c, delta)
		}
	}
	if c.in.ends() {
		c.forget(id)
	}
	return nil
}

// sent looks at what the server sends: how it ends streams.
func (c *intakeConn) sent(b []byte) {
	for len(b) > 0 {
		if c.out.have < frameHeader {
			var whole bool
			if b, whole = c.out.begin(b); !whole {
				return
			}
			if c.out.ends() {
				c.forget(c.out.stream())
			}
		}
		n := min(len(b), c.out.left)
		b = b[n:]
		if c.out.left -= n; c.out.left > 0 {
			return
		}
		c.out.have = 0
	}
}

// forget lets go of what is unfinished of a stream that has ended.
func (c *intakeConn) forget(id uint32) {
	c.mu.Lock()
	u, ok := c.streams[id]
	delete(c.streams, id)
	c.mu.Unlock()
	if ok && u.cost != 0 {
		_ = c.n.took(c, -u.cost) // there is less of it now
	}
}

// toldTooLarge counts a message that gRPC will refuse.
func (n *intake) toldTooLarge(c *intakeConn) {
	if n.tooLarge.add(n.now()) {
		n.log.Warn().Stringer("from", c.RemoteAddr()).Int64("max_message_bytes", n.message).Uint64("refused", n.tooLarge.total.Load()).
			Msg("a message is larger than max-message-bytes and was refused: in Envoy max_request_bytes of ext_authz and buffer_size_bytes of the access log must lie below it")
	}
}

// IntakeStats are counts of what connections take, since the start or now.
type IntakeStats struct {
	Open       int64 // connections, now
	Unfinished int64 // bytes of memory of messages that are not whole, now

	Refused  uint64 // connections beyond the bound
	Evicted  uint64 // connections that were closed because their unfinished messages took too much
	TooLarge uint64 // messages above the bound

	Forbidden uint64 // calls of services that the caller's certificate is not for
}

func (n *intake) read() IntakeStats {
	return IntakeStats{
		Open: n.open.Load(), Unfinished: n.held.Load(),
		Refused: n.refused.total.Load(), Evicted: n.evicted.total.Load(), TooLarge: n.tooLarge.total.Load(),
		Forbidden: n.forbidden.total.Load(),
	}
}
