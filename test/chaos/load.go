package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc/stats"
)

// An answer is what became of a request, as its caller knows it.
type answer int

const (
	unsent      answer = iota // it certainly never reached a replica
	allowed                   // 200
	refused                   // 429
	unavailable               // 503, or any other refusal that is not about units
	unanswered                // nobody knows
)

// askFor is how long a caller waits: longer than the 300 ms that a request may wait
// for a lease.
const askFor = 800 * time.Millisecond

// A tally is the truth about one tenant or counter, in units.
type tally struct {
	allowed, refused, unavailable, unanswered atomic.Int64
	// returned was given back. Of unreturned nobody knows whether it was.
	returned, unreturned atomic.Int64
}

// add counts what became of a request of so many units.
func (t *tally) add(a answer, units int64) {
	switch a {
	case unsent:
	case allowed:
		t.allowed.Add(units)
	case refused:
		t.refused.Add(units)
	case unavailable:
		t.unavailable.Add(units)
	case unanswered:
		t.unanswered.Add(units)
	}
}

// used returns between what the account of an honest mete is.
func (t *tally) used() (least, most int64) {
	least = t.allowed.Load() - t.returned.Load() - t.unreturned.Load()
	return least, t.allowed.Load() + t.unanswered.Load() - t.returned.Load()
}

// A truth counts what callers were told, by tenant.
type truth struct {
	mu      sync.Mutex
	tallies map[string]*tally // guarded by mu
	calls   atomic.Int64
}

func newTruth() *truth { return &truth{tallies: map[string]*tally{}} }

// of returns the tally of a tenant.
func (t *truth) of(tenant string) *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.tallies[tenant] == nil {
		t.tallies[tenant] = &tally{}
	}
	return t.tallies[tenant]
}

// sum returns the sum of all tenants' tallies.
func (t *truth) sum() (allowed, refused, unavailable, unanswered int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, one := range t.tallies {
		allowed += one.allowed.Load()
		refused += one.refused.Load()
		unavailable += one.unavailable.Load()
		unanswered += one.unanswered.Load()
	}
	return allowed, refused, unavailable, unanswered
}

// ask sends a request of so many units (1, 2, 3 or 7) and counts what became of it.
func (t *truth) ask(ctx context.Context, r *replica, tenant string, units int64) answer {
	return t.askWithin(ctx, askFor, r, tenant, units)
}

func (t *truth) askWithin(ctx context.Context, within time.Duration, r *replica, tenant string, units int64) answer {
	f := r.face.Load()
	if f == nil {
		return unsent
	}
	a := f.ask(ctx, within, tenant, fmt.Sprint("/", units))
	if t.of(tenant).add(a, units); a != unsent {
		t.calls.Add(1)
	}
	return a
}

// ask sends a request and returns what became of it.
func (f *face) ask(ctx context.Context, within time.Duration, tenant, path string) answer {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	var sent trip
	r, err := f.client.Check(context.WithValue(ctx, tripMark{}, &sent), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		ContextExtensions: map[string]string{"mete-app": appName},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: http.MethodGet, Path: path, Headers: map[string]string{"x-tenant": tenant},
		}},
	}})
	switch denied := r.GetDeniedResponse(); {
	case err != nil && !sent.out.Load():
		return unsent
	case err != nil:
		return unanswered
	case denied == nil:
		return allowed
	case denied.GetStatus().GetCode() == http.StatusTooManyRequests:
		return refused
	}
	return unavailable
}

// A trip tells how far a request came.
type trip struct {
	out  atomic.Bool // it is on its way
	back atomic.Bool // its status is a replica's, and none of the connection
}

// tripMark is the context's key of a trip.
type tripMark struct{}

// tripMarks notes trips.
type tripMarks struct{}

// TagRPC implements [stats.Handler].
func (tripMarks) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements [stats.Handler].
func (tripMarks) HandleRPC(ctx context.Context, s stats.RPCStats) {
	t, ok := ctx.Value(tripMark{}).(*trip)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.OutPayload:
		t.out.Store(true)
	case *stats.InTrailer:
		t.back.Store(true)
	}
}

// TagConn implements [stats.Handler].
func (tripMarks) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (tripMarks) HandleConn(context.Context, stats.ConnStats) {}

// A load is callers that call f, all together rate times a second or, if rate is 0,
// as fast as they can.
type load struct {
	callers int
	rate    float64
	seed    uint64
	f       func(ctx context.Context, rng *rand.Rand)
}

// run calls until ctx is done, and returns once every call has ended.
func (l load) run(ctx context.Context) {
	var all sync.WaitGroup
	for i := range l.callers {
		rng := rand.New(rand.NewPCG(l.seed, uint64(i))) //nolint:gosec // a seed is to be repeated
		all.Go(func() {
			var tick <-chan time.Time
			if l.rate > 0 {
				every := time.Duration(float64(time.Second) * float64(l.callers) / l.rate)
				_ = sleep(ctx, time.Duration(rng.Int64N(int64(every)))) // not all at once
				t := time.NewTicker(every)
				defer t.Stop()
				tick = t.C
			}
			for ctx.Err() == nil {
				l.f(context.WithoutCancel(ctx), rng) // a call that is under way at the end is waited for
				if tick == nil {
					continue
				}
				select {
				case <-tick:
				case <-ctx.Done():
				}
			}
		})
	}
	all.Wait()
}
