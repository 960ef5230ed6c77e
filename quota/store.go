package quota

import (
	"context"
	"errors"
)

// Store keeps accounts where every replica can reach them.
//
// Operations on one account are linearizable across processes and durable once
// Apply returns nil. Store implementations are safe for concurrent use, also for
// one account, though a holder never does that.
type Store interface {
	// Apply reads the account, computes it again by [Apply] and swaps it by
	// compare and swap, all or nothing, as often as it takes. Before it does so
	// it finds the holders that are not liable any more and adds them to
	// op.Gone. An operation that would change nothing is not written.
	//
	// Unless the account has seen op, or op only asks (Seq 0), op is applied only
	// while the holder's own liable key exists: a holder that was folded away
	// and reports its cumulative use again would be counted twice. What the
	// account has seen is answered without any condition.
	//
	// An error that is ErrStale, ErrGone or ErrNotApplied tells that this call
	// has not applied op and never will: if a write of it may have landed, or
	// may yet, the error is another one. It says nothing of earlier calls: the
	// account may have seen op, and the holder been folded away with it, before
	// this call. After any other error op may have been applied: the caller
	// repeats the very same op until it knows.
	Apply(ctx context.Context, op Operation) (Result, error)
}

// What a Store says when it certainly did not apply an operation.
var (
	// ErrStale: a guard does not hold. The terms are old; new ones are on
	// their way through the watch.
	ErrStale = errors.New("terms have changed")
	// ErrGone: the holder's own liable key does not exist, so that it may have
	// no leases and nothing that it reports may be counted. What it has not
	// reported goes on under a new incarnation.
	ErrGone = errors.New("holder is not liable")
	// ErrNotApplied: the store refused the operation as a whole (too large, no
	// space, no permission).
	ErrNotApplied = errors.New("not applied")
)
