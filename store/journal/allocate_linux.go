package journal

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// allocate makes f size bytes long, with room on disk for each of them.
func allocate(f *os.File, size int) error {
	for {
		err := unix.Fallocate(fd(f), 0, 0, int64(size))
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return zeros(f, size)
		}
		return err
	}
}
