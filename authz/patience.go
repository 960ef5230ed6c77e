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
	ctx    context.Context //nolint:containedctx // lives as long as one call of Decide
	keeper *quota.Keeper
	since  time.Time
	timer  *time.Timer
	over   bool
	waited bool
}

func newPatience(ctx context.Context, k *quota.Keeper, now time.Time) patience {
	return patience{ctx: ctx, keeper: k, since: now}
}

// gone tells whether nobody waits for the answer any more.
func (p *patience) gone() bool { return p.ctx.Err() != nil && p.ctx.Err() != context.DeadlineExceeded }

// wait waits until ready is closed, patience is over or the caller has gone.
func (p *patience) wait(now time.Time, ready <-chan struct{}) {
	if p.timer == nil {
		p.waited = true
		p.timer = time.NewTimer(p.limit(now))
	}
	select {
	case <-ready:
	case <-p.timer.C:
		p.over = true
	case <-p.ctx.Done():
		p.over = true
	}
}

// limit returns how long to wait at most: what the keeper allows, or a little less
// than the caller does (case C118).
func (p *patience) limit(now time.Time) time.Duration {
	limit := p.keeper.Wait() - now.Sub(p.since)
	if deadline, ok := p.ctx.Deadline(); ok {
		left := deadline.Sub(now)
		limit = min(limit, left-min(answerMargin, left/4))
	}
	return max(0, limit)
}

func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
