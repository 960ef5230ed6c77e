//go:build linux || darwin

package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// PageNumbers is how many numbers a page has.
	PageNumbers = 1 << 15
	// maxPages bounds the pages that are remembered: 8 KiB of disk each.
	maxPages = 4096
	// pagesFor is how long a page is remembered once its process is found gone: until
	// nobody settles a reservation of it any more.
	pagesFor = 24 * time.Hour

	bitmapBytes = PageNumbers / 8
	pageFolder  = "settled"
	pageEnding  = ".pages"
)

// pageLayout is that of files of pages. Their slots have two bitmaps in the place of a key.
func pageLayout() layout { return layout{slots: 32, keyBytes: 2 * bitmapBytes} }

// A pageHead is what a slot's numbers are where it holds a page.
type pageHead struct {
	state   atomic.Uint64 // taken, and the checksum of the name; 0: free
	began   atomic.Int64
	process atomic.Uint64
	index   atomic.Uint64
	own     atomic.Uint64
	taken   atomic.Int64
	ended   atomic.Int64 // when the process was found gone; 0: it is not known to be
	left    atomic.Int64 // see Page.Left; 0 in files of versions that did not know it
	_       [slotBytes - 64]byte
}

// A Page has a bit for each of the numbers that a process gives its reservations, from
// Index times PageNumbers on. Its memory is the file's: what is stored there outlives
// the process.
type Page struct {
	Process, Index uint64
	Began          time.Time
	Own            bool // the process has taken the numbers itself

	Taken             *atomic.Int64
	Left              *atomic.Int64 // 0 in a page that is opened; what else it says is for its user
	Settled, Reported []uint64

	pages *Pages
	at    slot
}

// Pages remember which reservations are settled, in a folder of a journal's directory. All
// methods are safe for concurrent use.
type Pages struct {
	dir      string
	boot     string
	allocate func(f *os.File, size int) error
	ahead    sync.WaitGroup // of goroutines that make a file

	mu      sync.Mutex
	free    []slot
	open    int
	next    uint64 // file
	growing bool
	full    *time.Timer // set while no room is looked for
	without int64
	trouble error
	closed  bool
}

// PageStats are counts of Pages.
type PageStats struct {
	Open        int   // pages that are remembered now
	WithoutRoom int64 // times that there was no room for one
	Err         error // why there was none when it was last looked for; nil: there was
}

// OpenPages returns the pages in dir, the directory of an open journal, as earlier
// processes have left them at a wall clock time: those go on where they are. What cannot
// be read, or is too old, is forgotten; problems say of each file what that means.
func (j *Journal) OpenPages(now time.Time) (p *Pages, left []*Page, problems []error, err error) {
	p = &Pages{dir: filepath.Join(j.dir, pageFolder), boot: j.boot, allocate: j.allocate}
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return nil, nil, nil, fmt.Errorf("make the directory of settled reservations: %w", err)
	}
	entries, err := os.ReadDir(p.dir)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read the directory of settled reservations: %w", err)
	}
	for _, e := range slices.Backward(entries) { // the newest first: there may be too many
		number, ok, half := pageNumberOf(e.Name())
		path := filepath.Join(p.dir, e.Name())
		switch {
		case !ok || !e.Type().IsRegular():
			continue
		case half:
			_ = os.Remove(path) // nothing was ever kept in it
			continue
		}
		p.next = max(p.next, number+1)
		found, err := p.adopt(path, now)
		if err != nil {
			problems = append(problems, fmt.Errorf("settled reservations in %s: %w; a repeat of their log entries settles them again", path, err))
		}
		left = append(left, found...)
	}
	if len(p.free) == 0 {
		p.grow() // so that a directory that cannot be written to is found at start
	}
	if t := p.trouble; t != nil && !lacksRoom(t) {
		return nil, nil, nil, t
	}
	return p, left, problems, nil
}

// Page returns room for a page of which no bit is set; nil: there is none now. It does no
// I/O.
func (p *Pages) Page(process, index uint64, began time.Time, own bool) *Page {
	at, ok := p.take()
	if !ok {
		return nil
	}
	one := p.page(at, process, index, began, own)
	clear(one.Settled)
	clear(one.Reported)
	one.Taken.Store(0)
	one.Left.Store(0)
	h := at.chunk.head(at.index)
	h.began.Store(began.UnixNano())
	h.process.Store(process)
	h.index.Store(index)
	h.own.Store(ownWord(own))
	h.ended.Store(0)
	h.state.Store(taken | uint64(h.sum())) // last: before it the slot is free
	return one
}

