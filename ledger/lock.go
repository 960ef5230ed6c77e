//go:build linux || darwin

package ledger

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// lock keeps other processes from opening f, until it is closed.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) //nolint:gosec // a file descriptor fits into an int
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return errors.New("in use by another process; give each replica a file of its own")
	case err != nil:
		return fmt.Errorf("lock it against use by another process: %w", err)
	}
	return nil
}
