package store

import (
	"context"
	"time"
)

// For tests that build keys and accounts by hand.
var (
	EncodeAccount = encodeAccount
	DecodeAccount = decodeAccount
	LiableKey     = liableKey
	ReplicaKey    = replicaKey
	Supported     = supported
)

// Line reports whether requests of s are under way in batches, and how many operations
// wait meanwhile.
func (s *Accounts) Line() (busy bool, waiting int) {
	s.lines[0].mu.Lock()
	defer s.lines[0].mu.Unlock()
	return s.lines[0].workers > 0, len(s.lines[0].waiting)
}

// Peers is what OnPeers would be told now.
func (m *Members) Peers() map[uint64]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.peers()
}

// Reread takes in all there is, as the watcher reads it when its watches have told of
// everything up to a revision, as they say.
func (d *Documents) Reread(ctx context.Context, told int64) error {
	if d.shelf == nil {
		d.start(ctx)
	}
	b := batch{full: true, before: told, received: time.Now()}
	for _, sp := range d.watcher.spans {
		h, err := scanPages(ctx, d.cluster, sp, b.revision, b.add)
		if err != nil {
			return err
		}
		b.revision = h.revision
	}
	return d.handle(ctx, b)
}
