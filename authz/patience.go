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
	over   bool // the caller gives no more time, or has gone
}

// wait waits until ready is closed, for as long as the limit that lacks a lease allows,
// or until the caller has gone or will go soon.
func (p *patience) wait(ctx context.Context, now time.Time, ready <-chan struct{}, limit time.Duration) {
	limit, last := p.cut(ctx, now, limit)
	if p.timer == nil {
		p.timer = time.NewTimer(limit - now.Sub(p.since))
	} else {
		p.timer.Reset(limit - now.Sub(p.since))
	}
	select {
	case <-ready:
	case <-p.timer.C:
		p.over = p.over || last
	case <-ctx.Done():
		p.over = true
	}
}

// cut returns a limit that is a little less than what the caller gives (case C118),
// and whether it is that that ends the wait.
func (p *patience) cut(ctx context.Context, now time.Time, limit time.Duration) (_ time.Duration, last bool) {
	if deadline, ok := ctx.Deadline(); ok {
		left := deadline.Sub(now)
		if given := deadline.Sub(p.since) - min(answerMargin, left/4); given < limit {
			return given, true
		}
	}
	return limit, false
}

// waitEnded tells how long a request has waited, if it has.
func (d *Decider) waitEnded(p *patience) {
	if p.timer != nil {
		p.timer.Stop()
		d.waited(d.now().Sub(p.since))
	}
}
