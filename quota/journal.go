package quota

// A Journal remembers what purses have used when this process is killed, so that
// the next one can report it (design 6.4). Methods are safe for concurrent use.
type Journal interface {
	// Open returns a cell for what a purse of an account uses under one holder. It
	// is never nil: a journal that has no room returns one that remembers nothing.
	// Until its first Used a cell remembers Unbased: no use that the store may lack.
	Open(key Key, app, holder string) Cell
}

// A Cell remembers one purse under one holder. Its methods do no system call and
// do not allocate; they are called under the purse's lock.
type Cell interface {
	// Used remembers the cumulative use, as of a wall clock time in nanoseconds
	// since 1970. It is below 0 after refunds of what a forerunner had reported, and
	// above [Unbased]/2 while the purse is unbased.
	Used(units, wall int64)
	// Reported remembers what the store is known to have of it.
	Reported(units int64)
	// Close gives the cell back: nothing is left to report, or what is left goes on in
	// another cell. No method is called after it.
	Close()
}

// Unbased is added to the use of a purse that may have had a forerunner under the same
// holder and has not asked yet what the store knows of it: nothing of such use was ever
// reported, and it comes on top of what the store has. One number tells both, so that
// no moment of a kill lies between them.
const Unbased = 1 << 61

// An Orphan is what a journal remembers of a purse whose process was killed.
type Orphan struct {
	Key      Key
	App      string
	Holder   string
	Used     int64 // cumulative, under Holder; above Unbased/2: on top of what the store has
	Reported int64 // of it, at least
	Wall     int64 // when Used was last changed, in nanoseconds since 1970
	// Stale tells that the machine itself went down after that, or may have: what is
	// remembered may be older than what was reported.
	Stale bool
	// Keep replaces Used and Reported in the journal, so that a process that recovers after
	// this process was killed in its turn finds them. Nil: nobody will.
	Keep func(used, reported int64) error

	// Notes of Recover.
	asked bool
	had   int64 // what the store knew when it was asked first
	lost  int64
}
