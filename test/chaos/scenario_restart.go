package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// playRestart restarts metes under load, behind an Envoy that has the examples'
// configuration but for its ports. One that ends in order loses no settlement: accounts
// equal the truth to the unit. One that is killed loses what Envoy had sent it, which
// counts as it was reserved.
func playRestart(ctx context.Context, r *run) (figures string, err error) {
	return atOnce(
		part{"one of two, in order", func() (string, error) { return r.restartTwo(ctx) }},
		part{"one, its etcd embedded", func() (string, error) { return r.restartOne(ctx) }},
		part{"one of two, killed", func() (string, error) { return r.restartKilled(ctx) }},
	)
}

// restartTwo restarts two replicas in turn. Envoy always has one of them.
func (r *run) restartTwo(ctx context.Context) (figures string, err error) {
	// Envoy asks every 3 s whether a replica wants checks, so it must go on for that long.
	drain, restarts := "3500ms", 2
	if r.long {
		drain, restarts = "5s", 20
	}
	w, f, err := r.newFrontedPair(ctx, "restart-two", "--drain-delay", drain)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.stop(), w.close()) }()
	bills := newBills()
	if err := f.during(ctx, r.seed, bills, restarts, func(ctx context.Context, i int) error {
		one := w.replicas[i%2]
		return errors.Join(one.stop(), one.start(ctx), f.healthy(ctx, 2))
	}); err != nil {
		return "", err
	}
	// All processes that run now have begun under load: what is not settled is of theirs.
	return w.judgeOrderly(ctx, f, bills, fmt.Sprint(restarts, " restarts"))
}

// newFrontedPair starts two replicas, and an Envoy with the examples' configuration that
// asks both and tells both how requests ended.
func (r *run) newFrontedPair(ctx context.Context, name string, args ...string) (*world, *front, error) {
	w, err := r.newWorld(ctx, name, worldConfig{
		members: 1, replicas: 2, plans: []planDoc{outcomesPlan()}, more: outcomesDocuments(), args: args, keepPorts: true,
	})
	if err != nil {
		return nil, nil, err
	}
	f, err := w.newFront(ctx)
	if err != nil {
		return nil, nil, errors.Join(err, w.close())
	}
	return w, f, nil
}

// newFront starts an Envoy before all replicas, and returns once it has found them.
func (w *world) newFront(ctx context.Context) (*front, error) {
	var cfg frontConfig
	for _, one := range w.replicas {
		cfg.checks, cfg.logs = append(cfg.checks, one.mete.GRPC), append(cfg.logs, one.mete.GRPC)
	}
	f, err := startFront(ctx, cfg)
	if err != nil {
		return nil, err
	}
	if err := f.healthy(ctx, int64(len(w.replicas))); err != nil {
		return nil, errors.Join(err, f.stop())
	}
	if f.before, err = w.sum(ctx, "mete_reservations_unsettled"); err != nil {
		return nil, errors.Join(err, f.stop())
	}
	return f, nil
}

// during sends load and meanwhile calls act n times, each time after a second or two: Envoy
// tells once a second how requests ended.
func (f *front) during(ctx context.Context, seed uint64, bills []*bill, n int, act func(ctx context.Context, i int) error) error {
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.load(seed, bills).run(loaded)
	}()
	rng := rand.New(rand.NewPCG(seed, 50)) //nolint:gosec // a seed is to be repeated
	var err error
	for i := 0; i < n && err == nil; i++ {
		if err = sleep(ctx, between(rng, time.Second, 2*time.Second)); err == nil {
			err = act(ctx, i)
		}
	}
	if err == nil {
		err = sleep(ctx, time.Second)
	}
	stop()
	<-done
	return err
}

// judgeOrderly checks that every request is settled of which Envoy heard that mete let
// it on.
func (w *world) judgeOrderly(ctx context.Context, f *front, bills []*bill, what string) (figures string, err error) {
	if err := f.allArrived(ctx, w); err != nil {
		return what, err
	}
	unheard, err := f.stat(ctx, "cluster.mete.upstream_rq_timeout")
	if err != nil {
		return what, err
	}
	told, err := w.told(ctx, f.before)
	if err != nil {
		return what, err
	}
	used, proof, err := w.end(ctx, f)
	if used == nil {
		return what, err
	}
	all, errs := explainAll(bills, used, unheard)
	return fmt.Sprintf("%s; mete_reservations_unsettled %d, mete_settlements_lost_total %d, %d checks without an answer; %s%s",
		what, told.unsettled, told.lost, unheard, proof, table(all)), errors.Join(append(errs, err, told.settledAll(all))...)
}

