package quota

// A Journal remembers what purses have used when this process is killed, so that
// the next one can report it (design 6.4). Methods are safe for concurrent use.
type Journal interface {
	// Open returns a cell for what a purse of an account uses under one holder. It
	// is never nil: a journal that has no room returns one that remembers nothing.
	Open(key Key, app, holder string) Cell
}

// A Cell remembers one purse under one holder. Its methods do no system call and
// do not allocate; they are called under the purse's lock.
type Cell interface {
	// Used remembers the cumulative use, as of a wall clock time in nanoseconds
	// since 1970.
	Used(units, wall int64)
	// Reported remembers what the store is known to have of it.
	Reported(units int64)
	// Close gives the cell back: nothing is left to report. No method is called
	// after it.
	Close()
}

// An Orphan is what a journal remembers of a purse whose process was killed.
type Orphan struct {
	Key      Key
	App      string
	Holder   string
	Used     int64 // cumulative, under Holder
	Reported int64 // of it, at least
	Wall     int64 // when Used was last changed, in nanoseconds since 1970
}
