package peers

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	metev1 "github.com/meteproject/mete/api/mete/v1"
)

const (
	// A try that failed is repeated after leastPause, which doubles up to mostPause: a peer
	// that starts up is found soon, one that is down costs little.
	leastPause = 50 * time.Millisecond
	mostPause  = 2 * time.Second
	// tellEvery is how often at most the log is told of one peer: an address behind which
	// several processes are answers well and badly in turn, many times a second.
	tellEvery = time.Minute
)

// A peer is another live process.
type peer struct {
	r       *Router
	process uint64
	queue   queue
	line    line
	gone    chan struct{} // closed by SetPeers once the process is live no more
	away    atomic.Bool   // others take its place until it answers
	left    atomic.Bool   // leave has ended: it has nothing any more, for good

	// Owned by run.
	failing time.Time // when the first of the tries that failed since a success began
	fails   int       // since a success
	told    time.Time // when the log was told last that others take its place
	doubted bool      // the log was told so, and not yet that it is back
	cause   error     // of the last try that failed; nil: it is not known
	batch   []*metev1.Settlement
}

func newPeer(r *Router, process uint64) *peer {
	return &peer{
		r: r, process: process, gone: make(chan struct{}),
		queue: queue{max: r.cfg.MaxQueued, maxBytes: r.cfg.MaxQueuedBytes, wake: make(chan struct{}, 1)},
		line:  line{options: r.dialOptions()},
	}
}

// run sends what is queued until the peer is gone, ctx ends, or nothing is left after
// stopping. What is left in the queue of a peer that is gone is brought elsewhere.
func (p *peer) run(ctx context.Context, stopping <-chan struct{}) {
	for p.wait(ctx, stopping) {
		p.turn(ctx)
	}
	select {
	case <-p.gone:
		p.leave()
	default: // Run does it, when nothing is passed on any more
	}
}

// wait waits until something is to be sent. It returns false once run is to end.
func (p *peer) wait(ctx context.Context, stopping <-chan struct{}) bool {
	for {
		n, _, _ := p.queue.look()
		switch {
		case ctx.Err() != nil || isClosed(p.gone):
			return false
		case n > 0:
			return true
		case isClosed(stopping):
			return false
		case p.away.Load():
			return true // ask it whether it is back
		}
		select {
		case <-ctx.Done():
		case <-p.gone:
		case <-stopping:
		case <-p.queue.wake:
		}
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// turn makes one try. Without anything to send it is a question whether the peer is
// there.
func (p *peer) turn(ctx context.Context) {
	p.batch = p.queue.next(p.batch[:0])
	began := p.r.cfg.Now()
	outcome := p.send(ctx)
	switch outcome {
	case delivered:
		p.queue.done(len(p.batch))
		p.answered()
	case unknown:
		p.queue.doubt(len(p.batch))
	case misdirected:
		p.dropDoubtful()
	case unsent:
	}
	clear(p.batch)
	if outcome != delivered {
		p.failed(began, outcome)
		p.pause(ctx)
	}
}

// answered notes that the peer answers.
func (p *peer) answered() {
	if p.away.Swap(false) && p.doubted {
		p.doubted = false
		p.r.cfg.Log.Info().Str("peer", name(p.process)).Str("address", p.line.where()).Msg("replica can be reached again")
	}
	p.fails = 0
}

// failed notes that a try failed that began at that time. Where the peer has failed for too long,
// what was never sent to it is brought elsewhere.
func (p *peer) failed(began time.Time, why outcome) {
	p.r.stats.retries.Add(1)
	if p.fails == 0 {
		p.failing = began
	}
	p.fails++
	if why != misdirected && p.r.cfg.Now().Sub(p.failing) < p.r.cfg.UnreachableAfter {
		return
	}
	if now := p.r.cfg.Now(); !p.away.Swap(true) && now.Sub(p.told) >= tellEvery {
		p.told, p.doubted = now, true
		p.warn(why)
	}
	for _, e := range p.queue.takeUntried() {
		p.r.reroute(e)
	}
}

// warn says that others take the place of p.
func (p *peer) warn(why outcome) {
	text := "replica is announced but does not answer: check that replicas reach each other at this address"
	if why == misdirected {
		text = "another process answers at the address of this replica: it was started again there, or the address is not its own"
	}
	p.r.cfg.Log.Warn().Err(p.cause).Str("peer", name(p.process)).Str("address", p.line.where()).Str("outcome", why.String()).
		Msg(text + "; what it decided is settled by the one that takes its place")
}

// pause waits before the next try, a little by chance: peers that failed together
// should not come back together.
func (p *peer) pause(ctx context.Context) {
	d := min(mostPause, leastPause<<min(p.fails-1, 10))
	timer := time.NewTimer(d - rand.N(d/4)) //nolint:gosec // no secret
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-p.gone:
	case <-timer.C:
	}
}

// leave brings elsewhere what was never sent, and drops what was. Nobody sends any more, and
// owner does not return p any more. A repeat does nothing.
func (p *peer) leave() {
	p.queue.close()
	p.dropDoubtful()
	for _, e := range p.queue.takeUntried() {
		p.r.reroute(e)
	}
	p.line.close()
	p.left.Store(true)
}

// dropDoubtful drops what was tried: whatever became of it, there may be no process that
// would know a repeat. Where one is known to remember what p has settled, it gets them.
func (p *peer) dropDoubtful() {
	tried := p.queue.takeTried()
	if process, ok := p.r.successor(p.process); !ok || process == p.process {
		p.r.stats.doubtful.Add(uint64(len(tried)))
		return
	}
	for _, e := range tried {
		e.tried = false // there
		p.r.reroute(e)
	}
}

// An outcome is how a try ended.
type outcome int

const (
	delivered   outcome = iota
	unsent              // nothing was settled
	misdirected         // nothing was settled: another process answers at the address
	unknown             // all, some or none was settled
)

// String returns the words for o in logs.
func (o outcome) String() string {
	switch o {
	case delivered:
		return "delivered"
	case unsent:
		return "no connection"
	case misdirected:
		return "another process answers"
	case unknown:
	}
	return "no answer"
}

// send sends the batch, once.
func (p *peer) send(ctx context.Context) outcome {
	p.cause = nil
	conn, ok := p.line.ready(ctx, p.r.cfg.CallFor)
	if !ok {
		return unsent
	}
	ctx, cancel := context.WithTimeout(ctx, p.r.cfg.CallFor)
	defer cancel()
	ctx, mark := marked(ctx)
	answer, err := metev1.NewReplicaServiceClient(conn).SettleBatch(ctx, &metev1.SettleBatchRequest{
		Process: p.process, Settlements: p.batch,
	})
	p.cause = err
	switch status.Code(err) { //nolint:exhaustive // after all others nobody knows
	case codes.OK:
	case codes.FailedPrecondition: // see the promise of SettleBatch
		return misdirected
	case codes.Unimplemented, // no such method: a version that settles nothing
		codes.Aborted: // it is not ready
		return unsent
	default:
		if !mark.sent.Load() {
			return unsent
		}
		return unknown
	}
	results := answer.GetResults()
	if len(results) != len(p.batch) {
		return unknown
	}
	for _, result := range results {
		p.r.stats.forwarded.Count(fromWire(result))
	}
	return delivered
}
