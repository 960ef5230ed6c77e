package main

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/quota"
)

// slowStore takes its time.
type slowStore struct{ takes time.Duration }

func (s *slowStore) Apply(context.Context, quota.Operation) (quota.Result, error) {
	time.Sleep(s.takes)
	return quota.Result{}, nil
}

// Leases that come close to lease-wait are warned of, once, and so is a round trip that
// makes all of them do so; a hiccup, and what nobody waits for, is not.
func TestLeaseWatch_A56_A61_WarnsOfLeasesCloseToLeaseWait(t *testing.T) {
	t.Parallel()
	const warning, again = "leases come close to lease-wait", "again"
	for _, c := range []struct {
		name       string
		far, takes time.Duration
		waiting    int64
		slow, fast int // leases in a minute
		down       bool
		want       string
	}{
		{"near", time.Millisecond, 0, 1, 0, 100, false, ""},
		{"a hiccup", time.Millisecond, 250 * time.Millisecond, 1, 4, 0, false, ""},
		{"few of many", time.Millisecond, 250 * time.Millisecond, 1, 5, 1000, false, ""},
		{"one in twenty", time.Millisecond, 200 * time.Millisecond, 1, 5, 95, false, warning},
		{"nobody waits", time.Millisecond, 250 * time.Millisecond, 0, 50, 0, false, ""},
		{"far away", 100 * time.Millisecond, 0, 1, 0, 0, false, warning},
		{"etcd is away", 100 * time.Millisecond, 250 * time.Millisecond, 1, 50, 0, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				slow, far := &slowStore{}, new(atomic.Int64)
				far.Store(int64(c.far))
				w := &leaseWatch{
					Store: slow, wait: 300 * time.Millisecond, log: zerolog.New(&log),
					roundTrip: func() time.Duration { return time.Duration(far.Load()) }, up: func() bool { return !c.down },
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { defer close(done); _ = w.run(ctx) }()
				time.Sleep(time.Second) // so that no lease falls on the instant of a judgment
				for range 2 {           // minutes: it says so once
					for range c.fast {
						_, _ = w.Apply(ctx, quota.Operation{Want: 1, Waiting: c.waiting})
					}
					slow.takes = c.takes
					for range c.slow {
						_, _ = w.Apply(ctx, quota.Operation{Want: 1, Waiting: c.waiting})
					}
					slow.takes = 0
					time.Sleep(time.Minute - time.Duration(c.slow)*c.takes)
				}
				synctest.Wait()
				said := log.String()
				if strings.Count(said, warning) != strings.Count(c.want, warning) || strings.Contains(said, again) {
					t.Errorf("logged %q, want %q once", said, c.want)
				}
				far.Store(int64(time.Millisecond))
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if got := strings.Contains(log.String(), again); got != (c.want != "") {
					t.Errorf("later: logged %q", log.String())
				}
				cancel()
				<-done
			})
		})
	}
}
