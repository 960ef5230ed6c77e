package rig

import (
	"context"
	"fmt"
	"sync"
)

// Meetings let the two ends of a request wait for each other, by the request's
// TestID: a caller that wants to leave in the middle has to know when that is. The
// zero Meetings is ready; it is safe for concurrent use.
type Meetings struct {
	mu  sync.Mutex
	all map[string]*meeting // guarded by mu
}

type meeting struct {
	arrived, released chan struct{}
	arrive, release   sync.Once
}

// Arrive tells that the request has come as far as it is waited for.
func (m *Meetings) Arrive(id string) {
	at := m.at(id)
	at.arrive.Do(func() { close(at.arrived) })
}

// Arrived returns once Arrive was called.
func (m *Meetings) Arrived(ctx context.Context, id string) error {
	return wait(ctx, m.at(id).arrived, id)
}

// Release lets the request go on.
func (m *Meetings) Release(id string) {
	at := m.at(id)
	at.release.Do(func() { close(at.released) })
}

// Released returns once Release was called.
func (m *Meetings) Released(ctx context.Context, id string) error {
	return wait(ctx, m.at(id).released, id)
}

func (m *Meetings) at(id string) *meeting {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[string]*meeting{}
	}
	if m.all[id] == nil {
		m.all[id] = &meeting{arrived: make(chan struct{}), released: make(chan struct{})}
	}
	return m.all[id]
}

func wait(ctx context.Context, done <-chan struct{}, id string) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("nobody else comes for request %q: %w", id, ctx.Err())
	}
}
