package storetest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

func TestMemory(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Subject {
		var m storetest.Memory
		var revision int64
		return storetest.Subject{
			Store: &m, Account: m.Account, SetLiable: m.SetLiable,
			Edit: func(kind, name string) quota.Guard {
				revision++
				g := quota.Guard{Kind: kind, Name: name, Revision: revision}
				m.SetGuard(g)
				return g
			},
		}
	})
}

func TestLostReplyWasApplied(t *testing.T) {
	var m storetest.Memory
	s := storetest.LostReply(&m, 2)
	op := quota.Operation{Key: quota.Key{Tenant: "acme"}, Holder: "a", Seq: 1, Want: 10, Min: 1, Ceiling: 100}
	if _, err := s.Apply(t.Context(), op); err != nil {
		t.Fatal(err)
	}
	op.Seq, op.Used = 2, 5
	if _, err := s.Apply(t.Context(), op); err == nil {
		t.Error("the second reply was not lost")
	}
	if got := m.Account(op.Key).Used(); got != 5 {
		t.Errorf("%d used, want 5", got)
	}
}

func TestPartitionHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m storetest.Memory
		l := storetest.Partition(&m)
		op := quota.Operation{Key: quota.Key{Tenant: "acme"}, Holder: "a", Seq: 1, Want: 10, Min: 1, Ceiling: 100}
		l.Cut()
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := l.Apply(ctx, op); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 300*time.Millisecond {
			t.Errorf("got %v after %v, want the deadline after 300 ms", err, time.Since(began))
		}
		l.Heal()
		if _, err := l.Apply(t.Context(), op); err != nil {
			t.Error(err)
		}
	})
}
