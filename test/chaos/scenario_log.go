package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/meteproject/mete/store"
)

// playLog breaks the stream of Envoy's access log off, stalls it and refuses it, at random
// and under load. A request whose entry is lost counts as it was reserved: accounts are
// off by just that, and mete_reservations_unsettled tells of how many requests.
func playLog(ctx context.Context, r *run) (figures string, err error) {
	return atOnce(
		part{"one mete", func() (string, error) { return r.breakLog(ctx, "log-one", 1) }},
		part{"two metes", func() (string, error) { return r.breakLog(ctx, "log-two", 2) }},
	)
}

func (r *run) breakLog(ctx context.Context, name string, replicas int) (figures string, err error) {
	w, err := r.newWorld(ctx, name, worldConfig{
		members: 1, replicas: replicas, plans: []planDoc{outcomesPlan()}, more: outcomesDocuments(),
		args: waiting(),
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	cfg := frontConfig{edits: map[string]string{
		"timeout: 0.4s":             "timeout: 10s", // a check that is not heard of is another story
		"buffer_flush_interval: 1s": "buffer_flush_interval: 0.1s",
	}}
	var links []*link
	for _, one := range w.replicas {
		l, err := newLink(one.mete.GRPC)
		if err != nil {
			return "", err
		}
		defer l.close()
		links = append(links, l)
		cfg.checks, cfg.logs = append(cfg.checks, one.mete.GRPC), append(cfg.logs, l.address())
	}
	f, err := startFront(ctx, cfg)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.stop()) }()
	if err := f.healthy(ctx, int64(replicas)); err != nil {
		return "", err
	}
	return w.sufferBrokenLog(ctx, r, f, links)
}

// waiting are arguments by which a busy machine does not make on_unavailable decide.
func waiting() []string { return []string{"--lease-wait", "5s"} }

// sufferBrokenLog sends load while the links of the log fail, and judges what is left.
func (w *world) sufferBrokenLog(ctx context.Context, r *run, f *front, links []*link) (figures string, err error) {
	before, err := w.sum(ctx, "mete_reservations_unsettled") // of requests that no Envoy has sent
	if err != nil {
		return "", err
	}
	during, done := context.WithTimeout(ctx, r.length*4/5)
	defer done()
	broken := make(chan string, 1)
	go func() { broken <- breakLinks(during, r.seed, links) }()
	bills := newBills()
	f.load(r.seed, bills).run(during)
	faults := <-broken
	if err := errors.Join(ctx.Err(), f.allArrived(ctx, w)); err != nil {
		return faults, err
	}
	told, err := w.told(ctx, before)
	if err != nil {
		return faults, err
	}
	found, proof, err := w.end(ctx, f)
	if found == nil {
		return faults, err
	}
	all, errs := explainAll(bills, found, 0)
	figures, judged := told.judge(all)
	return fmt.Sprintf("%s; %s; %s%s", faults, figures, proof, table(all)), errors.Join(append(errs, err, judged)...)
}

// breakLinks does something to one link after another until ctx is done, then mends
// all. It returns what it did.
func breakLinks(ctx context.Context, seed uint64, links []*link) string {
	rng := rand.New(rand.NewPCG(seed, 40)) //nolint:gosec // a seed is to be repeated
	counts := map[string]int{}
	for sleep(ctx, between(rng, 100*time.Millisecond, 800*time.Millisecond)) == nil {
		l, d := links[rng.IntN(len(links))], between(rng, 100*time.Millisecond, time.Second)
		switch rng.IntN(4) {
		case 0, 1:
			counts["resets"]++
			l.reset()
		case 2:
			counts["stalls"]++
			l.set(silent, 0)
			_ = sleep(ctx, d)
			if rng.IntN(2) == 0 { // and what was sent meanwhile is lost
				l.reset()
			}
			l.set(whole, 0)
		case 3:
			counts["refusals"]++
			l.set(cut, 0)
			_ = sleep(ctx, d)
			l.set(whole, 0)
		}
	}
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(counts)) {
		all = append(all, fmt.Sprintf("%d %s", counts[kind], kind))
	}
	return strings.Join(all, ", ")
}

// told is what replicas say became of reservations.
type told struct {
	unsettled, lost int64
	entries         int64            // of the log, with a reservation
	settled         map[string]int64 // by result
}

// told reads it. Before is how many were not settled before there was load.
func (w *world) told(ctx context.Context, before int64) (t told, err error) {
	var errs []error
	read := func(name string) int64 {
		n, err := w.sum(ctx, name)
		errs = append(errs, err)
		return n
	}
	t.unsettled = read("mete_reservations_unsettled") + read("mete_reservations_missing_total") - before
	t.lost = read("mete_settlements_lost_total")
	t.entries = read(`mete_access_log_entries_total{kind="reserved"}`)
	t.settled = map[string]int64{}
	for _, o := range outcomes() {
		t.settled[o.result] = read(`mete_settlements_total{result="` + o.result + `"}`)
	}
	return t, errors.Join(errs...)
}

// judge compares what replicas say with what explains the accounts. Where a
// settlement changes nothing, only replicas know of how many there was none.
func (t told) judge(all []explanation) (figures string, err error) {
	var errs []error
	var sum, settled int64
	for i := range all {
		e := &all[i]
		settled += t.settled[e.bill.result]
		missing := e.bill.answered.Load() - t.settled[e.bill.result]
		if e.bill.reserved == e.bill.used {
			e.unsettled = missing
		}
		if e.unsettled != missing {
			errs = append(errs, fmt.Errorf("%s: by its account %d are not settled; %d were answered and %d settled",
				e.bill.name, e.unsettled, e.bill.answered.Load(), t.settled[e.bill.result]))
		}
		sum += e.unsettled
	}
	if sum != t.unsettled {
		errs = append(errs, fmt.Errorf("mete_reservations_unsettled is %d; accounts tell of %d", t.unsettled, sum))
	}
	if t.entries != settled {
		errs = append(errs, fmt.Errorf("%d entries arrived, %d requests were settled", t.entries, settled))
	}
	if settled == 0 { // that nothing was lost may be luck
		errs = append(errs, errors.New("void: no entry has arrived"))
	}
	return fmt.Sprintf("%d entries arrived, mete_reservations_unsettled %d", t.entries, t.unsettled), errors.Join(errs...)
}

// end stops the front and the replicas, and checks what needs no callers. It returns what the
// accounts say that tenants used.
func (w *world) end(ctx context.Context, f *front) (used map[string]int64, proof string, err error) {
	if err := errors.Join(f.stop(), w.settle(ctx)); err != nil {
		return nil, "", err
	}
	calls, err := readHistory(w.history())
	if err != nil {
		return nil, "", err
	}
	found, proof, err := prove(w.books.all(), calls, w.dir)
	used = map[string]int64{}
	for key, a := range found.accounts {
		if k, ok := store.ParseAccountKey(key); ok {
			used[k.Tenant] += a.Used()
		}
	}
	return used, proof, err
}
