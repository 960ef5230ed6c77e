package store_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/storetest"
)

// A counted Doer holds every request until enough are under way, or its time is up.
type counted struct {
	store.Doer
	enough  int64
	met     chan struct{}
	once    sync.Once
	now     atomic.Int64
	highest atomic.Int64
}

func (c *counted) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	n := c.now.Add(1)
	defer c.now.Add(-1)
	for high := c.highest.Load(); n > high && !c.highest.CompareAndSwap(high, n); high = c.highest.Load() {
	}
	if n >= c.enough {
		c.once.Do(func() { close(c.met) })
	}
	select {
	case <-c.met:
	case <-ctx.Done():
	}
	return c.Doer.Do(ctx, op)
}

// A replica that is alone has two transactions under way; among others it has one.
func TestBatch_Q44_TwoAtATimeWhenAlone(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for _, alone := range []bool{true, false} {
		want := int64(1)
		if alone {
			want = 2
		}
		c := &counted{Doer: newWire(nil), enough: want, met: make(chan struct{})}
		accounts := store.NewAccounts(c)
		accounts.Liable = func(string) bool { return true }
		accounts.Alone = func() bool { return alone }
		accounts.SetBatching(store.Nested)
		var all sync.WaitGroup
		for _, op := range asks(t, 256) {
			all.Go(func() {
				if r, err := accounts.Apply(ctx, op); err != nil || r != granted() {
					t.Errorf("got %+v, %v", r, err)
				}
			})
		}
		all.Wait()
		if n := c.highest.Load(); n != want {
			t.Errorf("alone %v: %d transactions at a time, want %d", alone, n, want)
		}
	}
}

// The contract holds in two lines as in one.
func TestBatch_A34_KeepTheContractAlone(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Subject {
		s := subjectIn(t, store.Nested)
		s.Store.(*store.Accounts).Alone = func() bool { return true }
		return s
	})
}
