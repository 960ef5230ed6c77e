package store

import (
	"context"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// mostVanished bounds how many keys are asked about that are gone without a word.
const mostVanished = 100

// tellUntold counts and logs what a full batch has brought of which the watch should have
// told before. A key that is gone may have been deleted since: etcd's history knows.
func (d *Documents) tellUntold(ctx context.Context, b batch) {
	s := d.shelf
	untold := s.untold
	if s.before > 0 {
		for _, key := range s.vanished[:min(len(s.vanished), mostVanished)] {
			if d.goneAt(ctx, key, s.before) {
				untold = append(untold, key)
			}
		}
	}
	if len(untold) == 0 {
		return
	}
	slices.Sort(untold)
	d.Log.Warn().Int("keys", len(untold)).Str("key", untold[0]).Int64("revision", b.revision).
		Msg("etcd's watch did not tell of changes that were made before; they are in force from now on")
	d.mu.Lock()
	d.stats.Untold += int64(len(untold))
	d.mu.Unlock()
}

// goneAt reports whether a key certainly did not exist at a revision.
func (d *Documents) goneAt(ctx context.Context, key string, revision int64) bool {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	r, err := get(ctx, d.cluster, key, clientv3.WithRev(revision), clientv3.WithKeysOnly())
	return err == nil && len(r.Kvs) == 0
}
