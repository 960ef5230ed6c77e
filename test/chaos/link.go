package main

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"
)

// A linkState is what becomes of bytes on a link.
type linkState int

const (
	whole  linkState = iota
	cut              // connections break, and there are no new ones
	silent           // nothing arrives; what was sent arrives late, once the link is whole
	deaf             // requests arrive, answers are lost
)

// A link is the way from one replica to one member, or from Envoy to a replica: a TCP
// proxy that can be in the way.
type link struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	state linkState             // guarded by mu, as all below
	slow  time.Duration         // for what passes, each way
	moved chan struct{}         // closed when state changes
	conns map[net.Conn]struct{} // all, both sides
	ended bool
}

// newLink returns a link to target. The caller must close it.
func newLink(target string) (*link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // does not wait
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, target: target, moved: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	go l.accept()
	return l, nil
}

func (l *link) address() string { return l.listener.Addr().String() }

// set changes the link. Connections that have lost bytes, or are to break, do.
func (l *link) set(state linkState, slow time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if state == cut || l.state == deaf {
		l.breakAll()
	}
	l.state, l.slow = state, slow
	close(l.moved)
	l.moved = make(chan struct{})
}

// reset breaks all connections by RST. What is on its way is lost; new connections are
// welcome, as far as the state allows.
func (l *link) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	}
	l.breakAll()
}

// close breaks everything for good.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return
	}
	l.ended = true
	_ = l.listener.Close()
	l.breakAll()
	close(l.moved)
}

// breakAll closes all connections. The caller holds mu.
func (l *link) breakAll() {
	for c := range l.conns {
		_ = c.Close()
	}
	clear(l.conns)
}

func (l *link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		go l.serve(near)
	}
}

func (l *link) serve(near net.Conn) {
	far, err := net.Dial("tcp", l.target) //nolint:noctx // the loopback answers at once
	if err != nil {
		_ = near.Close()
		return
	}
	if !l.keep(near, far) {
		return
	}
	go l.copy(far, near, false)
	l.copy(near, far, true)
}

// keep takes in a new pair of connections, or closes it if there may be none.
func (l *link) keep(pair ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range pair {
		if l.ended || l.state == cut {
			_ = c.Close()
			continue
		}
		l.conns[c] = struct{}{}
	}
	return !l.ended && l.state != cut
}

// copy passes bytes on until either side ends, then breaks both.
func (l *link) copy(to, from net.Conn, answers bool) {
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, to)
		delete(l.conns, from)
		_, _ = to.Close(), from.Close()
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && l.pass(answers) {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil && (errors.Is(err, io.EOF) || n == 0) {
			return
		}
	}
}

// pass waits until bytes may go on. It reports whether they arrive.
func (l *link) pass(answers bool) bool {
	for {
		l.mu.Lock()
		state, slow, moved, ended := l.state, l.slow, l.moved, l.ended
		l.mu.Unlock()
		switch {
		case ended || state == deaf && answers:
			return false
		case state != silent:
			time.Sleep(slow)
			return true
		}
		<-moved
	}
}
