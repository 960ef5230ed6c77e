package peers_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/peers"
)

func TestSettle_A26_A27_A37_A40_C134_EntriesHeardAnywhereAreSettledOnceByTheDecider(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := []*replica{w.start(1), w.start(2), w.start(3)}
		know(all, all...)
		used := map[uint64]int64{1: 0, 2: 7, 3: 25} // of 10: free, less, more
		for _, decider := range all {
			for i := range uint64(700) { // more than a batch
				for _, hears := range all {
					n := number{decider.process, i}
					got := hears.hear(n, used[decider.process])
					if here := hears == decider; here == (got == authz.SettledElsewhere) {
						t.Fatalf("%v heard by %d: %s", n, hears.process, got.Word())
					}
				}
			}
		}
		synctest.Wait()
		for _, decider := range all {
			for i := range uint64(700) {
				w.ledger.mustBe(t, number{decider.process, i}, decider.process, used[decider.process])
			}
			s := decider.Stats()
			if s.Settled[authz.SettledElsewhere] != 1400 || sum(s.Forwarded) != 1400 || sum(s.Received) != 1400 || s.Queued+s.QueuedBytes != 0 {
				t.Errorf("process %d: %+v", decider.process, s)
			}
			if repeats := s.Settled[authz.SettledBefore] + s.Received[authz.SettledBefore]; repeats != 1400 {
				t.Errorf("process %d: %d repeats, want 1400", decider.process, repeats)
			}
		}
	})
}

func TestSettle_C134_AnswersThatAreLostAreAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		b.lose.Store(3)
		for i := range uint64(10) {
			a.hear(number{2, i}, 7)
		}
		time.Sleep(time.Minute)
		for i := range uint64(10) {
			w.ledger.mustBe(t, number{2, i}, 2, 7)
		}
		s := a.Stats()
		if s.Retries != 3 || s.Forwarded[authz.SettledBefore] == 0 || s.Queued != 0 || s.Doubtful != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestSetPeers_C134_WhatWasSentWithoutAnswerGoesNowhereElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		b.lose.Store(1 << 40)
		a.hear(number{2, 1}, 7)
		synctest.Wait() // sent, and its answer lost
		a.hear(number{2, 2}, 8)
		know([]*replica{a, b}, a)
		synctest.Wait()
		w.ledger.mustBe(t, number{2, 1}, 2, 7) // it had been settled: once more would be twice
		w.ledger.mustBe(t, number{2, 2}, 1, 8) // never sent: settled here
		s := a.Stats()
		if s.Doubtful != 1 || s.Inherited[authz.SettledLess] != 1 || s.Queued != 0 || s.Peers != 0 {
			t.Errorf("%+v", s)
		}
		if got := a.hear(number{2, 2}, 8); got != authz.SettledBefore {
			t.Errorf("a repeat after the decider has gone: %s", got.Word())
		}
	})
}

func TestSetPeers_C134_HeirsFindRepeatsWhoeverHearsThem(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var all []*replica
		for process := range uint64(5) {
			all = append(all, w.start(process+10))
		}
		know(all, all...)
		const gone = 500 // processes that decided and are no more
		heirs := map[uint64]int{}
		for i := range uint64(gone) {
			for _, hears := range all {
				hears.hear(number{i + 1000, 1}, 7)
			}
		}
		synctest.Wait()
		for i := range uint64(gone) {
			got := w.ledger.of(number{i + 1000, 1})
			if len(got) != 1 {
				t.Fatalf("process %d: settled %+v", i+1000, got)
			}
			heirs[got[0].by]++
		}
		for process, n := range heirs {
			if n < gone/5/2 || n > gone/5*3/2 {
				t.Errorf("process %d takes the place of %d of %d", process, n, gone)
			}
		}
		// One of the heirs goes: only its places are taken by others.
		know(all[1:], all[1:]...)
		for i := range uint64(gone) {
			for _, hears := range all[1:] {
				hears.hear(number{i + 1000, 1}, 7)
			}
		}
		synctest.Wait()
		for i := range uint64(gone) {
			got := w.ledger.of(number{i + 1000, 1})
			if heirGone := got[0].by == all[0].process; heirGone {
				if len(got) != 2 || got[1].by == got[0].by {
					t.Errorf("process %d, whose heir has gone, was settled %+v", i+1000, got)
				}
			} else if len(got) != 1 {
				t.Errorf("process %d, whose heir is there, was settled %+v", i+1000, got)
			}
		}
	})
}

