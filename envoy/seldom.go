package envoy

import (
	"sync/atomic"
	"time"
)

// seldomEvery is how often what requests bring about is logged at most.
const seldomEvery = time.Minute

// A seldom counts what requests bring about, and says when to log it: their senders
// could fill a log. The zero seldom is ready, and safe for concurrent use.
type seldom struct {
	next atomic.Int64 // no line before, in nanoseconds from 1970
	seen atomic.Int64 // since the last line
}

// add counts n at now. It reports whether to log, and how many there were since the last
// time that it said so.
func (s *seldom) add(now time.Time, n int64) (seen int64, log bool) {
	s.seen.Add(n)
	next, at := s.next.Load(), now.UnixNano()
	if at < next || !s.next.CompareAndSwap(next, at+int64(seldomEvery)) {
		return 0, false
	}
	return s.seen.Swap(0), true
}
