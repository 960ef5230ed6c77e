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
	// Apply reads the account, computes it anew by [Apply] and swaps it by
	// compare and swap, all or nothing, as often as it takes. Before it does so
	// it finds the holders that are not liable any more and adds them to
	// op.Gone. An operation that would change nothing is not written.
	//
	// An error that is ErrStale, ErrGone or ErrNotApplied tells that op was not
	// applied. After any other error it may have been: the caller repeats the
	// very same op until it knows.
	Apply(ctx context.Context, op Operation) (Result, error)
}

// What a Store says when it certainly did not apply an operation.
var (
	// ErrStale: a guard does not hold. The terms are old; new ones are on
	// their way through the watch.
	ErrStale = errors.New("terms have changed")
	// ErrGone: the holder's own liable key does not exist. The holder must go
	// on under a new incarnation.
	ErrGone = errors.New("holder is not liable")
	// ErrNotApplied: the store refused the operation as a whole (too large, no
	// space, no permission).
	ErrNotApplied = errors.New("not applied")
)
