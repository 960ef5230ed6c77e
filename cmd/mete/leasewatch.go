package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/quota"
)

// How leaseWatch judges.
const (
	leaseWatchEvery = time.Minute
	leastLate       = 5  // leases a minute: fewer are a hiccup
	oneInLate       = 20 // leases that are late
	roundTrips      = 2  // that a first lease takes
)

// A leaseWatch passes operations on to a store and warns when leases that requests wait
// for take two thirds of lease-wait and more: past it on_unavailable decides, though etcd
// is well.
type leaseWatch struct {
	quota.Store
	wait      time.Duration // lease-wait
	roundTrip func() time.Duration
	up        func() bool // etcd answers: else there is more to say than this
	log       zerolog.Logger

	asked, late atomic.Int64
	warned      bool // owned by run
}

// Apply implements [quota.Store].
func (w *leaseWatch) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	began := time.Now()
	r, err := w.Store.Apply(ctx, op)
	if op.Waiting > 0 {
		w.asked.Add(1)
		if w.close(time.Since(began)) {
			w.late.Add(1)
		}
	}
	return r, err
}

// close reports whether a lease that takes so long comes close to lease-wait.
func (w *leaseWatch) close(took time.Duration) bool { return 3*took >= 2*w.wait }

// run judges once a minute until ctx is done. It logs when what it finds changes.
func (w *leaseWatch) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(leaseWatchEvery):
			w.judge()
		}
	}
}

func (w *leaseWatch) judge() {
	asked, late, far := w.asked.Swap(0), w.late.Swap(0), w.roundTrip()
	if !w.up() {
		return
	}
	warn := w.close(roundTrips*far) || late >= leastLate && late*oneInLate >= asked
	if warn == w.warned {
		return
	}
	w.warned = warn
	if !warn {
		w.log.Info().Dur("round_trip", far).Msg("leases take less than two thirds of lease-wait again")
		return
	}
	w.log.Warn().Int64("leases", asked).Int64("late", late).Dur("round_trip", far).Dur("lease_wait", w.wait).
		Msg("leases come close to lease-wait, past which on_unavailable decides: a first lease takes two round trips to etcd; " +
			"put etcd nearer, or raise lease-wait and, with it, the timeout of Envoy's filters")
}
