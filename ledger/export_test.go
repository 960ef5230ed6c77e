package ledger

import "os"

// Faults are what tests do to a file instead of the system.
type Faults struct {
	Write    func(*os.File, []byte) (int, error)
	Truncate func(*os.File, int64) error
	Sync     func(*os.File) error
}

// NewFaulty is NewEvents on a system that fails.
func NewFaulty(c Config, f Faults) (*Events, error) {
	sys := system()
	if f.Write != nil {
		sys.write = f.Write
	}
	if f.Truncate != nil {
		sys.truncate = f.Truncate
	}
	if f.Sync != nil {
		sys.sync = f.Sync
	}
	return newEvents(c, sys)
}

// Flush writes what was added, without a sync.
func (e *Events) Flush() error { return e.flush(false) }
