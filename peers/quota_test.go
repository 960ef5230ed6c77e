package peers_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
)

// idOf returns the id of a decision of a process, whose desk knows it.
func (a *replica) idOf(n uint8) authz.ID {
	id := authz.ID{0: n}
	id[14], id[15] = byte(a.process>>8), byte(a.process)
	a.desk.mu.Lock()
	defer a.desk.mu.Unlock()
	a.desk.seen[number{uint64(id.Tag()), uint64(n)}] = true
	return id
}

func TestReport_A37_P64_AsksTheProcessThatDecided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		all := []*replica{w.start(0x70001), w.start(0x70002)}
		for n := range uint64(6) { // of the same tag: who is asked first is chance
			all = append(all, w.start((n+8)<<16|2))
		}
		know(all, all...)
		for _, decider := range all {
			id := decider.idOf(uint8(decider.process >> 16))
			for _, asked := range all {
				for name, call := range map[string]func(context.Context, time.Time, authz.ID, map[string]int64) (map[string]int64, error){
					"Report": asked.Report, "Extend": asked.Extend,
				} {
					got, err := call(t.Context(), time.Now(), id, map[string]int64{"tokens": 25})
					if err != nil || got["by"] != int64(decider.process) || got["tokens"] != 25 { //nolint:gosec // small
						t.Errorf("%s of %x at %x: %v, %v", name, decider.process, asked.process, got, err)
					}
				}
			}
		}
	})
}

func TestReport_P64_ADecisionOfNobodyIsUnknown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		units := map[string]int64{"tokens": 25}
		if _, err := a.Report(t.Context(), time.Now(), authz.ID{15: 9}, units); !errors.Is(err, authz.ErrUnknownDecision) {
			t.Errorf("of a process that nobody knows: %v", err)
		}
		if _, err := a.Report(t.Context(), time.Now(), authz.ID{15: 1}, units); !errors.Is(err, authz.ErrUnknownDecision) {
			t.Errorf("of this process: %v", err)
		}
		if _, err := a.Report(t.Context(), time.Now(), authz.ID{15: 2}, units); status.Code(err) != codes.NotFound {
			t.Errorf("of a peer: %v", err)
		}
	})
}

func TestReport_P64_IsPassedOnOnceOnly(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		id := b.idOf(1)
		ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("mete-forwarded", "1"))
		if _, err := a.Report(ctx, time.Now(), id, nil); !errors.Is(err, authz.ErrUnknownDecision) {
			t.Errorf("%v, want that it is answered here", err)
		}
		if n := b.calls.Load(); n != 0 {
			t.Errorf("the peer was asked %d times", n)
		}
	})
}

func TestReport_P64_APeerThatDoesNotAnswerIsUnavailable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a, b := w.start(1), w.start(2)
		know([]*replica{a, b}, a, b)
		id := b.idOf(1)
		hang := make(chan struct{})
		b.hang.Store(&hang)
		_, err := a.Report(t.Context(), time.Now(), id, map[string]int64{"tokens": 25})
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "0000000000000002") {
			t.Errorf("one that hangs: %v", err)
		}
		b.hang.Store(nil)
		close(hang)
		b.cut(w)
		_, err = a.Report(t.Context(), time.Now(), id, map[string]int64{"tokens": 25})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "ask replica 0000000000000002, which decided") {
			t.Errorf("one that cannot be reached: %v", err)
		}
		if s := a.Stats(); s.Asked != 2 || s.AskedFailed != 2 {
			t.Errorf("%+v", s)
		}
	})
}
