package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unixScheme begins the address of a unix socket, and its absolute path follows: gRPC
// clients and curl know it so.
const unixScheme = "unix://"

// maxSocketPath is the most bytes that the system takes as the path of a socket: 107 on Linux.
const maxSocketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// socketMode lets the owner and the group connect. No setting: the group is that of a folder
// with the setgid bit, which Kubernetes sets where a pod has an fsGroup.
const socketMode = 0o660

// etcdSocketMode lets the owner alone connect: the embedded etcd has no password.
const etcdSocketMode = 0o600

// socketPath returns the path of a unix socket's address; false: addr is none.
func socketPath(addr string) (string, bool) { return strings.CutPrefix(addr, unixScheme) }

// isSocket reports whether addr is one of a unix socket, well written or not.
func isSocket(addr string) bool { return strings.HasPrefix(addr, "unix:") }

// isLocal reports whether only this machine reaches a listener at addr.
func isLocal(addr string) bool { return isSocket(addr) || isLoopback(hostOf(addr)) }

// addressOf returns the address at which l is reached, as a setting would name it.
func addressOf(l net.Listener) string {
	if l.Addr().Network() == "unix" {
		return unixScheme + l.Addr().String()
	}
	return l.Addr().String()
}

func checkSocket(c *complaints, name, addr string) {
	path, ok := socketPath(addr)
	if !ok || !filepath.IsAbs(path) {
		c.add("%s %q must be %s and an absolute path, such as unix:///run/mete/mete.sock", name, addr, unixScheme)
		return
	}
	c.check(path == filepath.Clean(path), "%s %s is to be written as %s%s", name, addr, unixScheme, filepath.Clean(path))
	c.check(len(path) <= maxSocketPath, "%s: the path of a unix socket has at most %d bytes, and %s has %d", name, maxSocketPath, path, len(path))
	c.check(!strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r == 0x7f || strings.ContainsRune("%?#", r) }),
		"%s %q: the path of the socket must have no control characters and none of %%, ? and #, for clients take it as a URL", name, addr)
}

// A socket is a unix listener. Close removes its file, but never one that somebody else has
// put there since.
type socket struct {
	*net.UnixListener

	path   string
	made   os.FileInfo
	remove sync.Once
}

// Close stops listening. It is safe to repeat.
func (s *socket) Close() error {
	s.remove.Do(func() {
		// While the socket is open, no other file has its number.
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
			_ = os.Remove(s.path)
		}
	})
	return s.UnixListener.Close()
}

// listenSocket listens at path, in the place of a socket whose process is gone. Nobody
// who may not connect later, by the mode, can do so at any moment.
func listenSocket(ctx context.Context, path string, mode os.FileMode) (net.Listener, error) {
	unlock, err := lockFolder(ctx, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := clearSocket(ctx, path); err != nil {
		return nil, err
	}
	l, err := (&net.ListenConfig{Control: closeToOthers(mode)}).Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	s := &socket{UnixListener: l.(*net.UnixListener), path: path} // what a unix address gives
	s.SetUnlinkOnClose(false)
	if s.made, err = os.Lstat(path); err == nil {
		err = os.Chmod(path, mode) // the umask has taken from it
	}
	if err != nil {
		_ = os.Remove(path)
		_ = s.UnixListener.Close()
		return nil, fmt.Errorf("set the mode of the socket: %w", err)
	}
	return s, nil
}

// closeToOthers sets the mode that the file will be made with. Systems that cannot do this
// set it a moment later.
func closeToOthers(mode os.FileMode) func(_, _ string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.Fchmod(int(fd), uint32(mode.Perm())) }) //nolint:gosec // a file descriptor fits into an int
	}
}

// clearSocket removes a socket at path on which nobody listens. That there is nothing is
// no error.
func clearSocket(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look whether the socket is free: %w", err)
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is there and is not a socket: it is left alone; move it away or choose another path", path)
	}
	conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "unix", path)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			return fmt.Errorf("another process listens on %s: stop it or choose another path", path)
		}
		return fmt.Errorf("%s is in use, or nobody can tell: %w; stop who uses it or choose another path", path, err)
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("remove the socket of a process that is gone: %w", err)
	}
	return nil
}

// lockPatience is how long other starts may take, each of which takes a moment.
const lockPatience = 10 * time.Second

// lockTick is how often a folder is tried that another start has locked, for a moment.
const lockTick = 10 * time.Millisecond

// lockFolder keeps other starts from looking at the sockets in dir: two that find the same
// one without a listener would each remove it, and the later one that of the earlier.
func lockFolder(ctx context.Context, dir string) (unlock func(), err error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("look into the folder of the socket, which must be there and readable: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, lockPatience)
	defer cancel()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) //nolint:gosec // a file descriptor fits into an int
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = f.Close()
			return nil, fmt.Errorf("lock the folder of the socket, %s: %w", dir, err)
		}
		if !pause(ctx, lockTick) {
			_ = f.Close()
			return nil, fmt.Errorf("lock the folder of the socket, %s, which another process has locked: %w; stop that, or choose another folder", dir, ctx.Err())
		}
	}
}

// bySocket reports whether a request came over a unix socket, which no other machine and no
// browser can do.
func bySocket(r *http.Request) bool {
	addr, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && addr.Network() == "unix"
}
