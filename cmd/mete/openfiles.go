package main

import (
	"net"
	"sync"
	"syscall"
)

// mostConnections is the default of max-connections.
const mostConnections = 10_000

// openFiles is how many files and connections this process may have open, as far as known.
func openFiles() int {
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) != nil {
		return 1 << 20
	}
	return int(min(limit.Cur, 1<<20)) //nolint:gosec // bounded
}

// connections is how many gRPC connections may be open. Half of all files are for them at
// most: probes, etcd and the journal must go on when as many come as can.
func (m *mete) connections() int {
	most := m.cfg.MaxConnections
	half := max(1, openFiles()/2)
	if most <= half {
		return most
	}
	if m.cfg.given("max-connections") {
		m.log.Warn().Int("max_connections", most).Int("connections", half).
			Msg("the limit of open files (ulimit -n) is below twice max-connections; fewer gRPC connections are taken")
	}
	return half
}

// webConnections is how many connections the listener of the admin API, and that of metrics
// and probes, may have open.
func webConnections() int { return min(500, max(1, openFiles()/8)) }

// bounded returns a listener of l that closes connections at once beyond so many that are
// open.
func bounded(l net.Listener, most int) net.Listener {
	return &boundedListener{Listener: l, places: make(chan struct{}, most)}
}

type boundedListener struct {
	net.Listener
	places chan struct{}
}

// Accept implements [net.Listener].
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		select {
		case l.places <- struct{}{}:
			return &placedConn{Conn: conn, leave: sync.OnceFunc(func() { <-l.places })}, nil
		default:
			_ = conn.Close() // there is no place for it
		}
	}
}

type placedConn struct {
	net.Conn
	leave func()
}

// Close implements [net.Conn].
func (c *placedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
