package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// Faults happen to a world, each kind in a lane of its own, one after another. The
// seed decides which, to whom and for how long; how the lanes meet is up to the
// machine.
type faults struct {
	world *world
	edit  func(context.Context, *rand.Rand) error // of documents
	seed  uint64
	pause time.Duration // the longest pause of a replica

	mu     sync.Mutex
	counts map[string]int // guarded by mu, as below
	failed error
}

// play lets faults happen until ctx is done, then mends everything. An error tells
// that something did not come back.
func (f *faults) play(ctx context.Context) error {
	f.counts = map[string]int{}
	var lanes sync.WaitGroup
	for i, lane := range []func(context.Context, *rand.Rand) error{f.members, f.replicas, f.links, f.edits} {
		rng := rand.New(rand.NewPCG(f.seed, uint64(i)+1)) //nolint:gosec // a seed is to be repeated
		lanes.Go(func() {
			for sleep(ctx, between(rng, 200*time.Millisecond, 700*time.Millisecond)) == nil {
				// What has begun is brought to its end, so that everything is whole then.
				if err := lane(context.WithoutCancel(ctx), rng); err != nil {
					f.fail(err)
					return
				}
			}
		})
	}
	lanes.Wait()
	return f.failed
}

func (f *faults) count(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.counts[kind]++
}

func (f *faults) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.failed == nil {
		f.failed = err
	}
}

// String returns the faults by kind.
func (f *faults) String() string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(f.counts)) {
		all = append(all, fmt.Sprintf("%d %s", f.counts[kind], kind))
	}
	return strings.Join(all, ", ")
}

// members takes one member away at a time, so that two are left.
func (f *faults) members(ctx context.Context, rng *rand.Rand) error {
	m, how := f.world.cluster.members[rng.IntN(len(f.world.cluster.members))], rng.IntN(2)
	d := between(rng, 300*time.Millisecond, 1500*time.Millisecond)
	if how == 0 {
		f.count("member kills")
		m.process.kill()
		_ = sleep(ctx, d)
		return m.start()
	}
	f.count("member pauses")
	m.process.pause()
	_ = sleep(ctx, d)
	m.process.resume()
	return nil
}

// replicas kills a replica and starts it again on its data, or lets it stand still.
func (f *faults) replicas(ctx context.Context, rng *rand.Rand) error {
	r, how := f.world.replicas[rng.IntN(len(f.world.replicas))], rng.IntN(2)
	if how == 0 {
		d := between(rng, 0, 300*time.Millisecond)
		f.count("replica kills")
		r.kill()
		_ = sleep(ctx, d)
		return r.start(ctx)
	}
	d := between(rng, 100*time.Millisecond, f.pause)
	f.count("replica pauses")
	if err := r.mete.Pause(); err != nil {
		return fmt.Errorf("pause %s: %w", r.name, err)
	}
	_ = sleep(ctx, d)
	return r.mete.Resume()
}

// links does something to one or all links of one replica.
func (f *faults) links(ctx context.Context, rng *rand.Rand) error {
	r := f.world.replicas[rng.IntN(len(f.world.replicas))]
	links := r.links
	if rng.IntN(2) == 0 {
		i := rng.IntN(len(links))
		links = links[i : i+1]
	}
	kinds := []struct {
		name  string
		state linkState
		slow  time.Duration
	}{
		{"link cuts", cut, 0},
		{"late deliveries", silent, 0},
		{"lost replies", deaf, 0},
		{"lost replies", deaf, 0},
		{"slow links", whole, between(rng, 10*time.Millisecond, 60*time.Millisecond)},
	}
	kind, d := kinds[rng.IntN(len(kinds))], between(rng, 100*time.Millisecond, time.Second)
	f.count(kind.name)
	for _, l := range links {
		l.set(kind.state, kind.slow)
	}
	_ = sleep(ctx, d)
	r.heal()
	return nil
}

// edits writes a document again.
func (f *faults) edits(ctx context.Context, rng *rand.Rand) error {
	f.count("edits")
	return f.edit(ctx, rng)
}

// editPlans writes one of plans again: with another amount, or in other words.
func (w *world) editPlans(plans []planDoc) func(context.Context, *rand.Rand) error {
	return func(ctx context.Context, rng *rand.Rand) error {
		p, how, share := plans[rng.IntN(len(plans))], rng.IntN(2), 80+rng.Int64N(60)
		if how == 0 {
			p.amount = p.amount * share / 100
		}
		return w.cluster.commit(ctx, p.put(fmt.Sprint("edit ", rng.Uint64())))
	}
}

// between returns a duration of at least low and less than high.
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64(high-low)))
}
