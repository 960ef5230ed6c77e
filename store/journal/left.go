//go:build linux || darwin

package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/meteproject/mete/quota"
)

// Left is what earlier processes left in a journal's directory.
type Left struct {
	Orphans []quota.Orphan
	// Damaged slots cannot be read: what they had not reported is lost.
	Damaged int
	// Problems are files that cannot be read, or not whole, each with what can be
	// done about it. They are for people: nothing else depends on them.
	Problems []error
}

// What can be wrong with a file.
var (
	errForeign = errors.New("is not a journal of mete and is left alone: move it elsewhere")
	errHeader  = errors.New("is damaged at its beginning: what it remembered is lost")
	errVersion = errors.New("of another version of mete")
)

// readOld reads the files that are there and finds a number for the next one.
func (j *Journal) readOld() (Left, error) {
	var left Left
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return left, err
	}
	for _, e := range entries {
		path := filepath.Join(j.dir, e.Name())
		name, half := strings.CutSuffix(e.Name(), unfinished)
		number, ok := numberOf(name)
		switch {
		case !ok || !e.Type().IsRegular():
			continue
		case half:
			_ = os.Remove(path) // nothing was ever kept in it
			continue
		}
		j.next = max(j.next, number+1)
		ours, empty := left.add(path, j.boot)
		if empty && os.Remove(path) == nil {
			continue // or a mete that is killed again and again, without etcd, fills the disk
		}
		if ours {
			j.old = append(j.old, path)
		}
	}
	return left, nil
}

// numberOf returns the number that pathOf put into a file's name.
func numberOf(name string) (uint64, bool) {
	digits, ok := strings.CutSuffix(name, ending)
	if !ok || len(digits) < 8 {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	return n, err == nil
}

// add reads a file. It reports whether the file is to be removed once it is settled, and
// whether it certainly remembers nothing.
func (l *Left) add(path, boot string) (ours, empty bool) {
	b, err := load(path)
	if err != nil {
		l.Problems = append(l.Problems, fmt.Errorf("read the journal file: %w; what it remembers is not reported", err))
		return false, false
	}
	orphans, damaged, err := parse(b, boot)
	for i := range orphans {
		l.Orphans = append(l.Orphans, orphans[i].in(path))
	}
	l.Damaged += damaged
	if err != nil {
		l.Problems = append(l.Problems, fmt.Errorf("journal file %s %w", path, err))
	}
	ours = !errors.Is(err, errForeign) && !errors.Is(err, errVersion)
	return ours, err == nil && damaged == 0 && len(orphans) == 0
}

// load reads as much of a file as its header says it has.
func load(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // it was only read
	b := make([]byte, headerBytes)
	n, err := io.ReadFull(f, b)
	if b = b[:n]; errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return b, nil
	}
	if err != nil {
		return nil, err
	}
	l, _, ok := header(b)
	if !ok {
		return b, nil
	}
	rest, err := io.ReadAll(io.LimitReader(f, int64(l.size()-headerBytes)))
	return append(b, rest...), err
}

// A found is an orphan, and where its numbers are in the file.
type found struct {
	quota.Orphan

	at int64
}

// in returns the orphan, which can be kept in the file at path.
func (o found) in(path string) quota.Orphan {
	o.Keep = func(used, reported int64) error {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("keep in the journal: %w", err)
		}
		var b [16]byte
		binary.NativeEndian.PutUint64(b[:], uint64(used))       //nolint:gosec // bits
		binary.NativeEndian.PutUint64(b[8:], uint64(reported))  //nolint:gosec // bits
		if _, err := f.WriteAt(b[:], o.at+usedAt); err != nil { // one write: a kill does not part it
			return errors.Join(fmt.Errorf("keep in the journal: %w", err), f.Close())
		}
		return f.Close()
	}
	return o.Orphan
}
