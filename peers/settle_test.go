package peers_test

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/peers"
)

func TestSettle_A26_C134_OverRealConnectionsThatLoseAnswersEachEntryIsSettledOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var all []*replica
	for process := range uint64(3) {
		all = append(all, w.overTCP(process+1))
	}
	know(all, all...)
	const entries = 3 * 1000
	var streams sync.WaitGroup
	for i, hears := range all {
		streams.Go(func() {
			order := rand.New(rand.NewPCG(uint64(i), 7)) //nolint:gosec // a test's
			for i, n := range order.Perm(entries) {
				hears.hear(number{uint64(n%3) + 1, uint64(n / 3)}, 7) //nolint:gosec // small
				if i%1000 == 0 {
					hears.lose.Add(1)
				}
			}
		})
	}
	streams.Wait()
	for _, a := range all {
		a.waitUntilSent()
	}
	for _, a := range all {
		a.end()
		s := a.Stats()
		if s.Settled[authz.SettledElsewhere] != entries/3*2 || sum(s.Forwarded) != entries/3*2 || s.Doubtful != 0 {
			t.Errorf("process %d: not all was answered: %+v", a.process, s)
		}
	}
	for i := range uint64(entries) {
		n := number{i%3 + 1, i / 3}
		w.ledger.mustBe(t, n, n.process, 7)
	}
}

// waitUntilSent waits until nothing is queued at a.
func (a *replica) waitUntilSent() {
	for a.Stats().Queued > 0 {
		time.Sleep(time.Millisecond)
	}
}

// overTCP starts a process that listens on loopback.
func (w *world) overTCP(process uint64) *replica {
	w.t.Helper()
	l, err := new(net.ListenConfig).Listen(w.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	a := w.make(process, func(c *peers.Config) { c.DialOptions = nil })
	a.address = l.Addr().String()
	a.serve(w.t, l)
	w.run(a)
	return a
}

func TestSettleUnits_A37_PassesNumbersOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		now := time.Now()
		for _, one := range []struct {
			n        number
			unit     string
			units    int64
			giveBack bool
			want     authz.Settled
			used     int64
		}{
			{number{1, 1}, "tokens", 25, false, authz.SettledMore, 25},
			{number{1, 2}, "tokens", 3, true, authz.SettledLess, 7},
			{number{2, 1}, "tokens", 25, false, authz.SettledElsewhere, 25},
			{number{2, 2}, "tokens", 3, true, authz.SettledElsewhere, 7},
			{number{2, 3}, "bytes", 3, true, authz.SettledMalformed, -1},
		} {
			if got := a.SettleUnits(now, one.n.token(), one.unit, one.units, one.giveBack); got != one.want {
				t.Errorf("%v: %s, want %s", one.n, got.Word(), one.want.Word())
			}
			synctest.Wait()
			if one.used < 0 {
				w.ledger.mustNotBe(t, one.n)
			} else {
				w.ledger.mustBe(t, one.n, one.n.process, one.used)
			}
		}
		if got := a.SettleUnits(now, "forged", "tokens", 1, false); got != authz.SettledForged {
			t.Errorf("a forged token: %s", got.Word())
		}
		if got := a.Settle(now, "forged", &authz.Ending{}); got != authz.SettledForged {
			t.Errorf("a forged token: %s", got.Word())
		}
		if s := a.Stats(); s.Settled[authz.SettledForged] != 2 || s.Settled[authz.SettledMalformed] != 1 || b.calls.Load() != 2 {
			t.Errorf("%+v", s)
		}
	})
}

// What is passed on is a copy: the token and the ending end with the call.
// All that was measured arrives at the process that decided.
func TestSettle_A26_A48_C16_PassesAllOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		for i, e := range []authz.Ending{{}, {Status: 9, Duration: 2 * time.Hour}, {Status: 9, Unfinished: true}} {
			n := number{2, uint64(i) + 1}
			if got := a.Settle(time.Now(), n.token(), &e); got != authz.SettledElsewhere {
				t.Fatalf("settled %q", got.Word())
			}
			synctest.Wait()
			want := fmt.Sprint([]settled{{2, int64(e.Status), authz.Measured{Free: e.Status == 0, Long: e.Duration > 0, Replayed: e.Unfinished}}})
			if got := fmt.Sprint(w.ledger.of(n)); got != want {
				t.Errorf("ending %+v arrives as %s, want %s", e, got, want)
			}
		}
	})
}

func TestSettle_C134_KeepsNothingOfItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		b.cut(w)
		know([]*replica{a, b}, a, b)
		buf := []byte(number{2, 1}.token())
		a.Settle(time.Now(), unsafeString(buf), &authz.Ending{Status: 7, Duration: 2 * time.Hour})
		a.hear(number{1, 1}, 9) // reuses the memory
		copy(buf, strings.Repeat("x", len(buf)))
		b.listen(w)
		time.Sleep(10 * time.Second)
		w.ledger.mustBe(t, number{2, 1}, 2, 7)
	})
}

