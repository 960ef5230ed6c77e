package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/meteproject/mete/store"
)

// faultPlans are quotas of which some run out at once, some during the run and some
// never, with leases that live short enough to run out during a pause.
func faultPlans() []planDoc {
	const lease = "first: 2, max_share: 2%, demand: 1s, renew_after: 700ms, usable_for: 2s"
	return []planDoc{
		{"small", 60, lease, tenantsOf("small", 4)},
		{"middle", 400, lease, tenantsOf("middle", 8)},
		{"large", 10_000_000, lease, tenantsOf("large", 12)},
	}
}

// playFaults is everything at once: load on all replicas while members, replicas and
// links fail and plans change.
func playFaults(ctx context.Context, r *run) (figures string, err error) {
	plans, replicas := faultPlans(), 4
	if r.long {
		replicas = 5
	}
	w, err := r.newWorld(ctx, "faults", worldConfig{
		members: 3, replicas: replicas, plans: plans, args: []string{"--refusal-memory", "1s", "--unavailable-for", "1s"},
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	f := &faults{world: w, edit: w.editPlans(plans), seed: r.seed, pause: 3 * time.Second}
	began := time.Now()
	if err := w.suffer(ctx, r.length, f, w.plansLoad(r.seed, plans, 2*f.pause)); err != nil {
		return f.String(), err
	}
	lasted := time.Since(began)
	if err := w.settle(ctx); err != nil {
		return f.String(), err
	}
	figures, err = w.judge(lasted, r.least)
	return figures + "; " + f.String(), err
}

// plansLoad asks all replicas for all tenants of plans. Callers are as patient as that.
func (w *world) plansLoad(seed uint64, plans []planDoc, patience time.Duration) load {
	var tenants []string
	for _, p := range plans {
		tenants = append(tenants, p.tenants...)
	}
	return load{callers: 400, rate: 1000, seed: seed, f: func(ctx context.Context, rng *rand.Rand) {
		to, units := w.replicas[rng.IntN(len(w.replicas))], []int64{1, 1, 1, 2, 3, 7}[rng.IntN(6)]
		within := patience // a process that stands still answers in the end
		if rng.IntN(50) == 0 {
			within = 100 * time.Millisecond // and some callers do not wait
		}
		w.truth.askWithin(ctx, within, to, tenants[rng.IntN(len(tenants))], units)
	}}
}

// suffer sends load while faults happen, for so long, and returns once everything is whole
// again.
func (w *world) suffer(ctx context.Context, long time.Duration, f *faults, l load) error {
	during, done := context.WithTimeout(ctx, long)
	defer done()
	failed := make(chan error, 1)
	go func() {
		failed <- f.play(during)
		done() // what does not come back ends the run
	}()
	l.run(during)
	if err := <-failed; err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, one := range w.replicas {
		if err := w.ready(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// judge checks everything that can be known of a world that is settled.
func (w *world) judge(lasted time.Duration, least float64) (figures string, err error) {
	allowed, refused, unavailable, unanswered := w.truth.sum()
	figures = fmt.Sprintf("units: %d allowed, %d refused, %d unavailable, %d unanswered", allowed, refused, unavailable, unanswered)
	calls, err := readHistory(w.history())
	if err != nil {
		return figures, err
	}
	found, proof, err := prove(w.books.all(), calls, w.dir)
	rate := float64(len(calls)) / lasted.Seconds()
	figures = fmt.Sprintf("%s (%.0f operations/s); %s", proof, rate, figures)
	errs := []error{err, w.checkSums(found)}
	if rate < least {
		errs = append(errs, fmt.Errorf("void: %.0f operations a second, want at least %.0f", rate, least))
	}
	return figures, errors.Join(errs...)
}

// prove checks what needs no callers: the books and the histories. It returns the
// accounts as they are at the end.
func prove(events []event, calls []call, dir string) (found *audit, proof string, err error) {
	found, auditErr := auditBooks(events, calls)
	judged, err := checkHistories(calls, found, dir, 2*time.Minute)
	return found, fmt.Sprintf("%d revisions of %d accounts and %d grants explained; %d operations linearizable, %d unknown",
		found.revisions, len(found.accounts), found.grants, judged, unknown(calls)), errors.Join(auditErr, err)
}

// checkSums compares what accounts say with what callers were told.
func (w *world) checkSums(found *audit) error {
	used := map[string]int64{}
	for key, a := range found.accounts {
		if k, ok := store.ParseAccountKey(key); ok {
			used[k.Tenant] += a.Used()
		}
	}
	var errs []error
	for tenant, t := range w.truth.tallies {
		low, high := t.used()
		if n := used[tenant]; n < low || n > high {
			errs = append(errs, fmt.Errorf("%s: the account says %d used; %d to %d were allowed and not given back", tenant, n, low, high))
		}
	}
	return errors.Join(errs...)
}
