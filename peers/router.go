package peers

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/authz"
)

// A Decider reads, measures and settles reservations. Settle keeps what it has settled
// by the numbers of each process, so that a repeat changes nothing. All methods may be
// called at once. [authz.Decider] has the promises of each.
type Decider interface {
	Open(token string, r *authz.Reservation) authz.Settled
	Measure(r *authz.Reservation, e *authz.Ending, m *authz.Measured)
	MeasureUnits(r *authz.Reservation, unit string, n int64, giveBack bool, m *authz.Measured) authz.Settled
	Here(r *authz.Reservation) bool
	Settle(now time.Time, r *authz.Reservation, m *authz.Measured) authz.Settled
	Report(ctx context.Context, now time.Time, id authz.ID, units map[string]int64) (map[string]int64, error)
	Extend(ctx context.Context, now time.Time, id authz.ID, units map[string]int64) (map[string]int64, error)
}

// Config is what a Router is made of. Zero means the default that the comment names.
type Config struct {
	Decider Decider          // required
	Process uint64           // required: this process, as its reservations name it
	Now     func() time.Time // required: this process's clock
	Log     zerolog.Logger   // nowhere

	// Ready reports whether the Decider can open and measure reservations by now. Until it
	// does, what peers pass on is not taken: they keep it and try again. Nil: it always can.
	Ready func() bool

	Secure      credentials.TransportCredentials // of calls to peers; none: plain text
	DialOptions []grpc.DialOption                // they win

	// MaxQueued and MaxQueuedBytes bound what waits for one peer: 100,000 settlements,
	// 32 MiB. What comes beyond is dropped.
	MaxQueued, MaxQueuedBytes int
	// CallFor is how long one call may take, and how long one try to connect: 2 s.
	CallFor time.Duration
	// UnreachableAfter is how long a peer may fail until others take its place: 30 s,
	// as long as the presence of one that was killed lasts.
	UnreachableAfter time.Duration
	// FlushFor is how long Run goes on sending once it is to end: 3 s.
	FlushFor time.Duration
}

// A Router settles here what this process decided and passes on what others did. It
// is safe for concurrent use.
type Router struct {
	cfg  Config // with its defaults
	view atomic.Pointer[view]
	// successors are those of SetSuccessors; nil: it was never called.
	successors atomic.Pointer[map[uint64]uint64]

	stopped atomic.Bool   // Run has ended: nothing is passed on any more
	changed chan struct{} // SetPeers was called
	pool    sync.Pool     // *work
	stats   counters

	mu    sync.Mutex // held while the view is replaced
	fresh []*peer    // guarded by mu: peers that Run has not seen yet
}

// New returns a Router that knows of no peers: it settles everything here. See Run.
func New(cfg Config) *Router {
	if cfg.Decider == nil || cfg.Now == nil {
		panic("peers: New needs a Decider and a clock")
	}
	cfg.MaxQueued = orDefault(cfg.MaxQueued, 100_000)
	cfg.MaxQueuedBytes = orDefault(cfg.MaxQueuedBytes, 32<<20)
	cfg.CallFor = orDefault(cfg.CallFor, 2*time.Second)
	cfg.UnreachableAfter = orDefault(cfg.UnreachableAfter, 30*time.Second)
	cfg.FlushFor = orDefault(cfg.FlushFor, 3*time.Second)
	r := &Router{cfg: cfg, changed: make(chan struct{}, 1)}
	r.view.Store(&view{})
	return r
}

func orDefault[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// work is what one settlement needs. It is kept for the next one.
type work struct {
	reservation authz.Reservation
	measured    authz.Measured
}

func (r *Router) borrow() *work {
	if w, ok := r.pool.Get().(*work); ok {
		return w
	}
	return new(work)
}

// giveBack keeps w, but nothing of the token that its strings point into.
func (r *Router) giveBack(w *work) {
	clear(w.reservation.Charges)
	w.reservation.Reset()
	w.measured = authz.Measured{Used: w.measured.Used[:0]}
	r.pool.Put(w)
}

// Settle settles the request that a reservation's token was made for, by how it ended:
// here, or by passing it on, which is SettledElsewhere and never waits. SettledDropped:
// too much waits for that replica. token and e end with the call.
func (r *Router) Settle(now time.Time, token string, e *authz.Ending) authz.Settled {
	w := r.borrow()
	result := r.cfg.Decider.Open(token, &w.reservation)
	if result == 0 {
		r.cfg.Decider.Measure(&w.reservation, e, &w.measured)
		result = r.settle(now, token, w)
	}
	r.giveBack(w)
	r.stats.settled.Count(result)
	return result
}

// SettleUnits is Settle where a number of units is all that is known of the end, see
// [authz.Decider.MeasureUnits].
func (r *Router) SettleUnits(now time.Time, token, unit string, n int64, giveBack bool) authz.Settled {
	w := r.borrow()
	result := r.cfg.Decider.Open(token, &w.reservation)
	if result == 0 {
		result = r.cfg.Decider.MeasureUnits(&w.reservation, unit, n, giveBack, &w.measured)
	}
	if result == 0 {
		result = r.settle(now, token, w)
	}
	r.giveBack(w)
	r.stats.settled.Count(result)
	return result
}

// settle settles w, whose token that is, or passes it on.
func (r *Router) settle(now time.Time, token string, w *work) authz.Settled {
	if r.cfg.Decider.Here(&w.reservation) || r.owner(w.reservation.Replica) == nil {
		return r.cfg.Decider.Settle(now, &w.reservation, &w.measured)
	}
	switch r.pass(newEntry(now, token, w)) {
	case queueTook:
		return authz.SettledElsewhere
	case queueFull:
		return authz.SettledDropped
	case queueClosed:
	}
	return r.cfg.Decider.Settle(now, &w.reservation, &w.measured)
}

// pass queues e for the peer that settles it. It returns queueClosed if that is this
// process.
func (r *Router) pass(e entry) offered {
	for {
		p := r.owner(e.decider)
		if p == nil {
			return queueClosed
		}
		// A queue is closed only after its peer has left the view, or all have.
		if o := p.queue.offer(e); o != queueClosed {
			return o
		}
	}
}

// reroute finds another place for an entry that was never sent.
func (r *Router) reroute(e entry) {
	switch r.pass(e) {
	case queueTook:
		r.stats.rerouted.Add(1)
	case queueFull:
		r.stats.overflowed.Add(1)
	case queueClosed:
		r.stats.inherited.Count(r.settleHere(r.cfg.Now(), e.settlement))
	}
}

// settleHere settles what came from a queue. A panic is told as 0,
// like any outcome that nobody knows: one entry must not take the others along.
func (r *Router) settleHere(now time.Time, s *metev1.Settlement) (result authz.Settled) {
	defer func() {
		if p := recover(); p != nil {
			r.panicked(p)
			result = 0
		}
	}()
	w := r.borrow()
	result = r.cfg.Decider.Open(string(s.GetReservation()), &w.reservation)
	if result == 0 {
		w.measured.Used = append(w.measured.Used[:0], s.GetUsed()...)
		w.measured.Free, w.measured.Long, w.measured.Replayed = s.GetFree(), s.GetLong(), s.GetReplayed()
		result = r.cfg.Decider.Settle(now, &w.reservation, &w.measured)
	}
	r.giveBack(w)
	return result
}
