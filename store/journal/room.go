//go:build linux || darwin

package journal

import (
	"fmt"
	"os"
	"time"
)

// take finds room for a key of size bytes.
func (j *Journal) take(size int) (slot, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.shelfFor(size)
	if s == nil || j.closed {
		return slot{}, false
	}
	if len(s.free) == 0 {
		j.mu.Unlock()
		j.grow(s, 1)
		j.mu.Lock()
	}
	last := len(s.free) - 1
	if last < 0 || j.closed {
		return slot{}, false
	}
	at := s.free[last]
	s.free = s.free[:last]
	j.open++
	if low := s.slots / 4; last < low && !s.ahead && s.full == nil {
		s.ahead = true
		j.ahead.Go(func() { j.growAhead(s, low) })
	}
	return at, true
}

// shelfFor returns the shelf of the smallest slots with room for size bytes; nil if
// there are none.
func (j *Journal) shelfFor(size int) *shelf {
	for i := range j.shelves {
		if s := &j.shelves[i]; size <= s.keyBytes {
			return s
		}
	}
	return nil
}

// free takes back the room of a cell. What was used last is used first, so that few
// pages are in use.
func (j *Journal) free(at slot) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.open--
	for i := range j.shelves {
		if s := &j.shelves[i]; s.layout == at.chunk.layout {
			s.free = append(s.free, at)
		}
	}
}

// growAhead makes room before it is needed: the opener of a cell holds locks that
// requests wait for.
func (j *Journal) growAhead(s *shelf, low int) {
	j.grow(s, low)
	j.mu.Lock()
	defer j.mu.Unlock()
	s.ahead = false
}

// grow makes a chunk if fewer than low slots are free. Where there is no room it is
// not looked for again for a while: nobody is to wait for a full disk at each cell.
func (j *Journal) grow(s *shelf, low int) {
	j.growing.Lock()
	defer j.growing.Unlock()
	j.mu.Lock()
	enough := len(s.free) >= low || s.full != nil || j.closed
	number := j.next
	j.mu.Unlock()
	if enough {
		return
	}
	c, err := newChunk(pathOf(j.dir, number), s.layout, j.boot, j.allocate)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next = number + 1
	if err != nil {
		j.trouble = fmt.Errorf("make room for %d cells in %s: %w", s.slots, j.dir, err)
		s.full = time.AfterFunc(retryAfter, func() { j.lookAgain(s) })
		return
	}
	if j.closed { // meanwhile
		_, _ = os.Remove(c.path), c.unmap()
		return
	}
	j.trouble = nil
	j.chunks = append(j.chunks, c)
	for i := range c.slots { // the first is on top
		s.free = append(s.free, slot{chunk: c, index: c.slots - 1 - i})
	}
}

func (j *Journal) lookAgain(s *shelf) {
	j.mu.Lock()
	defer j.mu.Unlock()
	s.full = nil
}
