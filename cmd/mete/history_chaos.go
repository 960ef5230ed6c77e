//go:build chaos

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/meteproject/mete/quota"
)

// A record is one line of a history: an operation begins, or it ends. One that
// began and never ended is of unknown outcome, as is one that ended with an error
// other than those by which a store says that it did not apply it.
type record struct {
	Call   string           `json:"call"` // the process and a number: what ends is what began
	At     int64            `json:"at"`   // nanoseconds of the machine's monotonic clock
	Op     *quota.Operation `json:"op,omitempty"`
	Result *quota.Result    `json:"result,omitempty"`
	Failed string           `json:"failed,omitempty"` // not_applied or unknown
	Error  string           `json:"error,omitempty"`  // for people
}

// recorded makes s write a history into the file METE_HISTORY, if that is set. It
// panics if it cannot: a run without its history proves nothing.
func recorded(s quota.Store) quota.Store {
	path := os.Getenv("METE_HISTORY")
	if path == "" {
		return s
	}
	// Every line is one write at the file's end, so that a kill loses none and
	// several processes can share the file.
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic("mete: open METE_HISTORY: " + err.Error())
	}
	return &recordedStore{store: s, file: f}
}

// recordedStore writes down every operation before and after it is applied.
type recordedStore struct {
	store quota.Store
	file  *os.File
	calls atomic.Int64
}

// Apply implements [quota.Store]. What cannot be written down ends the process: a
// history with a gap proves nothing.
func (s *recordedStore) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	call := fmt.Sprintf("%d-%d", os.Getpid(), s.calls.Add(1))
	s.write(record{Call: call, Op: &op})
	res, err := s.store.Apply(ctx, op)
	end := record{Call: call}
	switch {
	case err == nil:
		end.Result = &res
	case errors.Is(err, quota.ErrStale), errors.Is(err, quota.ErrGone), errors.Is(err, quota.ErrNotApplied):
		end.Failed, end.Error = "not_applied", err.Error()
	default:
		end.Failed, end.Error = "unknown", err.Error()
	}
	s.write(end)
	return res, err
}

func (s *recordedStore) write(r record) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("mete: read the monotonic clock: " + err.Error())
	}
	r.At = now.Nano()
	line, err := json.Marshal(r)
	if err == nil {
		_, err = s.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic("mete: write history: " + err.Error())
	}
}
