package peers_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
)

func TestRun_A26_C135_SendsWhatIsQueuedBeforeItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		b.cut(w)
		know([]*replica{a, b}, a, b)
		for i := range uint64(2000) {
			a.hear(number{2, i}, 7)
		}
		time.Sleep(time.Second)
		began := time.Now()
		ended := make(chan struct{})
		go func() { a.end(); close(ended) }()
		time.Sleep(time.Second)
		b.listen(w)
		<-ended
		if took := time.Since(began); took >= 3*time.Second {
			t.Errorf("the end took %v, though all was sent", took)
		}
		for i := range uint64(2000) {
			w.ledger.mustBe(t, number{2, i}, 2, 7)
		}
		if got := a.hear(number{2, 3000}, 7); got != authz.SettledLess {
			t.Errorf("after the end: %s, want it settled here", got.Word())
		}
	})
}

func TestRun_A26_C134_SettlesHereAtItsEndWhatWasNeverSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b, c := w.start(1), w.start(2), w.start(3)
		c.cut(w)
		know([]*replica{a, b, c}, a, b, c)
		hang := make(chan struct{})
		b.hang.Store(&hang)
		a.hear(number{2, 1}, 7)
		synctest.Wait()
		a.hear(number{2, 2}, 8)
		a.hear(number{3, 1}, 9)
		began := time.Now()
		a.end()
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("the end took %v, want 3 s", took)
		}
		close(hang)
		w.ledger.mustBe(t, number{2, 1}, 2, 7)
		w.ledger.mustBe(t, number{2, 2}, 1, 8)
		w.ledger.mustBe(t, number{3, 1}, 1, 9)
		if s := a.Stats(); s.Doubtful != 1 || sum(s.Inherited) != 2 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
	})
}

func TestRun_C135_PeersThatComeAndGoAroundItsStartAndEndLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		b := w.start(2)
		a := w.make(1)
		know([]*replica{a}, a, b)
		a.hear(number{2, 1}, 7)
		know([]*replica{a}, a) // gone before anybody has begun to send
		w.run(a)
		synctest.Wait()
		w.ledger.mustBe(t, number{2, 1}, 1, 7)

		b.cut(w)
		know([]*replica{a}, a, b)
		a.hear(number{2, 2}, 7)
		ended := make(chan struct{})
		go func() { a.end(); close(ended) }()
		time.Sleep(time.Second)
		know([]*replica{a}, a) // gone while it ends
		<-ended
		w.ledger.mustBe(t, number{2, 2}, 1, 7)

		know([]*replica{a}, a, b) // come after it has ended
		if got := a.hear(number{2, 3}, 7); got != authz.SettledLess {
			t.Errorf("after the end: %s", got.Word())
		}
		if _, err := a.Report(t.Context(), time.Now(), b.idOf(1), nil); status.Code(err) != codes.Unavailable || a.Stats().AskedFailed != 1 {
			t.Errorf("after the end a connection is made: %v", err)
		}
	})
}
