package store

import "sync/atomic"

// AccountStats counts what [Accounts] has done since it was made.
type AccountStats struct {
	// Operations are the calls of Apply.
	Operations int64
	// Reads are the requests that could change nothing; Writes are the
	// transactions with something to put, whatever became of them.
	Reads, Writes int64
	// Lost are operations that had to be computed again because their account,
	// a guard or a liable key was not as they expected.
	Lost int64
	// Unknown are operations sent in a transaction of unknown outcome, once for
	// each such transaction.
	Unknown int64
}

type accountCounters struct{ operations, reads, writes, lost, unknown atomic.Int64 }

// Stats returns the counts. It is safe for concurrent use; counts of one moment
// need not fit together.
func (s *Accounts) Stats() AccountStats {
	return AccountStats{
		Operations: s.counters.operations.Load(),
		Reads:      s.counters.reads.Load(),
		Writes:     s.counters.writes.Load(),
		Lost:       s.counters.lost.Load(),
		Unknown:    s.counters.unknown.Load(),
	}
}
