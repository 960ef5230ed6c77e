//go:build linux || darwin

package journal

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// openChunk maps a file of an earlier process, of which this one goes on to use the slots.
// What is damaged is removed: nothing in it can be believed.
func openChunk(path string, want layout) (*chunk, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // the mapping stays
	head := make([]byte, headerBytes)
	n, _ := f.ReadAt(head, 0)
	l, _, err := parseHeader(head[:n])
	switch {
	case errors.Is(err, errForeign), errors.Is(err, errVersion):
		return nil, err
	case err != nil:
		return nil, errors.Join(err, os.Remove(path))
	case l != want:
		return nil, fmt.Errorf("is %w and is left alone", errVersion)
	}
	if info, err := f.Stat(); err != nil || info.Size() != int64(l.size()) {
		return nil, errors.Join(errors.New("is not whole and is removed"), os.Remove(path))
	}
	mem, err := unix.Mmap(fd(f), 0, l.size(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", l.size(), err)
	}
	return &chunk{layout: l, path: path, mem: mem}, nil
}

// lacksRoom reports whether err says that the disk is full.
func lacksRoom(err error) bool { return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) }

// pageNumberOf returns the number of a file of pages; half: it was never finished.
func pageNumberOf(name string) (number uint64, ok, half bool) {
	name, half = strings.CutSuffix(name, unfinished)
	digits, ok := strings.CutSuffix(name, pageEnding)
	if !ok {
		return 0, false, half
	}
	number, err := strconv.ParseUint(digits, 10, 63)
	return number, err == nil, half
}