func TestSetPeers_C134_TheQueueOfAnHeirThatLeavesGoesToTheNextOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := []*replica{w.start(1), w.start(2), w.start(3)}
		all[1].cut(w)
		all[2].cut(w)
		know(all, all...)
		for i := range uint64(300) {
			all[0].hear(number{i + 100, 1}, 7)
		}
		time.Sleep(time.Second) // nobody is reached
		all[2].address = "moved"
		all[2].listen(w)
		know(all, all[0], all[2])
		time.Sleep(10 * time.Second)
		by := map[uint64]int{}
		for i := range uint64(300) {
			got := w.ledger.of(number{i + 100, 1})
			if len(got) != 1 {
				t.Fatalf("process %d: settled %+v", i+100, got)
			}
			by[got[0].by]++
		}
		if by[1] < 75 || by[3] < 75 || by[1]+by[3] != 300 {
			t.Errorf("settled by %v", by)
		}
		if s := all[0].Stats(); s.Rerouted == 0 || sum(s.Inherited) == 0 || s.Doubtful != 0 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestSettleBatch_C134_AProcessStartedAnewAtTheAddressSettlesNothingOfItsForerunner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		b.lose.Store(1 << 40)
		a.hear(number{2, 1}, 7)
		synctest.Wait()
		a.hear(number{2, 2}, 8)
		b.cut(w)
		next := w.make(3) // its presence is not known yet
		next.address = b.address
		next.listen(w)
		time.Sleep(20 * time.Second)
		w.ledger.mustBe(t, number{2, 1}, 2, 7)
		w.ledger.mustBe(t, number{2, 2}, 1, 8) // nobody else is known
		if got := a.hear(number{2, 3}, 9); got != authz.SettledLess {
			t.Errorf("while another process answers at the address: %s, want it to be settled here", got.Word())
		}
		s := a.Stats()
		if s.Doubtful != 1 || s.Away != 1 || s.Queued != 0 || sum(next.Stats().Received) != 0 {
			t.Errorf("%+v, %+v", s, next.Stats())
		}
	})
}

func TestRun_C135_APeerThatCannotBeReachedIsReplacedAfter30Seconds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		b.cut(w)
		know([]*replica{a, b}, a, b)
		if got := a.hear(number{2, 1}, 7); got != authz.SettledElsewhere {
			t.Fatalf("%s", got.Word())
		}
		time.Sleep(29 * time.Second)
		w.ledger.mustNotBe(t, number{2, 1})
		if s := a.Stats(); s.Queued != 1 || s.OldestWaiting != 29*time.Second || s.Away != 0 || s.Peers != 1 || s.QueuedBytes == 0 {
			t.Errorf("after 29 s: %+v", s)
		}
		time.Sleep(4 * time.Second)
		w.ledger.mustBe(t, number{2, 1}, 1, 7)
		if got := a.hear(number{2, 2}, 7); got != authz.SettledLess {
			t.Errorf("a later entry: %s, want it settled here", got.Word())
		}
		if s := a.Stats(); s.Queued != 0 || s.Away != 1 || s.Inherited[authz.SettledLess] != 1 {
			t.Errorf("after 33 s: %+v", s)
		}
		b.listen(w)
		time.Sleep(10 * time.Second)
		if got := a.hear(number{2, 3}, 7); got != authz.SettledElsewhere || a.Stats().Away != 0 {
			t.Errorf("once it is back: %s, %+v", got.Word(), a.Stats())
		}
		synctest.Wait()
		w.ledger.mustBe(t, number{2, 3}, 2, 7)
		b.cut(w)
		synctest.Wait() // seen here: what is sent while it breaks is in doubt
		a.hear(number{2, 4}, 7)
		time.Sleep(time.Minute)
		w.ledger.mustBe(t, number{2, 4}, 1, 7)
		if n := w.log.count("does not answer"); n != 1 {
			t.Errorf("%d warnings, want 1", n)
		}
	})
}

