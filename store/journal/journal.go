//go:build linux || darwin

package journal

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meteproject/mete/quota"
)

// retryAfter is how long no room is looked for after there was none.
const retryAfter = 10 * time.Second

// A Journal is this process's use of a directory. Its methods are safe for concurrent
// use; those of a cell belong to the purse that opened it.
type Journal struct {
	dir  string
	lock *os.File // of the directory, held while it is open
	boot string

	allocate    func(f *os.File, size int) error
	withoutRoom atomic.Int64
	growing     sync.Mutex     // held, before mu, while a chunk is made
	ahead       sync.WaitGroup // of goroutines that make one

	mu      sync.Mutex
	shelves [2]shelf // one for each layout
	chunks  []*chunk
	open    int // cells
	next    uint64
	old     []string // files of earlier processes, until they are settled
	trouble error
	closed  bool
}

// A shelf is all room for keys of one size.
type shelf struct {
	layout

	free  []slot
	ahead bool        // more is being made
	full  *time.Timer // set while no room is looked for
}

// A slot is room for one cell.
type slot struct {
	chunk *chunk
	index int
}

var _ quota.Journal = (*Journal)(nil)

// Open takes dir, which is made if need be, and returns its journal and what earlier
// processes left there. It fails if another process has dir. A disk without room is
// no failure: cells then remember nothing until there is some, see Stats.
func Open(dir string) (*Journal, Left, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, Left{}, fmt.Errorf("make the journal directory: %w", err)
	}
	lock, err := lockDir(dir)
	if err != nil {
		return nil, Left{}, err
	}
	j := &Journal{dir: dir, lock: lock, boot: boot(), allocate: allocate}
	for i, l := range layouts() {
		j.shelves[i].layout = l
	}
	left, err := j.readOld()
	if err == nil {
		err = j.begin()
	}
	if err != nil {
		_ = lock.Close()
		return nil, Left{}, fmt.Errorf("open the journal in %s: %w", dir, err)
	}
	return j, left, nil
}

// begin makes the first chunk, so that a directory that cannot be written to is found
// at start.
func (j *Journal) begin() error {
	j.grow(&j.shelves[0], 1)
	if !lacksRoom(j.trouble) {
		return j.trouble
	}
	return nil
}

// lockDir takes dir for this process. The lock ends with it.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("open the journal directory: %w", err)
	}
	if err := unix.Flock(fd(f), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("the journal in %s is in use by another process: stop it, or choose another data-dir or journal", dir)
		}
		return nil, fmt.Errorf("lock the journal directory %s: %w", dir, err)
	}
	return f, nil
}

// Open implements [quota.Journal]. Should the process be killed before the cell's first
// use, nothing comes on top of what the store has.
func (j *Journal) Open(key quota.Key, app, holder string) quota.Cell {
	n := namesOf(key, app, holder)
	at, ok := j.take(n.size())
	if !ok {
		j.withoutRoom.Add(1)
		return void{}
	}
	c := &cell{journal: j, at: at, numbers: at.chunk.numbers(at.index)}
	sum := n.put(at.chunk.key(at.index))
	c.numbers.wall.Store(0)
	c.numbers.used.Store(quota.Unbased)
	c.numbers.reported.Store(0)
	c.numbers.state.Store(taken | uint64(sum))
	return c
}

// Settled removes what earlier processes left: all that Open returned is reported, or
// lost for good. What Open could not make sense of stays. It may be repeated.
func (j *Journal) Settled() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	var failed error
	var still []string
	for _, path := range j.old {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			still, failed = append(still, path), errors.Join(failed, err)
		}
	}
	j.old = still
	if failed != nil {
		return fmt.Errorf("remove settled journal files: %w", failed)
	}
	return nil
}

// Close gives the directory back. If every cell is closed nothing of this process is
// left in it; otherwise what they remember stays for the next one. No cell may be
// opened or used any more: what one did would not be remembered.
func (j *Journal) Close() error {
	j.mu.Lock()
	if j.closed {
		j.mu.Unlock()
		return nil
	}
	j.closed = true
	j.mu.Unlock()
	j.ahead.Wait()

	j.mu.Lock()
	defer j.mu.Unlock()
	var failed error
	for i := range j.shelves {
		if s := &j.shelves[i]; s.full != nil {
			s.full.Stop()
		}
	}
	if j.open == 0 {
		for _, c := range j.chunks {
			if err := os.Remove(c.path); !errors.Is(err, os.ErrNotExist) {
				failed = errors.Join(failed, err)
			}
			failed = errors.Join(failed, c.unmap())
		}
	} // else it stays mapped: a cell that is used all the same must not crash
	// A process that is just being forked may have the lock open, too.
	failed = errors.Join(failed, unix.Flock(fd(j.lock), unix.LOCK_UN), j.lock.Close())
	if failed != nil {
		return fmt.Errorf("close the journal in %s: %w", j.dir, failed)
	}
	return nil
}

// Stats are a journal's counts.
type Stats struct {
	Cells       int   // open now
	Chunks      int   // files of this process
	WithoutRoom int64 // cells that remember nothing, since the journal was opened
	Err         error // why there was no room when it was last looked for; nil: there was
}

// Stats returns the counts.
func (j *Journal) Stats() Stats {
	j.mu.Lock()
	defer j.mu.Unlock()
	return Stats{Cells: j.open, Chunks: len(j.chunks), WithoutRoom: j.withoutRoom.Load(), Err: j.trouble}
}
