package quota

import (
	"context"
	"time"
)

// A Flight is one call of the store by a keeper that nobody runs: tests take its steps
// one by one, in an order of their own.
type Flight struct {
	keeper *Keeper
	purse  *Purse
	Op     *Operation // nil: there is nothing to ask
	Wait   time.Duration
}

// Depart begins what is due next; nil: nothing is.
func (k *Keeper) Depart() *Flight {
	p := k.take(k.now())
	if p == nil {
		return nil
	}
	op, wait := k.begin(p)
	return &Flight{k, p, op, wait}
}

// Arrive tells the keeper what became of the operation. It reports whether requests are
// held back before Land.
func (f *Flight) Arrive(res Result, err error) (heldBack bool) {
	goesOn := f.Op != nil && f.keeper.finish(f.purse, f.Op, res, err)
	return !goesOn && f.keeper.holdsBack(f.purse)
}

// Land ends the flight.
func (f *Flight) Land(heldBack bool) {
	if heldBack {
		f.keeper.letLook(f.purse)
	}
	f.keeper.sendRecall(context.Background(), f.purse)
	f.keeper.release(f.purse)
}

// Pause returns how long the keeper has nothing to do.
func (k *Keeper) Pause() time.Duration { return k.pause(k.now()) }

// StaleWait is how long requests are held back.
const StaleWait = staleWait

// Bound returns by how much p can take its account past the quota.
func (p *Purse) Bound() int64 { return p.bound() }

// Unreported returns the use that the store is not known to have.
func (p *Purse) Unreported() int64 { return p.used - p.reported }
