package quota

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Run keeps the purses filled until ctx is done. Then it returns; Settle is the
// caller's to call, once no more requests come.
func (k *Keeper) Run(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	for {
		pause := k.step(ctx, &running)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-k.wakeUp:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// step starts every operation that is due and returns how long to pause.
func (k *Keeper) step(ctx context.Context, running *sync.WaitGroup) time.Duration {
	now := k.now()
	for {
		p := k.take(now)
		if p == nil {
			return k.pause(now)
		}
		running.Add(1)
		go func() {
			defer running.Done()
			k.perform(ctx, p)
		}()
	}
}

// perform does for p what is due: one operation, one call of the store.
func (k *Keeper) perform(ctx context.Context, p *Purse) {
	op, wait := k.begin(p)
	goesOn := false
	if op != nil {
		res, err := k.apply(ctx, *op, wait)
		goesOn = k.finish(p, op, res, err)
	}
	if !goesOn && k.holdsBack(p) {
		pause(ctx, staleWait)
		k.letLook(p)
	}
	k.sendRecall(ctx, p)
	k.release(p)
}

// begin returns the operation that p needs, if any, and how long it may take.
func (k *Keeper) begin(p *Purse) (op *Operation, wait time.Duration) {
	now := k.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Mono >= p.retryAt {
		op = p.next(now, k)
	} else {
		p.putOff(now)
	}
	return op, max(k.cfg.Wait, p.Wait())
}

func (k *Keeper) apply(ctx context.Context, op Operation, wait time.Duration) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	return k.cfg.Store.Apply(ctx, op)
}

// finish tells p what became of op. It reports whether p can go on at once: not while
// its terms are old or this incarnation is lost.
func (k *Keeper) finish(p *Purse, op *Operation, res Result, err error) (goesOn bool) {
	now := k.now()
	k.count(op, res, err)
	if errors.Is(err, ErrGone) {
		k.lose(op.Holder)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done(now, res, err) {
		k.Fail(now)
	} else if !k.lostHolder() {
		k.away.Store(0) // a refusal is an answer
	}
	return !p.stale && !k.lostHolder()
}

// holdsBack reports whether requests still wait for p, because its terms or this
// incarnation are out of date, until news had time to arrive.
func (k *Keeper) holdsBack(p *Purse) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.wait != nil && p.recall.until == 0
}

// letLook lets requests that wait for p look again.
func (k *Keeper) letLook(p *Purse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wake()
}

// release lets p be taken again, at once if there is more to do.
func (k *Keeper) release(p *Purse) {
	now := k.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	over := p.closing && p.Settled()
	lingers := over && now.since(p.closedAt) < closedFor
	if lingers {
		p.lookAt(now.Mono + int64(closedFor))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.inFlight--
	p.busy = false
	if p.late {
		k.newInFlight--
	}
	if p.again || p.unfinished() && now.Mono >= p.retryAt {
		k.enqueue(p)
	}
	if p.wait != nil {
		k.prefer(p)
	}
	if over && !lingers && !p.queued {
		k.drop(p)
	}
	k.signal()
}
