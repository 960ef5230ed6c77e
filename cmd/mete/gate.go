package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/store"
)

// A gate keeps this mete from entering a store that needs a newer one. A replica that puts a
// document in force that only newer versions can read either sees this replica's
// presence and waits, or raises the store's minimum before; so the minimum is read
// once more when the presence is there.
//
// A mete that is inside already when the minimum rises, having been out of sight,
// stays and stays ready: it goes on with the last documents that it could read, which
// is better than sending all its requests to the few that may be new enough.
type gate struct {
	level      int
	version    string
	kv         store.Doer
	registered func() bool // the presence is there
	log        zerolog.Logger

	looked chan struct{} // closed once the store was asked and did not refuse
	behind atomic.Bool   // the store needs more than this mete has
}

func newGate(level int, kv store.Doer, members *store.Members, log zerolog.Logger) *gate {
	return &gate{
		level: level, version: build().Version, kv: kv, log: log, looked: make(chan struct{}),
		registered: func() bool {
			_, there := members.Replicas()[members.Incarnation()]
			return there
		},
	}
}

// Waits of a gate. A store that does not answer keeps nobody from registering: it
// answers before it takes a registration.
const (
	gateTimeout = 2 * time.Second
	gatePause   = 200 * time.Millisecond
	gateLook    = time.Second
)

// run refuses with an error, before the presence is there or right after.
func (g *gate) run(ctx context.Context) error {
	if err := g.look(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	close(g.looked)
	for !g.registered() {
		if !pause(ctx, gatePause) {
			return nil
		}
	}
	if err := g.look(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	g.log.Info().Int("feature_level", g.level).Msg("registered, and new enough for the store")
	<-ctx.Done()
	return nil
}

// look asks the store until it answers. The error is a refusal.
func (g *gate) look(ctx context.Context) error {
	for told := false; ctx.Err() == nil; told = true {
		m, err := g.read(ctx)
		switch {
		case err == nil && m.Above(g.level):
			return fmt.Errorf("this mete (version %s) has feature level %d and the store needs %s: run that version or a newer one; docs/upgrading.md tells how to go back",
				g.version, g.level, m.Needed())
		case err == nil:
			return nil
		case !told && ctx.Err() == nil:
			g.log.Warn().Err(err).Msg("not known yet whether this mete is new enough for the store; trying again")
		}
		pause(ctx, gatePause)
	}
	return nil
}

func (g *gate) read(ctx context.Context) (store.Minimum, error) {
	ctx, cancel := context.WithTimeout(ctx, gateTimeout)
	defer cancel()
	return store.ReadMinimum(ctx, g.kv)
}

// after has run wait for the first look, so that a mete that is restarted again and
// again only to be refused is no replica in between.
func (g *gate) after(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-g.looked:
		case <-time.After(gateLook):
		}
		return run(ctx)
	}
}

// open reports whether the store was asked and did not refuse.
func (g *gate) open() bool {
	select {
	case <-g.looked:
		return true
	default:
		return false
	}
}

// notice takes over what the watch tells of the store's minimum.
func (g *gate) notice(m store.Minimum) {
	behind := m.Above(g.level)
	if behind && !g.behind.Swap(true) {
		g.log.Error().Int("feature_level", g.level).Int("minimum", m.Level).
			Msgf("the store needs %s; this mete goes on with the documents that it can read, upgrade it", m.Needed())
	}
	g.behind.Store(behind)
}

// pause waits for d; false if ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
