package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// playPaused lets two replicas stand still for longer than their leases may be spent.
// When they wake, requests are waiting already. One of them reaches etcd: whatever it
// allows must be covered by an operation that began after the wake. The other one
// does not: it must not allow anything.
func playPaused(ctx context.Context, r *run) (figures string, err error) {
	lease, usable, pause := "renew_after: 3s, usable_for: 5s, demand: 2s", 5*time.Second, 8*time.Second
	if r.long {
		lease, usable, pause = "", time.Minute, 90*time.Second
	}
	tenants := tenantsOf("paused", 20)
	w, err := r.newWorld(ctx, "paused", worldConfig{
		members: 1, replicas: 2, plans: []planDoc{{name: "pro", amount: 10_000, lease: lease, tenants: tenants}},
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	connected, apart := w.replicas[0], w.replicas[1]
	if err := w.lendTo(ctx, tenants); err != nil {
		return "", err
	}
	if err := errors.Join(connected.mete.Pause(), apart.mete.Pause()); err != nil {
		return "", err
	}
	if err := sleep(ctx, pause-300*time.Millisecond); err != nil {
		return "", err
	}
	for _, l := range apart.links {
		l.set(cut, 0)
	}
	var both sync.WaitGroup
	var first, second []woken
	both.Go(func() { first = wake(ctx, connected, tenants) })
	both.Go(func() { second = wake(ctx, apart, tenants) })
	both.Wait()
	apart.heal()
	if err := errors.Join(w.ready(ctx, connected), w.ready(ctx, apart), w.settle(ctx)); err != nil {
		return "", err
	}
	return w.judgePaused(pause, usable, first, second)
}

// lendTo has every replica hold leases of every tenant, hardly spent.
func (w *world) lendTo(ctx context.Context, tenants []string) error {
	for _, r := range w.replicas {
		for _, t := range tenants {
			if a := w.truth.ask(ctx, r, t, 1); a != allowed {
				return fmt.Errorf("%s answers %d to the first request of %s, want %d", r.name, a, t, allowed)
			}
			if a := w.truth.ask(ctx, r, t, 1); a != allowed {
				return fmt.Errorf("%s answers %d to the second request of %s, want %d", r.name, a, t, allowed)
			}
		}
	}
	return nil
}

// woken is what became of a request that waited for a replica to wake.
type woken struct {
	tenant    string
	answer    answer
	wake, end int64 // by mono
}

// wake sends a request of each tenant to a paused replica and then lets it go on.
func wake(ctx context.Context, r *replica, tenants []string) []woken {
	f, at := r.face.Load(), make(chan int64)
	all := make([]woken, len(tenants))
	var asked sync.WaitGroup
	began := make(chan struct{}, len(tenants))
	for i, t := range tenants {
		asked.Go(func() {
			began <- struct{}{}
			a := f.ask(ctx, 5*time.Second, t, "/1")
			all[i] = woken{tenant: t, answer: a, end: mono()}
		})
	}
	for range tenants {
		<-began
	}
	go func() {
		time.Sleep(300 * time.Millisecond) // they are in its socket by then; if not, they come a little later
		now := mono()
		_ = r.mete.Resume()
		at <- now
	}()
	woke := <-at
	asked.Wait()
	for i := range all {
		all[i].wake = woke
	}
	return all
}

func (w *world) judgePaused(pause, usable time.Duration, connected, apart []woken) (figures string, err error) {
	calls, err := readHistory(w.history())
	if err != nil {
		return "", err
	}
	var errs []error
	covered, served := 0, 0
	for _, one := range connected {
		if one.answer != allowed {
			continue
		}
		served++
		if !coveredBy(calls, w.replicas[0].name, one) {
			errs = append(errs, fmt.Errorf("%s: allowed after the wake, and no lease was asked for since", one.tenant))
			continue
		}
		covered++
	}
	kept := 0
	for _, one := range apart {
		if one.answer == allowed {
			errs = append(errs, fmt.Errorf("%s: allowed after the wake by a replica that has no etcd", one.tenant))
			continue
		}
		kept++
	}
	if served < len(connected)/2 {
		errs = append(errs, fmt.Errorf("void: %d of %d requests were allowed after the wake", served, len(connected)))
	}
	_, proof, err := prove(w.books.all(), calls, w.dir)
	figures = fmt.Sprintf("a pause of %v with leases of %v: %d requests allowed, %d by a lease from after it; %d of %d not allowed without etcd; %s",
		pause, usable, served, covered, kept, len(apart), proof)
	return figures, errors.Join(append(errs, err)...)
}

// coveredBy reports whether a replica's operation that asked for a lease began after
// the wake and was answered before the request was.
func coveredBy(calls []call, name string, one woken) bool {
	for _, c := range calls {
		mine := c.op.Key.Tenant == one.tenant && len(c.op.Holder) > len(name) && c.op.Holder[:len(name)+1] == name+"-"
		if mine && c.op.Want > 0 && c.result != nil && c.began >= one.wake && c.end <= one.end {
			return true
		}
	}
	return false
}
