package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

const (
	// syncEvery is how often what was written is made to survive the machine.
	syncEvery = time.Second
	// chunk is how many bytes are written at a time, about.
	chunk = 64 << 10
	// idleRounds is for how many flushes a group without units is kept, so that adding
	// to it makes no new one.
	idleRounds = 64
)

// Run writes what was added, once every FlushEvery and a last time when ctx has ended.
// What could not be written is tried again with the next flush, or by Close, which says
// what is lost.
func (e *Events) Run(ctx context.Context) error {
	tick := time.NewTicker(e.every)
	defer tick.Stop()
	synced := int((syncEvery + e.every - 1) / e.every)
	early := e.crowded
	for ticks := 1; ; {
		select {
		case <-ctx.Done():
			_ = e.flush(true)
			return ctx.Err()
		case <-tick.C:
			e.calm()
			_ = e.flush(ticks%synced == 0) // it is counted, logged and tried again
			ticks++
			early = e.crowded
		case <-early:
			_ = e.flush(false)
			early = nil // once between two ticks, so that nobody can keep the disk busy
		}
	}
}

// calm forgets that an early flush was asked for.
func (e *Events) calm() {
	select {
	case <-e.crowded:
	default:
	}
}

// Reopen goes on with the file that has the name of the old one now, or makes it: a
// program that rotates files renames the old one and then has this called. If there is
// no new file, events are still written to the old one.
func (e *Events) Reopen() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	cutOff, err := e.file.reopen()
	e.tellTorn(cutOff)
	if err != nil {
		return fmt.Errorf("open the file of usage events again: %w", err)
	}
	return nil
}

// Close writes what was added and closes the file. Nothing can be added afterwards. The
// error tells how many events are lost. A second call does nothing.
func (e *Events) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	e.closed = true
	for i := range e.shards {
		e.shards[i].close()
	}
	err := e.writeAll()
	if n := e.pending(); n > 0 {
		e.log.Error().Err(err).Int("events", n).Msg("usage events could not be written and are lost")
		err = fmt.Errorf("%d usage events could not be written and are lost: %w", n, err)
	}
	if err := errors.Join(err, e.file.close()); err != nil {
		return fmt.Errorf("close the file of usage events: %w", err)
	}
	return nil
}

// flush writes all groups that have units, and syncs if it is time to.
func (e *Events) flush(sync bool) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil
	}
	err := e.writeAll()
	if sync {
		err = errors.Join(err, e.file.flushed())
	}
	e.sweep()
	e.tell(err)
	return err
}

// writeAll writes what an earlier flush could not, under its old ids, then all groups.
// What fails stays: made lines as they are, and the other units in their groups.
func (e *Events) writeAll() error {
	e.round++
	e.scribe.at(e.now())
	for i := range e.shards {
		if i == 0 || len(e.lines) >= chunk {
			if err := e.write(); err != nil {
				return err
			}
		}
		e.taken = e.shards[i].take(e.taken[:0], e.round)
		for t := range e.taken {
			e.lines = e.scribe.line(e.lines, &e.taken[t])
		}
		e.unwritten.Add(int64(len(e.taken)))
	}
	return e.write()
}

// write writes the lines that are made.
func (e *Events) write() error {
	if len(e.lines) == 0 {
		return nil
	}
	n, err := e.file.write(e.lines)
	lines := int64(bytes.Count(e.lines[:n], []byte{'\n'}))
	e.written.Add(lines)
	e.unwritten.Add(-lines)
	e.lines = append(e.lines[:0], e.lines[n:]...)
	if err != nil {
		return fmt.Errorf("write usage events to %s: %w", e.file.path, err)
	}
	return nil
}

// sweep forgets groups that have been idle for long, in one shard; if there are many
// groups, those of all shards that are idle.
func (e *Events) sweep() {
	n := e.groups.Load()
	if n < e.many() {
		e.groups.Add(-e.shards[e.round%shards].sweep(e.round - idleRounds))
		return
	}
	until := e.round - 1 // in which what is in use had units
	if n >= e.detailed() {
		until = e.round
	}
	for i := range e.shards {
		e.groups.Add(-e.shards[i].sweep(until))
	}
}

// tell counts a failure, and logs the first one and the end of it.
func (e *Events) tell(err error) {
	if err == nil {
		if e.trouble.Swap(nil) != nil {
			e.log.Info().Msg("usage events are written again")
		}
		return
	}
	e.failing.Add(1)
	if e.trouble.Swap(&err) == nil {
		e.log.Error().Err(err).Msg("usage events cannot be written: they are kept and tried again; see to the disk")
	}
}
