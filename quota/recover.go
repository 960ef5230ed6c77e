package quota

import (
	"context"
	"errors"
	"fmt"
)

// Recovered is what became of the use of an orphan.
type Recovered struct {
	Reported int64 // that the account had not, and has now; below 0 after refunds
	Lost     int64 // whose holder is not liable any more ([ReplicaLost]), or may be reported already
	Dropped  int64 // held for too long
}

// recoverTries bounds how often the account of a dead process may turn out to have
// changed. That process had one operation under way at most.
const recoverTries = 8

// Recover reports what a killed process had not, as of a wall clock time in
// nanoseconds since 1970, and closes its leases. Nothing is counted twice: where
// nobody can tell whether the store has it, it counts as reported (A45). What is lost
// or dropped is never billed.
//
// An operation that the dead process had sent may still come before this one, and is
// reckoned with. After it, it fails: the account that it was computed from is no more.
//
// After an error it is to be called again with the same o, which has notes of what was
// found out: in the end it returns what all calls did. It is not to be called
// concurrently for one account and holder.
func Recover(ctx context.Context, store Store, o *Orphan, wall int64) (Recovered, error) {
	known, err := store.Apply(ctx, o.operation(0, 0))
	if err != nil {
		return Recovered{}, fmt.Errorf("ask what is known of the use of %s: %w", o.Holder, err)
	}
	if known.Seq == 0 && o.Reported != 0 {
		return o.gone(wall), nil // it was folded away
	}
	if err := o.note(known); err != nil {
		return Recovered{}, fmt.Errorf("recover the use of %s: %w", o.Holder, err)
	}
	for range recoverTries {
		goal := o.goal(known.Own, wall)
		if known.Own == goal && (known.Leased == 0 || known.Seq == 0) {
			return o.settled(goal), nil
		}
		op := o.operation(known.Seq+1, goal)
		res, err := store.Apply(ctx, op)
		switch {
		case errors.Is(err, ErrGone):
			return o.gone(wall), nil
		case err != nil:
			return Recovered{}, fmt.Errorf("report the use of %s: %w", o.Holder, err)
		case res.Seq == op.Seq && res.Own == goal && res.Granted == 0:
			return o.settled(goal), nil
		}
		known = res // an operation of the dead process came first, with another use or a lease
	}
	return Recovered{}, fmt.Errorf("report the use of %s: its account has changed %d times meanwhile: is its process still there?", o.Holder, recoverTries)
}

// operation reports used, and that no lease goes on. Under sequence 0 it asks.
func (o *Orphan) operation(seq uint64, used int64) Operation {
	return Operation{Key: o.Key, App: o.App, Holder: o.Holder, Seq: seq, Used: used, Ceiling: MaxUnits, Replicas: 1}
}

// note takes down what the store knows. Use that came on top of that becomes
// cumulative, and is kept so before it is reported: a second time it would come on top
// of itself. Where the machine went down since, it may have been reported long ago.
func (o *Orphan) note(known Result) error {
	if o.Used > Unbased/2 {
		unreported := o.Used - Unbased
		if o.Stale {
			o.lost, unreported = max(0, unreported), 0
		}
		if o.Keep != nil {
			if err := o.Keep(known.Own+unreported, known.Own); err != nil {
				return err
			}
		}
		o.Used = known.Own + unreported
	}
	if !o.asked {
		o.asked, o.had = true, known.Own
	}
	o.Reported = max(o.Reported, known.Own)
	return nil
}

// goal returns the use that the account is to have in the end.
func (o *Orphan) goal(own, wall int64) int64 {
	unreported := o.Used - own
	if unreported < 0 && o.Stale || unreported > 0 && o.late(wall) {
		return own // o is older than the last report, or too old for another one
	}
	return o.Used
}

func (o *Orphan) late(wall int64) bool { return wall-o.Wall > int64(heldFor) }

func (o *Orphan) settled(goal int64) Recovered {
	return Recovered{Reported: goal - o.had, Dropped: max(0, o.Used-goal), Lost: o.lost}
}

// gone tells what became of the use of a holder that nothing may be reported of any
// more.
func (o *Orphan) gone(wall int64) Recovered {
	used := o.Used
	if used > Unbased/2 {
		used -= Unbased - o.Reported
	}
	unreported := max(0, used-o.Reported)
	if o.late(wall) {
		return Recovered{Dropped: unreported, Lost: o.lost}
	}
	return Recovered{Lost: unreported + o.lost}
}
