package main

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
)

// parts are the running parts of the process. They are stopped in the reverse of
// the order in which they were started, each only once all later ones have
// returned, so that every part can rely on the earlier ones to its end.
type parts struct {
	group   errgroup.Group
	running []part
	// failed gets the first error of a part that ended without being stopped.
	failed chan error
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
	ps.group.Go(func() error {
		defer close(p.done)
		err := run(ctx)
		switch {
		case ctx.Err() != nil && errors.Is(err, context.Canceled):
			return nil
		case ctx.Err() == nil && err == nil:
			err = errors.New("ended by itself")
		case err == nil:
			return nil
		}
		err = fmt.Errorf("%s: %w", name, err)
		select {
		case ps.failed <- err:
		default: // one is enough to end the process
		}
		return err
	})
}

// atStop has stop called when its turn to be stopped has come.
func (ps *parts) atStop(ctx context.Context, name string, stop func() error) {
	ps.start(ctx, name, func(ctx context.Context) error {
		<-ctx.Done()
		return stop()
	})
}

// stop stops all parts, the last first, and returns the first error of any part.
func (ps *parts) stop() error {
	for len(ps.running) > 0 {
		last := ps.running[len(ps.running)-1]
		ps.running = ps.running[:len(ps.running)-1]
		last.stop()
		<-last.done
	}
	return ps.group.Wait()
}
