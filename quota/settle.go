package quota

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Settle closes every purse: what was used is reported and what was not goes back
// (A32). It is called when no more requests come and Run has returned, and tries
// until ctx is done. The error tells how many purses could not be settled; their
// leases are reclaimed once this replica is not liable any more.
func (k *Keeper) Settle(ctx context.Context) error {
	k.mu.Lock()
	open := k.open()
	k.mu.Unlock()
	work := make(chan *Purse)
	var left sync.WaitGroup
	var mu sync.Mutex
	failed, first := 0, error(nil)
	for range min(k.cfg.Parallel, len(open)) {
		left.Go(func() {
			for p := range work {
				if err := k.settle(ctx, p); err != nil {
					mu.Lock()
					if failed++; first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	for _, p := range open {
		work <- p
	}
	close(work)
	left.Wait()
	if failed > 0 {
		return fmt.Errorf("settle %d of %d purses: %w", failed, len(open), first)
	}
	return nil
}

// settle brings p's operations to an end and closes it.
func (k *Keeper) settle(ctx context.Context, p *Purse) error {
	for {
		p.mu.Lock()
		p.shut()
		op := p.next(k.now(), k)
		if op == nil {
			p.closeCell() // all is reported
		}
		p.mu.Unlock()
		if op == nil {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		res, err := k.apply(ctx, *op, k.cfg.Wait)
		if errors.Is(err, ErrGone) {
			k.lose(op.Holder)
		}
		now := k.now()
		k.count(op, res, err)
		p.mu.Lock()
		p.done(now, res, err)
		p.mu.Unlock()
		if err != nil {
			pause(ctx, staleWait)
		}
	}
}

// pause returns after d, or when ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