// settledAll checks that nothing is lost and all is settled, but what Envoy did not hear
// of.
func (t told) settledAll(all []explanation) error {
	var errs []error
	var unheardOf int64
	for _, e := range all {
		unheardOf += e.unheardOf
		if e.unsettled != 0 {
			errs = append(errs, fmt.Errorf("%s: %d of %d requests are not settled", e.bill.name, e.unsettled, e.bill.answered.Load()))
		}
	}
	if t.unsettled > unheardOf || t.lost > 0 {
		errs = append(errs, fmt.Errorf("mete_reservations_unsettled is %d, want %d; mete_settlements_lost_total is %d, want 0", t.unsettled, unheardOf, t.lost))
	}
	return errors.Join(errs...)
}

// restartOne restarts the only mete there is, which is away for two seconds: requests are
// refused meanwhile, and what Envoy has to tell waits.
func (r *run) restartOne(ctx context.Context) (figures string, err error) {
	restarts := 2
	if r.long {
		restarts = 20
	}
	w, err := r.newLoneWorld(ctx, "restart-one", "--drain-delay", "1500ms")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	f, err := w.newFront(ctx)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	one, bills := w.replicas[0], newBills()
	if err := f.during(ctx, r.seed, bills, restarts, func(ctx context.Context, _ int) error {
		return errors.Join(one.stop(), sleep(ctx, 2*time.Second), one.start(ctx), f.healthy(ctx, 1))
	}); err != nil {
		return "", err
	}
	if err := f.allArrived(ctx, w); err != nil {
		return "", err
	}
	return w.judgeLone(ctx, f, bills, fmt.Sprint(restarts, " restarts"))
}

// judgeLone is judgeOrderly where etcd ends with mete, so that accounts are to be read
// before that. They are reported every second.
func (w *world) judgeLone(ctx context.Context, f *front, bills []*bill, what string) (figures string, err error) {
	unheard, err := f.stat(ctx, "cluster.mete.upstream_rq_timeout")
	if err != nil {
		return what, err
	}
	told, err := w.told(ctx, f.before)
	if err != nil {
		return what, err
	}
	var all []explanation
	var errs []error
	for wait := 10 * time.Second; ; wait -= 100 * time.Millisecond {
		used, err := w.cluster.used(ctx)
		if err != nil {
			return what, err
		}
		all, errs = explainAll(bills, used, unheard)
		errs = append(errs, told.settledAll(all))
		if err = errors.Join(errs...); err == nil || wait <= 0 || sleep(ctx, 100*time.Millisecond) != nil {
			break
		}
	}
	return fmt.Sprintf("%s; mete_reservations_unsettled %d, mete_settlements_lost_total %d, %d checks without an answer%s",
		what, told.unsettled, told.lost, unheard, table(all)), errors.Join(append(errs, f.stop(), w.replicas[0].stop())...)
}

// restartKilled kills one of two replicas and starts it again on its data, and then the
// other one.
func (r *run) restartKilled(ctx context.Context) (figures string, err error) {
	kills := 2
	if r.long {
		kills = 20
	}
	w, f, err := r.newFrontedPair(ctx, "restart-killed", "--presence-ttl", "5s")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.stop(), w.close()) }()
	bills := newBills()
	if err := f.during(ctx, r.seed, bills, kills, func(ctx context.Context, i int) error {
		one := w.replicas[i%2]
		one.kill()
		return errors.Join(sleep(ctx, time.Second), one.start(ctx), f.healthy(ctx, 2))
	}); err != nil {
		return "", err
	}
	if err := f.allArrived(ctx, w); err != nil {
		return "", err
	}
	return w.judgeKilledPair(ctx, f, bills, kills)
}

// judgeKilledPair checks that accounts are off by nothing but requests that count as they were
// reserved. How many those are of dead processes, only accounts tell.
func (w *world) judgeKilledPair(ctx context.Context, f *front, bills []*bill, kills int) (figures string, err error) {
	told, err := w.told(ctx, f.before)
	if err != nil {
		return "", err
	}
	// A check that was not answered may have been decided, unless it was never sent.
	unsent, err := f.stat(ctx, "cluster.mete.upstream_rq_pending_failure_eject")
	if err != nil {
		return "", err
	}
	unheard := -unsent
	for _, b := range bills {
		unheard += b.unavailable.Load()
	}
	used, proof, err := w.end(ctx, f)
	if used == nil {
		return "", err
	}
	all, errs := explainAll(bills, used, unheard)
	return fmt.Sprintf("%d kills; of the processes that live mete_reservations_unsettled %d, mete_settlements_lost_total %d, %d checks without an answer; %s%s",
		kills, told.unsettled, told.lost, unheard, proof, table(all)), errors.Join(append(errs, err)...)
}