// Close forgets the page: nothing of it is used any more.
func (p *Page) Close() {
	p.at.chunk.head(p.at.index).state.Store(0)
	p.pages.mu.Lock()
	defer p.pages.mu.Unlock()
	p.pages.open--
	p.pages.free = append(p.pages.free, p.at)
}

// Close ends the making of room. What the pages remember stays, for the next process, and
// they may be used on.
func (p *Pages) Close() {
	p.mu.Lock()
	p.closed = true
	if p.full != nil {
		p.full.Stop()
	}
	p.mu.Unlock()
	p.ahead.Wait()
}

// Stats returns the counts.
func (p *Pages) Stats() PageStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PageStats{Open: p.open, WithoutRoom: p.without, Err: p.trouble}
}

// page returns the page in a slot.
func (p *Pages) page(at slot, process, index uint64, began time.Time, own bool) *Page {
	words := unsafe.Slice((*uint64)(unsafe.Pointer(&at.chunk.key(at.index)[0])), 2*bitmapBytes/8)
	half := len(words) / 2
	h := at.chunk.head(at.index)
	return &Page{
		Process: process, Index: index, Began: began, Own: own, Taken: &h.taken, Left: &h.left,
		Settled: words[:half:half], Reported: words[half:], pages: p, at: at,
	}
}

func (c *chunk) head(slot int) *pageHead {
	return (*pageHead)(unsafe.Pointer(&c.mem[c.numbersOf(slot)]))
}

// sum is a checksum of what names the page, so that half a name is none.
func (h *pageHead) sum() uint32 {
	var b [32]byte
	order := binary.NativeEndian
	order.PutUint64(b[:], uint64(h.began.Load())) //nolint:gosec // bits
	order.PutUint64(b[8:], h.process.Load())
	order.PutUint64(b[16:], h.index.Load())
	order.PutUint64(b[24:], h.own.Load())
	return checksum(b[:])
}

func ownWord(own bool) uint64 {
	if own {
		return 1
	}
	return 0
}

// take finds a free slot, and has room made before there is none.
func (p *Pages) take() (slot, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.free) - 1
	if last < pageLayout().slots/4 && !p.growing && !p.closed && p.full == nil && p.open+len(p.free) < maxPages {
		p.growing = true
		p.ahead.Go(p.growAhead)
	}
	if last < 0 {
		p.without++
		return slot{}, false
	}
	at := p.free[last]
	p.free = p.free[:last]
	p.open++
	return at, true
}

func (p *Pages) growAhead() {
	p.grow()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.growing = false
}

// grow makes one more file. Where there is no room it is not looked for again for a while.
func (p *Pages) grow() {
	p.mu.Lock()
	number := p.next
	p.next++
	p.mu.Unlock()
	c, err := newChunk(filepath.Join(p.dir, fmt.Sprintf("%08d%s", number, pageEnding)), pageLayout(), p.boot, p.allocate)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.trouble = fmt.Errorf("make room for settled reservations in %s: %w", p.dir, err)
		if !p.closed {
			p.full = time.AfterFunc(retryAfter, p.lookAgain)
		}
		return
	}
	p.trouble = nil
	for i := range c.slots { // the first is on top
		p.free = append(p.free, slot{chunk: c, index: c.slots - 1 - i})
	}
}

func (p *Pages) lookAgain() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.full = nil
}

// adopt takes over the file at path, with the pages in it.
func (p *Pages) adopt(path string, now time.Time) (left []*Page, err error) {
	c, err := openChunk(path, pageLayout())
	if err != nil {
		return nil, err
	}
	var free []slot
	for i := range c.slots {
		at := slot{chunk: c, index: c.slots - 1 - i}
		h := c.head(at.index)
		if h.ended.Load() == 0 {
			h.ended.Store(now.UnixNano())
		}
		ended := time.Unix(0, h.ended.Load())
		if h.state.Load() != taken|uint64(h.sum()) || now.Sub(ended) > pagesFor || p.open == maxPages {
			h.state.Store(0)
			free = append(free, at)
			continue
		}
		left = append(left, p.page(at, h.process.Load(), h.index.Load(), time.Unix(0, h.began.Load()), h.own.Load() == 1))
		p.open++
	}
	if len(left) == 0 { // or a burst's files would stay for ever
		return nil, errors.Join(os.Remove(path), unix.Munmap(c.mem))
	}
	p.free = append(p.free, free...)
	return left, nil
}
