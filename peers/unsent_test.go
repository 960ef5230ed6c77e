package peers_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/peers"
)

// A replica that stops in order tells its callers so, and takes no call after that. What
// is called in that very moment was never sent: its successor settles it.
func TestSettle_A26_C135_WhatAStoppingPeerTakesNoMoreIsNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.start(2)
		stops := sync.OnceFunc(func() {
			w.mu.Lock()
			delete(w.hosts, b.address)
			w.mu.Unlock()
			b.server.GracefulStop()
		})
		a := w.start(1, func(c *peers.Config) {
			c.DialOptions = append(c.DialOptions, grpc.WithUnaryInterceptor(
				func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption) error {
					stops()
					return call(ctx, method, req, reply, conn, opts...)
				}))
		})
		know([]*replica{a, b}, a, b)
		a.hear(number{2, 1}, 7)
		time.Sleep(time.Second)
		know([]*replica{a}, a)
		time.Sleep(10 * time.Second)
		w.ledger.mustBe(t, number{2, 1}, 1, 7)
		if s := a.Stats(); s.Doubtful != 0 || sum(s.Inherited) != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// So it is at any moment: replicas that come, stop in order and go under load lose nothing.
func TestSettle_A26_C134_C135_ReplicasThatStopInOrderUnderLoadLoseNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a := w.overTCP(1)
	var heard atomic.Uint64
	for process := uint64(2); process < 6; process++ {
		b := w.overTCP(process)
		know([]*replica{a, b}, a, b)
		var streams sync.WaitGroup
		stop := make(chan struct{})
		first := heard.Load()
		streams.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				a.hear(number{process, heard.Add(1)}, 7)
				if a.Stats().Queued > 50 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		})
		for b.calls.Load() < 50 {
			time.Sleep(time.Millisecond)
		}
		b.server.GracefulStop()
		close(stop)
		streams.Wait()
		b.end()
		know([]*replica{a}, a)
		for a.Stats().Queued > 0 {
			time.Sleep(time.Millisecond)
		}
		for n := first + 1; n <= heard.Load(); n++ {
			eventuallySettled(t, w, a, number{process, n})
		}
	}
	if s := a.Stats(); s.Doubtful != 0 || s.Overflowed != 0 {
		t.Errorf("%+v", s)
	}
}

// eventuallySettled waits until n is settled, once.
func eventuallySettled(t *testing.T, w *world, a *replica, n number) {
	t.Helper()
	for range 10_000 {
		if got := w.ledger.of(n); len(got) > 0 {
			if len(got) > 1 {
				t.Errorf("%v was settled %+v", n, got)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("%v was never settled: %+v", n, a.Stats())
}

// A process that has just begun can read no reservation: what others bring it as the one
// that takes another's place waits until it can.
func TestSettleBatch_A26_C134_AProcessThatIsNotReadySettlesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var ready atomic.Bool
		a := w.start(1)
		b := w.start(2, func(c *peers.Config) { c.Ready = ready.Load })
		know([]*replica{a, b}, a, b)
		const gone = 0xfeed
		var forB []number
		for i := range uint64(50) {
			n := number{gone + i, 1}
			if a.hear(n, 7) == authz.SettledElsewhere {
				forB = append(forB, n)
			}
		}
		time.Sleep(10 * time.Second)
		for _, n := range forB {
			w.ledger.mustNotBe(t, n)
		}
		ready.Store(true)
		time.Sleep(10 * time.Second)
		for _, n := range forB {
			w.ledger.mustBe(t, n, 2, 7)
		}
		if s := a.Stats(); len(forB) == 0 || s.Doubtful != 0 || s.Queued != 0 {
			t.Errorf("%d for the other one: %+v", len(forB), s)
		}
	})
}

// One that dies before it was ready has settled nothing of what it was sent.
func TestSettleBatch_A26_C134_WhatAPeerThatWasNeverReadyWasSentGoesToTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.start(1)
		b := w.start(2, func(c *peers.Config) { c.Ready = func() bool { return false } })
		know([]*replica{a, b}, a, b)
		a.hear(number{2, 1}, 7)
		time.Sleep(time.Second)
		know([]*replica{a}, a)
		time.Sleep(10 * time.Second)
		w.ledger.mustBe(t, number{2, 1}, 1, 7)
		if s := a.Stats(); s.Doubtful != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// Where an address leads to several processes in turn, calls are answered well and badly in
// turn. The log is told of it now and then.
func TestRun_C135_AnAddressOfSeveralProcessesDoesNotFillTheLog(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.start(1), w.start(2), w.start(3)
		know([]*replica{a, b, c}, a, b, c)
		for i := range uint64(100) {
			at := b.address
			if i%2 == 0 {
				at = c.address
			}
			a.SetPeers(map[uint64]string{1: a.address, 2: at})
			a.hear(number{2, i}, 7)
			time.Sleep(3 * time.Second)
		}
		if n := w.log.count("was started again there"); n == 0 || n > 6 {
			t.Errorf("told %d times in five minutes", n)
		}
		if n, again := w.log.count("was started again there"), w.log.count("reached again"); again > n {
			t.Errorf("told %d times that it is back, after %d", again, n)
		}
	})
}
