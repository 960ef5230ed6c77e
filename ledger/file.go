package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxTorn is how long what a crash has left of a line can be; lines are shorter.
const maxTorn = 1 << 20

// calls are what is asked of the system, which tests have fail.
type calls struct {
	write    func(*os.File, []byte) (int, error)
	truncate func(*os.File, int64) error
	sync     func(*os.File) error
}

func system() calls {
	return calls{write: (*os.File).Write, truncate: (*os.File).Truncate, sync: (*os.File).Sync}
}

// A file is appended whole lines. It is not safe for concurrent use.
type file struct {
	calls

	path  string
	f     *os.File
	torn  bool  // there may be half a line after end
	end   int64 // of the whole lines, where torn
	dirty bool  // not all is synced
}

// openFile opens or creates the file at path, and removes half a line at its end. It
// returns how long that was.
func openFile(path string, c calls) (*file, int64, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, 0, err
	}
	cutOff, err := adopt(f, c)
	if err != nil {
		return nil, 0, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &file{calls: c, path: path, f: f}, cutOff, nil
}

// adopt makes sure that f is ours alone and ends with a whole line.
func adopt(f *os.File, c calls) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	if !info.Mode().IsRegular() {
		return 0, errors.New("not a regular file; usage events cannot be repaired in anything else")
	}
	if err := lock(f); err != nil {
		return 0, err
	}
	if info.Size() == 0 {
		syncDir(filepath.Dir(f.Name()), c)
	}
	torn, err := tornAt(f, info.Size())
	if err != nil || torn == 0 {
		return 0, err
	}
	return torn, c.truncate(f, info.Size()-torn)
}

// tornAt returns how many bytes at the end of f are not a whole line. It is an error if
// they are none that this package has written: they must not be removed.
func tornAt(f *os.File, size int64) (int64, error) {
	end := make([]byte, min(size, maxTorn))
	if _, err := f.ReadAt(end, size-int64(len(end))); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	torn := end[bytes.LastIndexByte(end, '\n')+1:]
	// A machine that lost power may leave zeros in place of what was not synced.
	said := string(bytes.TrimRight(torn, "\x00"))
	if len(torn) == maxTorn || !strings.HasPrefix(said, head) && !strings.HasPrefix(head, said) {
		return 0, errors.New("ends with something that is not a usage event; " +
			"name another file, or move this one away")
	}
	return int64(len(torn)), nil
}

// syncDir has the name of a new file survive the machine. File systems that cannot do
// that on request do it by themselves.
func syncDir(path string, c calls) {
	dir, err := os.Open(path)
	if err != nil {
		return
	}
	_ = c.sync(dir)
	_ = dir.Close()
}

// write appends lines. If it fails, the lines in the first n bytes are in the file, and
// the others are not, or half of one of them is and will be removed before anything
// else is written.
func (f *file) write(lines []byte) (n int, err error) {
	if err := f.mend(); err != nil {
		return 0, fmt.Errorf("remove half a line from %s: %w", f.path, err)
	}
	info, err := f.f.Stat()
	if err != nil {
		return 0, err
	}
	n, err = f.calls.write(f.f, lines)
	f.dirty = true
	if err == nil {
		return n, nil
	}
	n = bytes.LastIndexByte(lines[:n], '\n') + 1
	f.torn, f.end = true, info.Size()+int64(n)
	_ = f.mend() // else the next write does it
	return n, err
}

// mend removes what may be there of lines that were not written whole.
func (f *file) mend() error {
	if !f.torn {
		return nil
	}
	info, err := f.f.Stat()
	if err != nil {
		return err
	}
	if info.Size() > f.end {
		if err := f.truncate(f.f, f.end); err != nil {
			return err
		}
	}
	f.torn = false
	return nil
}

// flushed has all that was written survive the machine.
func (f *file) flushed() error {
	if !f.dirty {
		return nil
	}
	if err := f.sync(f.f); err != nil {
		return fmt.Errorf("sync %s: %w", f.path, err)
	}
	f.dirty = false
	return nil
}

// reopen goes on with the file that has the name now. If that cannot be opened, f goes
// on with the one it has; it may also fail in closing that one.
func (f *file) reopen() (cutOff int64, err error) {
	if same, err := f.same(); same || err != nil {
		return 0, err
	}
	fresh, cutOff, err := openFile(f.path, f.calls)
	if err != nil {
		return 0, err
	}
	old := *f
	*f = *fresh
	return cutOff, old.close()
}

// same reports whether f is still the file that has its name.
func (f *file) same() (bool, error) {
	named, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	mine, err := f.f.Stat()
	return err == nil && os.SameFile(named, mine), err
}

func (f *file) close() error {
	return errors.Join(f.mend(), f.flushed(), f.f.Close())
}
