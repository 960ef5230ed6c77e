package authz

import (
	"context"
	"time"

	"github.com/meteproject/mete/quota"
)

// answerMargin is what of the caller's deadline is left for the answer to travel.
const answerMargin = 10 * time.Millisecond

// A patience is how long one request may still wait for leases (A19). It costs
// nothing until it is first needed.
type patience struct {
	keeper *quota.Keeper
	since  time.Time
	timer  *time.Timer
	over   bool
}

// wait waits until ready is closed, patience is over or the caller has gone.
func (p *patience) wait(ctx context.Context, now time.Time, ready <-chan struct{}) {
	if p.timer == nil {
		p.timer = time.NewTimer(p.limit(ctx, now))
	}
	select {
	case <-ready:
	case <-p.timer.C:
		p.over = true
	case <-ctx.Done():
		p.over = true
	}
}

// limit returns how long to wait at most: what the keeper allows, or a little less
// than the caller does (case C118).
func (p *patience) limit(ctx context.Context, now time.Time) time.Duration {
	limit := p.keeper.Wait() - now.Sub(p.since)
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(now)
		limit = min(limit, left-min(answerMargin, left/4))
	}
	return max(0, limit)
}
