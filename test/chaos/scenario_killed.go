package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/meteproject/mete/store"
)

// playKilled kills one replica under 500 requests a second, 20 times, and starts it
// again on its data directory. At the end the account equals what callers were told,
// to the unit.
func playKilled(ctx context.Context, r *run) (figures string, err error) {
	const kills = 20
	least, most := 80*time.Millisecond, 400*time.Millisecond
	if r.long {
		least, most = 500*time.Millisecond, 10*time.Second
	}
	w, err := r.newWorld(ctx, "killed", worldConfig{
		members: 1, replicas: 1, plans: []planDoc{{name: "pro", amount: 100_000_000, tenants: []string{"org:killed"}}},
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	one, rng := w.replicas[0], rand.New(rand.NewPCG(r.seed, 20)) //nolint:gosec // a seed is to be repeated
	loaded, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		defer close(done)
		load{callers: 10, rate: 500, seed: r.seed, f: func(ctx context.Context, _ *rand.Rand) { w.truth.ask(ctx, one, "org:killed", 1) }}.run(loaded)
	}()
	for range kills {
		if err := sleep(ctx, between(rng, least, most)); err != nil {
			return "", err
		}
		one.kill()
		if err := errors.Join(one.start(ctx), w.ready(ctx, one)); err != nil {
			return "", err
		}
	}
	stop()
	<-done
	if err := w.settle(ctx); err != nil {
		return "", err
	}
	return w.judgeKilled(kills)
}

func (w *world) judgeKilled(kills int) (figures string, err error) {
	calls, err := readHistory(w.history())
	if err != nil {
		return "", err
	}
	found, proof, err := prove(w.books.all(), calls, w.dir)
	var used int64
	for key, a := range found.accounts {
		if k, _ := store.ParseAccountKey(key); k.Tenant == "org:killed" {
			used += a.Used()
		}
	}
	t := w.truth.of("org:killed")
	figures = fmt.Sprintf("%d kills: the account says %d, callers were told %d, and %d calls had no answer; %s",
		kills, used, t.allowed.Load(), t.unanswered.Load(), proof)
	return figures, errors.Join(err, w.checkSums(found))
}
