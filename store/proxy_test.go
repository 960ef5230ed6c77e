package store_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A traffic is what a proxy does with what passes through it.
type traffic int

const (
	flows    traffic = iota
	hangs            // nothing passes, and nobody is told: a member that is stopped, or cut off
	ends             // connections end at once
	swallows         // requests pass, answers do not
	lags             // answers are late by proxy.late
)

// A proxy stands in front of a member.
type proxy struct {
	listener net.Listener
	target   string
	late     time.Duration
	running  sync.WaitGroup

	mu      sync.Mutex
	now     *sync.Cond // traffic or over has changed
	traffic traffic
	over    bool
	conns   map[net.Conn]bool
	dials   int
}

func startProxy(t *testing.T, target string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.now = sync.NewCond(&p.mu)
	p.running.Go(p.accept)
	t.Cleanup(p.stop)
	return p
}

func (p *proxy) endpoint() string { return p.listener.Addr().String() }

func (p *proxy) stop() {
	_ = p.listener.Close()
	p.mu.Lock()
	p.over = true
	p.cut()
	p.mu.Unlock()
	p.running.Wait()
}

// set changes what happens to the traffic, on established connections too.
func (p *proxy) set(f traffic) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f == ends || p.traffic == swallows { // what was swallowed is missing for good
		p.cut()
	}
	p.traffic = f
	p.now.Broadcast()
}

// cut ends all connections. The caller holds mu.
func (p *proxy) cut() {
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
	p.now.Broadcast()
}

// dialled returns how many connections were begun.
func (p *proxy) dialled() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}

func (p *proxy) accept() {
	for {
		near, err := p.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = near.Close()
			continue
		}
		p.mu.Lock()
		p.dials++
		if p.traffic == ends || p.over {
			_, _ = near.Close(), far.Close()
		} else {
			p.conns[near], p.conns[far] = true, true
			p.running.Go(func() { p.copy(far, near, false) })
			p.running.Go(func() { p.copy(near, far, true) })
		}
		p.mu.Unlock()
	}
}

// copy passes on what comes until one side ends, then ends both.
func (p *proxy) copy(to, from net.Conn, answers bool) {
	defer func() { _, _ = to.Close(), from.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if pass, open := p.judge(from, answers); !open {
			return
		} else if pass && n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// judge reports whether what was read may pass, once it may.
func (p *proxy) judge(from net.Conn, answers bool) (pass, open bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.traffic == hangs && p.conns[from] {
		p.now.Wait()
	}
	if p.traffic == lags && answers {
		p.mu.Unlock()
		time.Sleep(p.late)
		p.mu.Lock()
	}
	return p.traffic != swallows || !answers, p.conns[from]
}

// A proxy that hangs keeps its connections, and goes on with them later.
func TestProxy_DoesWhatTestsRelyOn(t *testing.T) {
	t.Parallel()
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	defer running.Wait()
	defer func() { _ = echo.Close() }()
	running.Go(func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			running.Go(func() { defer func() { _ = c.Close() }(); _, _ = io.Copy(c, c) })
		}
	})
	p := startProxy(t, echo.Addr().String())
	defer p.stop()
	c, err := net.Dial("tcp", p.endpoint())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	answer := func(within time.Duration) error {
		_ = c.SetReadDeadline(time.Now().Add(within))
		_, err := io.ReadFull(c, make([]byte, 1))
		return err
	}
	_, _ = c.Write([]byte("a"))
	if err := answer(5 * time.Second); err != nil {
		t.Error("at first:", err)
	}
	p.set(hangs)
	_, _ = c.Write([]byte("b"))
	if err := answer(50 * time.Millisecond); err == nil {
		t.Error("hangs: an answer")
	}
	p.set(flows)
	if err := answer(5 * time.Second); err != nil {
		t.Error("flows again:", err)
	}
	p.set(swallows)
	_, _ = c.Write([]byte("c"))
	if err := answer(50 * time.Millisecond); err == nil {
		t.Error("swallows: an answer")
	}
	p.set(ends)
	if err := answer(5 * time.Second); !errors.Is(err, io.EOF) {
		t.Error("ends:", err)
	}
}
