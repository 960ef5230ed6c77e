package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// skewAmount is a quota that 1,500 requests a second use up in a few seconds.
const skewAmount = 8000

// playSkew moves all traffic to one replica when a tenth of the quota is left: hardly
// a request may be refused while the other replicas hold what it needs. The same
// without recalls is there to compare.
func playSkew(ctx context.Context, r *run) (figures string, err error) {
	var with, without skewed
	var g errgroup.Group
	g.Go(func() (err error) { with, err = r.skew(ctx, "skew", true); return err })
	g.Go(func() (err error) { without, err = r.skew(ctx, "skew-without", false); return err })
	err = g.Wait()
	if limit := int64(skewAmount / 1000); err == nil && with.early > limit {
		err = fmt.Errorf("%d requests refused while units were left, want at most %d", with.early, limit)
	}
	return fmt.Sprintf("of %d units, all traffic on one replica for the last tenth: %d refused while units were left, %d never used; without recalls %d and %d",
		skewAmount, with.early, with.left, without.early, without.left), err
}

// skewed is what became of a quota.
type skewed struct{ early, left int64 }

func (r *run) skew(ctx context.Context, name string, recalls bool) (s skewed, err error) {
	const tenant = "org:skewed"
	w, err := r.newWorld(ctx, name, worldConfig{
		members: 1, replicas: 3, args: []string{fmt.Sprint("--recalls=", recalls)},
		plans: []planDoc{{name: "pro", amount: skewAmount, tenants: []string{tenant}}},
	})
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	tally := w.truth.of(tenant)
	var flying, early atomic.Int64
	loaded, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	load{callers: 16, rate: 1500, seed: r.seed, f: func(ctx context.Context, rng *rand.Rand) {
		to := w.replicas[rng.IntN(3)]
		if tally.allowed.Load() >= skewAmount*9/10 {
			to = w.replicas[0]
			time.AfterFunc(4*time.Second, stop)
		}
		flying.Add(1)
		a := w.truth.ask(ctx, to, tenant, 1)
		others := flying.Add(-1)
		if a == refused && tally.allowed.Load()+others < skewAmount {
			early.Add(1)
		}
		if tally.allowed.Load() >= skewAmount {
			stop()
		}
	}}.run(loaded)
	if err := ctx.Err(); err != nil {
		return s, err
	}
	s = skewed{early: early.Load(), left: skewAmount - tally.allowed.Load()}
	if err := w.settle(ctx); err != nil {
		return s, err
	}
	calls, err := readHistory(w.history())
	if err != nil {
		return s, err
	}
	found, _, err := prove(w.books.all(), calls, w.dir)
	return s, errors.Join(err, w.checkSums(found))
}
