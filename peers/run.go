package peers

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Run passes settlements on until ctx ends. Then it goes on with what is queued for at
// most Config.FlushFor, settles here what was never sent, and drops what was sent with
// an outcome that is not known. From then on everything is settled here. It is to be called
// once, and to be ended after the last settlement came and before what settles them ends.
func (r *Router) Run(ctx context.Context) error {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var senders sync.WaitGroup
	var known []*peer
	for ctx.Err() == nil {
		for _, p := range r.newcomers() {
			known = append(known, p)
			senders.Go(func() { p.run(hard, ctx.Done()) })
		}
		select {
		case <-ctx.Done():
		case <-r.changed:
			known = slices.DeleteFunc(known, func(p *peer) bool { return p.left.Load() })
		}
	}
	timer := time.AfterFunc(r.cfg.FlushFor, cancel)
	defer timer.Stop()
	senders.Wait()
	r.stopped.Store(true)
	for _, p := range append(known, r.newcomers()...) {
		p.leave()
	}
	return nil
}

// newcomers returns the peers that are new since the last call.
func (r *Router) newcomers() []*peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	fresh := r.fresh
	r.fresh = nil
	return fresh
}
