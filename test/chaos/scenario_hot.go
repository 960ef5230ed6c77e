package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// playHot has one tenant ask as often as the machine carries: each replica writes to
// its account at most once a second.
func playHot(ctx context.Context, r *run) (figures string, err error) {
	const tenant = "org:hot"
	warm, steady := 3*time.Second, 5*time.Second
	if r.long {
		warm, steady = 15*time.Second, time.Minute
	}
	w, err := r.newWorld(ctx, "hot", worldConfig{
		members: 1, replicas: 3, plans: []planDoc{{name: "pro", amount: 100_000_000_000, tenants: []string{tenant}}},
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	ask := func(ctx context.Context, rng *rand.Rand) { w.truth.ask(ctx, w.replicas[rng.IntN(3)], tenant, 1) }
	for _, d := range []time.Duration{warm, steady} {
		if d == steady {
			w.truth.calls.Store(0)
		}
		some, done := context.WithTimeout(ctx, d)
		load{callers: 32, seed: r.seed, f: ask}.run(some)
		done()
	}
	until, calls := mono(), w.truth.calls.Load()
	if err := errors.Join(ctx.Err(), w.settle(ctx)); err != nil {
		return "", err
	}
	writes := writesOf(w.books.all(), tenant, until-int64(steady), until)
	most := 0
	for _, n := range writes {
		most = max(most, n)
	}
	perSecond := float64(most) / steady.Seconds()
	figures = fmt.Sprintf("%.0f requests a second for one tenant on 3 replicas: at most %.1f writes to its account a second and replica",
		float64(calls)/steady.Seconds(), perSecond)
	history, err := readHistory(w.history())
	if err != nil {
		return figures, err
	}
	found, _, err := prove(w.books.all(), history, w.dir)
	if perSecond > 1 {
		err = errors.Join(err, fmt.Errorf("%.1f writes a second of one replica, want at most 1", perSecond))
	}
	return figures, errors.Join(err, w.checkSums(found))
}

// writesOf counts the changes of a tenant's accounts between two moments, by holder.
func writesOf(events []event, tenant string, from, to int64) map[string]int {
	seqs, writes := map[string]uint64{}, map[string]int{}
	for _, e := range events {
		k, ok := store.ParseAccountKey(e.Key)
		if !ok || !strings.HasPrefix(e.Key, store.AccountsPrefix) || k.Tenant != tenant {
			continue
		}
		var a quota.Account
		if a, ok = decoded(e); !ok {
			continue
		}
		for _, h := range a.Holders {
			if seqs[h.ID] != h.Seq && e.At >= from && e.At < to {
				writes[h.ID]++
			}
			seqs[h.ID] = h.Seq
		}
	}
	return writes
}

func decoded(e event) (quota.Account, bool) {
	a, err := readAccount(e.Value)
	return a, err == nil && !e.Deleted
}
