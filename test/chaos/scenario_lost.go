package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/meteproject/mete/store"
)

// playLost kills a replica and does not start it again. What it had used and not
// reported is lent once more; callers get at most as much over the quota as the
// replica's own metric had said.
func playLost(ctx context.Context, r *run) (figures string, err error) {
	const amount = 4000
	rounds := 3
	if r.long {
		rounds = 20
	}
	w, err := r.newWorld(ctx, "lost", worldConfig{
		members: 1, replicas: 1, args: []string{"--refusal-memory", "100ms"},
		plans: []planDoc{{name: "pro", amount: amount, tenants: tenantsOf("lost", rounds)}},
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	rng := rand.New(rand.NewPCG(r.seed, 30)) //nolint:gosec // a seed is to be repeated
	var said []string
	var errs []error
	for i, tenant := range tenantsOf("lost", rounds) {
		bound, err := w.lose(ctx, r, fmt.Sprint("lost", i), tenant, between(rng, 500*time.Millisecond, 1500*time.Millisecond))
		if err != nil {
			return strings.Join(said, ", "), err
		}
		if err := w.useUp(ctx, tenant, r.seed); err != nil {
			return strings.Join(said, ", "), err
		}
		over := w.truth.of(tenant).allowed.Load() - amount
		said = append(said, fmt.Sprintf("%d (bound %d)", max(0, over), bound))
		if over > bound {
			errs = append(errs, fmt.Errorf("%s: %d units over the quota; mete_overshoot_bound_units was %d at most", tenant, over, bound))
		}
	}
	figures = fmt.Sprintf("over by %s of %d units after a replica was lost", strings.Join(said, ", "), amount)
	if err := w.settle(ctx); err != nil {
		return figures, err
	}
	calls, err := readHistory(w.history())
	if err != nil {
		return figures, err
	}
	_, proof, err := prove(w.books.all(), calls, w.dir)
	return figures + "; " + proof, errors.Join(append(errs, err)...)
}

// lose has a new replica serve a tenant for a while and then loses it for good, with
// its liability. It returns the most that the replica said it could cost.
func (w *world) lose(ctx context.Context, r *run, name, tenant string, after time.Duration) (bound int64, err error) {
	if err := w.addReplica(r, name, nil); err != nil {
		return 0, err
	}
	one := w.replicas[len(w.replicas)-1]
	if err := errors.Join(one.start(ctx), w.ready(ctx, one)); err != nil {
		return 0, err
	}
	loaded, stop := context.WithTimeout(ctx, after)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		load{callers: 10, rate: 500, seed: r.seed, f: func(ctx context.Context, _ *rand.Rand) { w.truth.ask(ctx, one, tenant, 1) }}.run(loaded)
	}()
	incarnation, err := one.incarnation(ctx)
	for err == nil && loaded.Err() == nil {
		var now int64
		now, err = one.bound(ctx)
		bound = max(bound, now)
		_ = sleep(loaded, 10*time.Millisecond)
	}
	one.kill()
	stop()
	<-done
	if err != nil {
		return 0, err
	}
	_, err = w.cluster.client.Delete(ctx, store.LiablePrefix+incarnation)
	return bound, err
}

// useUp has the first replica serve a tenant until it refuses for good.
func (w *world) useUp(ctx context.Context, tenant string, seed uint64) error {
	ctx, done := context.WithTimeout(ctx, 20*time.Second)
	defer done()
	last := time.Now() // when something was allowed
	for ctx.Err() == nil && time.Since(last) < 500*time.Millisecond {
		before := w.truth.of(tenant).allowed.Load()
		some, enough := context.WithTimeout(ctx, 100*time.Millisecond)
		load{callers: 8, rate: 4000, seed: seed, f: func(ctx context.Context, _ *rand.Rand) { w.truth.ask(ctx, w.replicas[0], tenant, 1) }}.run(some)
		enough()
		if w.truth.of(tenant).allowed.Load() > before {
			last = time.Now()
		}
	}
	return ctx.Err()
}

// incarnation asks the replica for its incarnation.
func (r *replica) incarnation(ctx context.Context) (string, error) {
	text, err := fetch(ctx, "http://"+r.mete.Admin+"/v1/status")
	if err != nil {
		return "", err
	}
	var status struct {
		Incarnation string `json:"incarnation"`
	}
	err = json.Unmarshal(text, &status)
	return status.Incarnation, err
}

// bound reads what the replica says that its loss could cost at most: 0 as long as nothing
// was lent.
func (r *replica) bound(ctx context.Context) (int64, error) {
	return r.metric(ctx, `mete_overshoot_bound_units{app="`+appName+`",limit="`+limitName+`"}`)
}
