package main

import (
	"bufio"
	"errors"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func put(revision int64) []*clientv3.Event {
	return []*clientv3.Event{{Kv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: revision}}}
}

// echo answers every line with itself and tells which lines it got.
func echo(t *testing.T) (address string, got <-chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	lines := make(chan string, 10)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				for in := bufio.NewReader(c); ; {
					line, err := in.ReadString('\n')
					if err != nil {
						return
					}
					lines <- line
					_, _ = c.Write([]byte(line))
				}
			}()
		}
	}()
	return l.Addr().String(), lines
}

// dial connects over a link and returns what sends a line and what reads one.
func dial(t *testing.T, l *link) (send func(string), read func(within time.Duration) (string, error)) {
	t.Helper()
	c, err := net.Dial("tcp", l.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	in := bufio.NewReader(c)
	return func(line string) { _, _ = c.Write([]byte(line)) }, func(within time.Duration) (string, error) {
		_ = c.SetReadDeadline(time.Now().Add(within))
		return in.ReadString('\n')
	}
}

const patience = 10 * time.Second

func startLink(t *testing.T) (*link, <-chan string) {
	t.Helper()
	address, got := echo(t)
	l, err := newLink(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l, got
}

func TestLink_LostReplyReachesNobody(t *testing.T) {
	t.Parallel()
	l, got := startLink(t)
	send, read := dial(t, l)
	send("one\n")
	if line, err := read(patience); line != "one\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	l.set(deaf, 0)
	send("two\n")
	if <-got != "one\n" || <-got != "two\n" {
		t.Error("the request did not arrive")
	}
	if line, err := read(50 * time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v; want silence", line, err)
	}
	l.set(whole, 0)
	if line, err := read(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v; want the connection to break: it has lost bytes", line, err)
	}
	send, read = dial(t, l)
	send("three\n")
	if line, err := read(patience); line != "three\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestLink_LateDelivery(t *testing.T) {
	t.Parallel()
	l, got := startLink(t)
	send, read := dial(t, l)
	l.set(silent, 0)
	send("late\n")
	if line, err := read(50 * time.Millisecond); err == nil || len(got) > 0 {
		t.Errorf("got %q over a silent link", line)
	}
	l.set(whole, 0)
	if line, err := read(patience); line != "late\n" {
		t.Errorf("got %q, %v", line, err)
	}
}

func TestLink_CutBreaksWhatThereIs(t *testing.T) {
	t.Parallel()
	l, _ := startLink(t)
	_, read := dial(t, l)
	l.set(cut, 0)
	if _, err := read(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a broken connection", err)
	}
	_, read = dial(t, l)
	if _, err := read(patience); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want no new connection", err)
	}
}

func TestLink_ResetBreaksWhatThereIsAndNoMore(t *testing.T) {
	t.Parallel()
	l, got := startLink(t)
	send, read := dial(t, l)
	send("first\n") // once it is through the link knows of the connection
	if line, err := read(patience); line != "first\n" || <-got != "first\n" {
		t.Fatalf("got %q, %v", line, err)
	}
	l.set(silent, 0)
	send("lost\n")
	l.reset()
	if _, err := read(patience); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %v, want an RST", err)
	}
	l.set(whole, 0)
	send, read = dial(t, l)
	send("new\n")
	if line, err := read(patience); line != "new\n" || <-got != "new\n" {
		t.Errorf("got %q, %v over a new connection", line, err)
	}
}
