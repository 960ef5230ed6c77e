package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// parts are the running parts of the process. They are stopped in the reverse of
// the order in which they were started, each only once all later ones have
// returned, so that every part can rely on the earlier ones to its end.
type parts struct {
	running []part
	// failed gets the first error of a part.
	failed chan error

	mu   sync.Mutex
	errs []error // guarded by mu: of all parts, in the order in which they ended
}

type part struct {
	stop context.CancelFunc
	done chan struct{}
}

func newParts() *parts { return &parts{failed: make(chan error, 1)} }

// start runs a part until its turn to be stopped has come; that ctx ends stops
// nothing. A part that returns before that, with an error or without, has failed.
func (ps *parts) start(ctx context.Context, name string, run func(context.Context) error) {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := part{stop: stop, done: make(chan struct{})}
	ps.running = append(ps.running, p)
	go func() {
		defer close(p.done)
		if err := ended(ctx, run(ctx)); err != nil {
			ps.fail(fmt.Errorf("%s: %w", name, err))
		}
	}()
}

// ended returns why a part has failed that returned err; nil: it was stopped.
func ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		return nil
	case ctx.Err() == nil && err == nil:
		return errors.New("ended by itself")
	}
	return err
}

func (ps *parts) fail(err error) {
	ps.mu.Lock()
	ps.errs = append(ps.errs, err)
	ps.mu.Unlock()
	select {
	case ps.failed <- err:
	default: // one is enough to end the process
	}
}

// atStop has stop called when its turn to be stopped has come.
func (ps *parts) atStop(ctx context.Context, name string, stop func() error) {
	ps.start(ctx, name, func(ctx context.Context) error {
		<-ctx.Done()
		return stop()
	})
}

// stop stops all parts, the last first, and returns the errors of all of them.
func (ps *parts) stop() error {
	for _, p := range slices.Backward(ps.running) {
		p.stop()
		<-p.done
	}
	ps.running = nil
	ps.mu.Lock()
	defer ps.mu.Unlock()
	return errors.Join(ps.errs...)
}
