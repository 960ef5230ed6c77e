package e2e_test

import (
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"
)

// C179: a key that is deleted is refused as soon as the deletion is heard, and one that
// expires at its second, by each replica's own clock. A replica that is cut off from etcd
// hears of no deletion until it is back.
func TestKey_C179_TakenBack(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, unchanged)
	wire := startWire(t, first.mete.Etcd)
	second := newWorld(t, []string{"--etcd-endpoints", "http://" + wire.address()}, unchanged)
	a := newApp(t, first, "hourly: {kind: rate, amount: 1000000, window: 1h}")
	b := *a // as callers of the second replica see it
	b.world = second
	b.await(t)
	late, expires := expiring(t, a, &b)
	wire.cut()
	if _, err := a.etcd.Delete(t.Context(), "/mete/v1/credentials/"+hash(a.key)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the deleted key is refused", func() bool { return a.send(t, a.key).status == http.StatusUnauthorized })
	for range 50 {
		if r := a.send(t, a.key); r.status != http.StatusUnauthorized {
			t.Fatalf("the deleted key is back: %d %s", r.status, r.body)
		}
	}
	if r := b.send(t, a.key); r.status != http.StatusOK {
		t.Errorf("a replica that is cut off: got %d %s; it has heard of no deletion", r.status, r.body)
	}
	for _, on := range []*app{a, &b} {
		untilExpired(t, on, late, expires)
	}
	wire.mend()
	mended := time.Now()
	eventually(t, "the replica that was cut off refuses the deleted key", func() bool { return b.send(t, a.key).status == http.StatusUnauthorized })
	t.Logf("heard %v after etcd was back", time.Since(mended))
}

// expiring puts a key of a's tenant in force at both that expires a few seconds later: as
// many as the machine needs to have it known in time.
func expiring(t *testing.T, a, b *app) (key string, expires time.Time) {
	t.Helper()
	for wait := 4 * time.Second; ; wait *= 2 {
		expires = time.Now().Add(wait).Truncate(time.Second)
		key = "mk_" + a.name + "_" + wait.String()
		a.put(t, map[string]string{
			"credentials/" + hash(key): document("Credential", hash(key), "  tenant: "+a.tenant+"\n  expires: "+expires.UTC().Format(time.RFC3339)),
		})
		known := func() bool { return a.send(t, key).status == http.StatusOK && b.send(t, key).status == http.StatusOK }
		for time.Until(expires) > time.Second {
			if known() {
				return key, expires
			}
			time.Sleep(10 * time.Millisecond)
		}
		if wait > time.Minute {
			t.Fatal("the key that expires is not known")
		}
	}
}

// untilExpired sends requests with a key until one is refused, and checks that this is
// when the key expires. Envoy, mete and the test have one clock.
func untilExpired(t *testing.T, on *app, key string, expires time.Time) {
	t.Helper()
	for {
		sent := time.Now()
		status := on.send(t, key).status
		switch answered := time.Now(); {
		case status == http.StatusUnauthorized && answered.Before(expires):
			t.Fatalf("refused %v before it expires", expires.Sub(answered))
		case status == http.StatusUnauthorized:
			return
		case status != http.StatusOK, !sent.Before(expires):
			t.Fatalf("got %d, sent %v after it has expired", status, sent.Sub(expires))
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A wire passes connections on, until it is cut.
type wire struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	isCut bool
	conns map[net.Conn]bool
}

func startWire(t *testing.T, target string) *wire {
	t.Helper()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{listener: l, target: target, conns: map[net.Conn]bool{}}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { w.pass(conn) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		w.cut()
		running.Wait()
	})
	return w
}

func (w *wire) address() string { return w.listener.Addr().String() }

func (w *wire) pass(from net.Conn) {
	defer func() { _ = from.Close() }()
	to, err := net.Dial("tcp", w.target)
	if err != nil {
		return
	}
	defer func() { _ = to.Close() }()
	if !w.keep(from, to) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(to, from); _ = to.Close() })
	both.Go(func() { _, _ = io.Copy(from, to); _ = from.Close() })
	both.Wait()
}

// keep notes connections that a cut ends, and reports whether there is none.
func (w *wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = true
	}
	return !w.isCut
}

// cut ends all connections, and those to come.
func (w *wire) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = true
	for c := range w.conns {
		_ = c.Close()
	}
	clear(w.conns)
}

// mend lets connections through that are made from now on.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.isCut = false
}