func TestSettleBatch_C134_APanicTakesNoOtherEntryAlong(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		b.desk.panics = 1
		b.cut(w)
		know([]*replica{a, b}, a, b)
		a.hear(number{2, 1}, 7)
		a.hear(number{2, 2}, 7)
		b.listen(w)
		time.Sleep(10 * time.Second)
		w.ledger.mustNotBe(t, number{2, 1})
		w.ledger.mustBe(t, number{2, 2}, 2, 7)
		if s := a.Stats(); s.Forwarded[0] != 1 || s.Forwarded[authz.SettledLess] != 1 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
		if w.log.count("settlement panicked") != 1 || w.log.count("sealed") != 0 {
			t.Error("the panic is not logged once, or a token is")
		}
	})
}

func TestSetPeers_C134_APeerMayMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		a.hear(number{2, 1}, 7)
		synctest.Wait()
		b.lose.Store(1 << 40)
		a.hear(number{2, 2}, 7)
		synctest.Wait()
		b.cut(w)
		b.lose.Store(0)
		b.address = "elsewhere"
		b.listen(w)
		know([]*replica{a, b}, a, b)
		time.Sleep(10 * time.Second)
		if s := a.Stats(); sum(s.Forwarded) != 2 || s.Queued != 0 || s.Doubtful != 0 {
			t.Errorf("%+v", s)
		}
		w.ledger.mustBe(t, number{2, 2}, 2, 7)
	})
}

func TestSettled_C134_IsNumberedAlikeOnTheWire(t *testing.T) {
	t.Parallel()
	for s := authz.SettledAsReserved; s <= authz.SettledMalformed; s++ {
		want := "SETTLED_" + strings.ToUpper(s.Word())
		if got := metev1.Settled(s).String(); got != want { //nolint:gosec // small
			t.Errorf("%d is %s on the wire, want %s", s, got, want)
		}
	}
	if n := len(metev1.Settled_name) - 1; n != int(authz.SettledMalformed) {
		t.Errorf("the wire has %d results", n)
	}
}

// The places of processes that are gone are part of what replicas of all versions must
// agree on.
func TestSetPeers_C134_TheHeirIsTheSameInAllVersions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var all []*replica
		for process := range uint64(8) {
			all = append(all, w.start(process*0x1111111111111111+1))
		}
		know(all, all...)
		var heirs []string
		for i := range uint64(8) {
			n := number{0xfeed0000 + i, 1}
			all[0].hear(n, 7)
			synctest.Wait()
			heirs = append(heirs, fmt.Sprintf("%x", w.ledger.of(n)[0].by))
		}
		const want = "6666666666666667 3333333333333334 1 5555555555555556 1111111111111112 4444444444444445 2222222222222223 1111111111111112"
		if got := strings.Join(heirs, " "); got != want {
			t.Errorf("heirs are %s, want %s", got, want)
		}
	})
}

func BenchmarkSettle(b *testing.B) {
	for _, one := range []struct {
		name    string
		process uint64
	}{{"here", 1}, {"elsewhere", 2}} {
		b.Run(one.name, func(b *testing.B) {
			r := peers.New(peers.Config{Decider: &still{process: 1}, Process: 1, Now: time.Now, MaxQueued: 1 << 30, MaxQueuedBytes: 1 << 40})
			r.SetPeers(map[uint64]string{2: "127.0.0.1:1"})
			token := strings.Repeat("x", 300)
			if one.process == 2 {
				token = "2" + token[1:]
			}
			e := &authz.Ending{Status: 7}
			now := time.Now()
			b.ReportAllocs()
			for b.Loop() {
				r.Settle(now, token, e)
			}
		})
	}
}

func TestSettle_A26_AllocatesNothingForWhatWasDecidedHere(t *testing.T) {
	r := peers.New(peers.Config{Decider: &still{process: 1}, Process: 1, Now: time.Now})
	r.SetPeers(map[uint64]string{2: "127.0.0.1:1", 3: "127.0.0.1:1"})
	e := &authz.Ending{Status: 7}
	now := time.Now()
	if n := testing.AllocsPerRun(1000, func() { r.Settle(now, "1", e) }); n >= 1 {
		t.Errorf("%v allocations for each settlement", n)
	}
}

// still is a Decider that does next to nothing.
type still struct {
	desk

	process uint64
}

func (s *still) Open(token string, r *authz.Reservation) authz.Settled {
	r.Reset()
	r.Replica = 1
	if token[0] == '2' {
		r.Replica = 2
	}
	r.Charges = append(r.Charges, authz.Charged{Unit: "tokens", Units: 10})
	return 0
}

func (s *still) Measure(_ *authz.Reservation, e *authz.Ending, m *authz.Measured) {
	m.Used = append(m.Used[:0], int64(e.Status))
}
func (s *still) Here(r *authz.Reservation) bool { return r.Replica == s.process }

func (s *still) Settle(time.Time, *authz.Reservation, *authz.Measured) authz.Settled {
	return authz.SettledLess
}

func unsafeString(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
