//go:build linux || darwin

package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

const (
	// keptProcesses is how many processes before this one have their reservations kept.
	keptProcesses = 4

	reservedFolder = "reserved"
	reservedEnding = ".tokens"

	// A record is reservedMark, the length of a token, their checksum with it, and the token.
	// No token has bytes such as those of the mark.
	reservedMark = 0xfff0f1ff
	reservedHead = 12
	reservedStep = 64 // records begin at its multiples
)

// reservedLayout is that of files of reservations: 8 MiB, a ring behind the header.
func reservedLayout() layout { return layout{slots: 128, keyBytes: 1<<16 - slotBytes} }

// Reserved keeps the latest reservations of this process where they outlive it, and has
// those of the latest processes before. All methods are safe for concurrent use.
type Reserved struct {
	ring []byte // nil: there is no room
	at   atomic.Uint64
	left []string // files, the oldest first
	boot string
}

// OpenReserved makes room for the reservations of this process, in the directory of an open
// journal. Where the disk has none, what it returns keeps nothing, and full says why.
func (j *Journal) OpenReserved() (r *Reserved, full, err error) {
	dir := filepath.Join(j.dir, reservedFolder)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, nil, fmt.Errorf("make the directory of reservations: %w", err)
	}
	r = &Reserved{boot: j.boot}
	next, err := r.tidy(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("read the directory of reservations: %w", err)
	}
	c, err := newChunk(filepath.Join(dir, fmt.Sprintf("%08d%s", next, reservedEnding)), reservedLayout(), j.boot, j.allocate)
	switch {
	case lacksRoom(err):
		return r, fmt.Errorf("make room for reservations in %s: %w", dir, err), nil
	case err != nil:
		return nil, nil, fmt.Errorf("make room for reservations in %s: %w", dir, err)
	}
	r.ring = c.mem[headerBytes:]
	return r, nil, nil
}

// tidy finds what processes before this one have left, and removes what nobody reads any more. It
// returns the number of the next file.
func (r *Reserved) tidy(dir string) (next uint64, err error) {
	entries, err := os.ReadDir(dir) // in the order of their numbers
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		name, half := strings.CutSuffix(e.Name(), unfinished)
		digits, ok := strings.CutSuffix(name, reservedEnding)
		number, bad := strconv.ParseUint(digits, 10, 63)
		switch {
		case !ok || bad != nil || !e.Type().IsRegular():
			continue
		case half || !r.tells(path):
			_ = os.Remove(path)
		default:
			r.left = append(r.left, path)
		}
		next = max(next, number+1)
	}
	for len(r.left) > keptProcesses {
		_ = os.Remove(r.left[0])
		r.left = slices.Delete(r.left, 0, 1)
	}
	return next, nil
}

// tells reports whether a file has reservations that can be relied on. After the machine has gone
// down nobody knows which of them are settled.
func (r *Reserved) tells(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() //nolint:errcheck // it was only read
	b := make([]byte, headerBytes+reservedStep)
	n, _ := f.ReadAt(b, 0)
	l, boot, err := parseHeader(b[:n])
	if errors.Is(err, errVersion) || errors.Is(err, errForeign) {
		return true // of somebody else: it is left alone, and Left passes over it
	}
	return err == nil && n == len(b) && l == reservedLayout() && boot != "" && boot == r.boot &&
		binary.NativeEndian.Uint32(b[headerBytes:]) == reservedMark
}

// Keep keeps a token. It does no I/O and allocates nothing. The oldest tokens make room.
func (r *Reserved) Keep(token []byte) {
	size := uint64(reservedHead+len(token)+reservedStep-1) &^ (reservedStep - 1)
	whole := uint64(len(r.ring))
	if size > whole/2 {
		return
	}
	for {
		at := (r.at.Add(size) - size) % whole
		if at+size > whole {
			continue // the rest of the ring stays as it is
		}
		b := r.ring[at:]
		binary.NativeEndian.PutUint32(b, reservedMark)
		binary.NativeEndian.PutUint32(b[4:], uint32(len(token))) //nolint:gosec // at most half of the ring
		binary.NativeEndian.PutUint32(b[8:], reservedSum(token))
		copy(b[reservedHead:], token)
		return
	}
}

// Left returns the tokens that processes before this one have kept, as far as they can be
// read. It reads their files. A token ends with the call of yield.
func (r *Reserved) Left() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for _, path := range r.left {
			b, err := load(path)
			if err != nil || len(b) != reservedLayout().size() {
				continue
			}
			if l, boot, err := parseHeader(b); err != nil || l != reservedLayout() || boot != r.boot {
				continue
			}
			if !records(b[headerBytes:], yield) {
				return
			}
		}
	}
}

// records hands the whole tokens of a ring to yield. It returns false once that does.
func records(ring []byte, yield func([]byte) bool) bool {
	for at := 0; at+reservedStep <= len(ring); {
		b := ring[at:]
		size := int(binary.NativeEndian.Uint32(b[4:]))
		if binary.NativeEndian.Uint32(b) != reservedMark || size > len(b)-reservedHead {
			at += reservedStep
			continue
		}
		token := b[reservedHead : reservedHead+size]
		if binary.NativeEndian.Uint32(b[8:]) != reservedSum(token) {
			at += reservedStep
			continue
		}
		if !yield(token) {
			return false
		}
		at += (reservedHead + size + reservedStep - 1) &^ (reservedStep - 1)
	}
	return true
}

func reservedSum(token []byte) uint32 { return checksum(token) ^ uint32(len(token)) } //nolint:gosec // small
