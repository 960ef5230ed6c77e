package envoy

import (
	"sync/atomic"

	"github.com/meteproject/mete/authz"
)

type logCounters struct {
	settled      authz.SettledTally
	unreserved   atomic.Uint64
	intermediate atomic.Uint64
	malformed    atomic.Uint64
	tcp          atomic.Uint64
	broken       atomic.Uint64
	tooLarge     atomic.Uint64
	batches      atomic.Uint64
	bytes        atomic.Uint64
	streams      atomic.Int64
}

// LogStats are counts of what came by the access log, since the start. Each entry is in
// exactly one of Settled, Unreserved, Intermediate, Malformed, TCP and Broken, but one with
// reservations of both services twice in Settled.
type LogStats struct {
	// Settled are entries of requests that had reserved something. The index is the
	// authz.Settled.
	Settled [authz.SettledKinds]uint64
	// Unreserved are entries of requests that have reserved nothing: refused, exempt,
	// never asked for, or answered too late.
	Unreserved uint64
	// Intermediate are entries about a request that goes on.
	Intermediate uint64
	// Malformed are entries, or ends of messages, that cannot be read.
	Malformed uint64
	// TCP are entries about connections.
	TCP uint64
	// Broken are entries that mete panicked over.
	Broken uint64
	// TooLarge are messages larger than Options.MaxMessage; their entries are lost.
	TooLarge uint64
	// Batches are messages, Bytes what they had.
	Batches, Bytes uint64
	// Streams are how many are open now.
	Streams int64
}

func (c *logCounters) read() LogStats {
	return LogStats{
		Settled:    c.settled.Read(),
		Unreserved: c.unreserved.Load(), Intermediate: c.intermediate.Load(),
		Malformed: c.malformed.Load(), TCP: c.tcp.Load(), Broken: c.broken.Load(),
		TooLarge: c.tooLarge.Load(), Batches: c.batches.Load(), Bytes: c.bytes.Load(),
		Streams: c.streams.Load(),
	}
}