func TestRun_C134_APeerThatHangsKeepsWhatItWasSentAndNothingElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		hang := make(chan struct{})
		b.hang.Store(&hang)
		a.hear(number{2, 1}, 7)
		synctest.Wait()
		a.hear(number{2, 2}, 8)
		time.Sleep(40 * time.Second)
		w.ledger.mustBe(t, number{2, 1}, 2, 7)
		w.ledger.mustBe(t, number{2, 2}, 1, 8)
		if s := a.Stats(); s.Queued != 1 || s.Doubtful != 0 || s.Away != 1 {
			t.Errorf("while it hangs: %+v", s)
		}
		b.hang.Store(nil)
		close(hang)
		time.Sleep(10 * time.Second)
		if s := a.Stats(); s.Queued != 0 || s.Forwarded[authz.SettledBefore] != 1 || s.Doubtful != 0 || s.Away != 0 {
			t.Errorf("once it answers: %+v", s)
		}
	})
}

func TestSettle_C135_WhatHasNoRoomIsDroppedAndCounted(t *testing.T) {
	t.Parallel()
	for name, bound := range map[string]func(*peers.Config){
		"count": func(c *peers.Config) { c.MaxQueued = 3 },
		"bytes": func(c *peers.Config) { c.MaxQueuedBytes = 3*(200+8+len(number{2, 1}.token())) + 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.start(1, bound), w.start(2)
				b.cut(w)
				know([]*replica{a, b}, a, b)
				for i := range uint64(5) {
					want := authz.SettledElsewhere
					if i >= 3 {
						want = authz.SettledDropped
					}
					if got := a.hear(number{2, i}, 7); got != want {
						t.Errorf("entry %d: %s, want %s", i, got.Word(), want.Word())
					}
				}
				b.listen(w)
				time.Sleep(10 * time.Second)
				if s := a.Stats(); s.Settled[authz.SettledDropped] != 2 || sum(s.Forwarded) != 3 || s.QueuedBytes != 0 {
					t.Errorf("%+v", s)
				}
				if got := a.hear(number{2, 9}, 7); got != authz.SettledElsewhere {
					t.Errorf("once there is room: %s", got.Word())
				}
			})
		})
	}
}

// Where a live process remembers what one before it has settled, all that is about that one
// goes there: repeats, and what was sent to it with an outcome that is not known.
func TestSetSuccessors_C134_WhoRemembersTakesThePlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.start(1), w.start(2), w.start(3)
		know([]*replica{a, b, c}, a, b, c)
		b.lose.Store(1 << 40)
		a.hear(number{2, 1}, 7)
		a.hear(number{2, 2}, 7)
		synctest.Wait() // settled, and the answers lost
		a.hear(number{2, 3}, 8)
		b.cut(w)
		next := w.make(21) // with b's memory
		next.desk.seen, next.address = b.desk.seen, b.address
		next.listen(w)
		w.run(next)
		all := []*replica{a, c, next}
		for _, r := range all {
			r.SetSuccessors(map[uint64]uint64{2: 21})
		}
		know(all, a, b, c, next) // the presence of b stays for a while
		time.Sleep(5 * time.Second)
		w.ledger.mustBe(t, number{2, 1}, 2, 7)
		w.ledger.mustBe(t, number{2, 2}, 2, 7)
		w.ledger.mustBe(t, number{2, 3}, 21, 8)
		for i, r := range all {
			for n := range uint64(3) {
				r.hear(number{2, n + 1}, 9)
			}
			r.hear(number{2, uint64(i) + 4}, 6)
			time.Sleep(5 * time.Second)
			w.ledger.mustBe(t, number{2, uint64(i) + 4}, 21, 6)
		}
		w.ledger.mustBe(t, number{2, 1}, 2, 7)
		w.ledger.mustBe(t, number{2, 3}, 21, 8)
		if s := a.Stats(); s.Doubtful != 0 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// When who remembers is gone, too, its place is taken as that of the first one.
func TestSetSuccessors_C134_OneThatIsGoneTakesNoPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.start(1), w.start(2), w.start(3)
		all := []*replica{a, b, c}
		know(all, all...)
		for process := range uint64(20) {
			a.SetSuccessors(map[uint64]uint64{100 + process: 77})
			a.hear(number{100 + process, 1}, 7)
			b.hear(number{100 + process, 1}, 7)
			synctest.Wait()
			if got := w.ledger.of(number{100 + process, 1}); len(got) != 1 {
				t.Errorf("settled %+v", got)
			}
		}
	})
}
