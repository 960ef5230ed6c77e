//go:build linux || darwin

package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A chunk is one file of this process, mapped for as long as a cell may store to it.
type chunk struct {
	layout

	path string
	mem  []byte
}

// newChunk makes the file at path. It gets that name only once its header is written,
// so that nobody finds half a file.
func newChunk(path string, l layout, boot string, allocate func(*os.File, int) error) (*chunk, error) {
	making := path + unfinished
	f, err := os.OpenFile(making, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the mapping stays
	c := &chunk{layout: l, path: path}
	if err := c.fill(f, boot, allocate); err != nil {
		_ = os.Remove(making)
		return nil, err
	}
	if err := os.Rename(making, path); err != nil {
		_ = os.Remove(making)
		return nil, errors.Join(err, c.unmap())
	}
	return c, nil
}

func (c *chunk) fill(f *os.File, boot string, allocate func(*os.File, int) error) (err error) {
	if err := allocate(f, c.size()); err != nil {
		return fmt.Errorf("allocate %d bytes: %w", c.size(), err)
	}
	c.mem, err = unix.Mmap(fd(f), 0, c.size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %d bytes: %w", c.size(), err)
	}
	for at := 0; at < len(c.mem); at += headerBytes { // no request is to pay for the first touch
		c.mem[at] = 0
	}
	putHeader(c.mem, c.layout, boot)
	return nil
}

func (c *chunk) unmap() error {
	mem := c.mem
	c.mem = nil
	return unix.Munmap(mem)
}

func (c *chunk) numbers(slot int) *numbers {
	return (*numbers)(unsafe.Pointer(&c.mem[c.numbersOf(slot)]))
}

func (c *chunk) key(slot int) []byte {
	at := c.keyOf(slot)
	return c.mem[at : at+c.keyBytes]
}

// zeros makes room by writing it, where the file system cannot just allocate it.
func zeros(f *os.File, size int) error {
	b := make([]byte, 64<<10)
	for at := 0; at < size; at += len(b) {
		if _, err := f.WriteAt(b[:min(len(b), size-at)], int64(at)); err != nil {
			return err
		}
	}
	return nil
}

func fd(f *os.File) int {
	return int(f.Fd()) //nolint:gosec // a file descriptor fits into an int
}

// Files are called by a number and an ending; one that is not finished has another
// ending on top.
const (
	ending     = ".cells"
	unfinished = ".making"
)

func pathOf(dir string, number uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%08d%s", number, ending))
}
