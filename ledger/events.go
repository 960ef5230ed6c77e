package ledger

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// Config says how events are written.
type Config struct {
	// Path is the file that events are appended to. It is created with mode 0600 if
	// need be, in a directory that exists. One process at a time can have it.
	Path string
	// Source is the source of all events, a URI reference such as "mete/REPLICA".
	Source string
	// Process is part of every id. No two processes of one source may have the same.
	Process uint64
	// FlushEvery is how often what was used is written; 0: 1 s.
	FlushEvery time.Duration
	// MaxGroups bounds how many events can be waiting for their flush; 0: 50,000.
	// Past half of it new ones are merged: they tell no principal, route and
	// attribution, which callers could make up without end. What has no room even then
	// is dropped.
	MaxGroups int
	Now       func() time.Time // must be set
	Log       zerolog.Logger   // nowhere
}

const (
	shards     = 64
	minGroups  = 4
	defaultMax = 50_000
)

// Events sums use and writes it. Its methods are safe for concurrent use.
type Events struct {
	every time.Duration
	max   int64
	now   func() time.Time
	log   zerolog.Logger

	seed    maphash.Seed
	shards  [shards]shard
	groups  atomic.Int64
	crowded chan struct{} // has room for one word that there are many groups

	invalid, merged  atomic.Int64
	dropped          [outcomes]atomic.Int64
	written, failing atomic.Int64
	unwritten        atomic.Int64 // lines in lines
	trouble          atomic.Pointer[error]

	mu     sync.Mutex // of what follows, held while something is written
	file   *file
	scribe scribe
	lines  []byte // made, and not written yet
	taken  []taken
	round  int64
	closed bool
}

// NewEvents opens the file of c. Half a line at its end, which a crash may have left, is
// removed.
func NewEvents(c Config) (*Events, error) { return newEvents(c, system()) }

func newEvents(c Config, sys calls) (*Events, error) {
	if c.Path == "" || c.Source == "" || c.Now == nil {
		return nil, errors.New("open the file of usage events: it needs a path, a source and a clock")
	}
	if c.FlushEvery <= 0 {
		c.FlushEvery = time.Second
	}
	if c.MaxGroups <= 0 {
		c.MaxGroups = defaultMax
	}
	f, cutOff, err := openFile(c.Path, sys)
	if err != nil {
		return nil, fmt.Errorf("open the file of usage events: %w", err)
	}
	e := &Events{
		every: c.FlushEvery, max: int64(max(c.MaxGroups, minGroups)), now: c.Now, log: c.Log,
		seed: maphash.MakeSeed(), crowded: make(chan struct{}, 1),
		file: f, scribe: newScribe(c.Source, c.Process),
	}
	for i := range e.shards {
		e.shards[i].groups = make(map[uint64]*group)
	}
	e.tellTorn(cutOff)
	return e, nil
}

func (e *Events) tellTorn(bytes int64) {
	if bytes > 0 {
		e.log.Warn().Str("file", e.file.path).Int64("bytes", bytes).
			Msg("removed half a usage event, which a crash has left: what it told of is in no event")
	}
}

// Add adds a use to those of the next flush. It keeps neither u nor its texts, and waits
// for nothing but other calls of Add. Use that is negative or has no outcome is counted
// as invalid, use that comes after Close as dropped.
func (e *Events) Add(u *Use) {
	if u.Units == 0 {
		return
	}
	if u.Units < 0 || u.Outcome.Word() == "" {
		e.invalid.Add(1)
		return
	}
	at := u.At.UnixNano()
	k := keyOf(u, at)
	if e.add(&k, u.Units, at, e.roomForDetail) {
		return
	}
	k.merge()
	if e.add(&k, u.Units, at, e.room) {
		e.merged.Add(u.Units)
		return
	}
	e.dropped[u.Outcome].Add(u.Units)
}

func (e *Events) add(k *key, units, at int64, room func() bool) bool {
	hash := k.hash(e.seed)
	return e.shards[hash%shards].add(hash, k, units, at, room)
}

// roomForDetail takes room for a group of its own. It asks for an early flush, in good
// time.
func (e *Events) roomForDetail() bool {
	if e.groups.Load() >= e.many() {
		select {
		case e.crowded <- struct{}{}:
		default: // it has been asked for
		}
	}
	return e.take(e.detailed())
}

// room takes room for a merged group.
func (e *Events) room() bool { return e.take(e.max) }

func (e *Events) take(most int64) bool {
	if e.groups.Add(1) <= most {
		return true
	}
	e.groups.Add(-1)
	return false
}

// detailed is how many groups there can be before new ones are merged.
func (e *Events) detailed() int64 { return e.max / 2 }

// many is from how many groups on a flush does not wait for its time, and idle groups
// are not kept.
func (e *Events) many() int64 { return e.max / 4 }

// Stats are counts since the Events were opened.
type Stats struct {
	Events  int64             // that were written
	Dropped map[Outcome]int64 // units for which there was no room
	Merged  int64             // units whose event tells no principal, route and attribution, for lack of room
	Invalid int64             // uses that were negative, or without an outcome
	// Failures are writes and syncs that failed. What they were to write is kept.
	Failures int64
	Groups   int   // in memory now
	Pending  int   // events to be written
	Err      error // of the last write or sync; nil if it succeeded
}

// Stats returns the counts. It does not wait for the disk.
func (e *Events) Stats() Stats {
	s := Stats{
		Events: e.written.Load(), Merged: e.merged.Load(), Invalid: e.invalid.Load(),
		Dropped:  make(map[Outcome]int64),
		Failures: e.failing.Load(), Groups: int(e.groups.Load()), Pending: e.pending(),
	}
	for o := Counted; int(o) < outcomes; o++ {
		s.Dropped[o] = e.dropped[o].Load()
	}
	if err := e.trouble.Load(); err != nil {
		s.Err = *err
	}
	return s
}

func (e *Events) pending() int {
	n := int(e.unwritten.Load())
	for i := range e.shards {
		n += e.shards[i].waiting()
	}
	return n
}
