package store

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// Settings of the sweep. Every shard has its turn in about half an hour, which is
// how long the holders that it looks for have been gone anyway.
const (
	sweepEvery    = time.Minute
	shardsAtOnce  = 8
	recallsAtOnce = 10_000
	// recallSweeps is how many sweeps ago a recall was asked before it is removed:
	// all who watch have long heard of it.
	recallSweeps = 4
)

// A Sweeper settles accounts that nobody touches: it folds holders that are not
// liable any more and so returns what they held (A33, C101). It removes accounts whose
// windows are long over of rate limit descriptors and of tenants without a document: there
// is one for each value, or name, that anybody sends. It also removes recalls that everybody has heard. Every replica runs one; the one that moves the sweep key does
// the work of that minute, and two that work at once do no harm, for each write
// compares what it was computed from. Fields are set before Run and not changed after.
type Sweeper struct {
	kv Doer
	// Liable reports whether an incarnation may still hold units: [Members.Liable]. A
	// wrong answer costs a request and nothing else.
	Liable func(incarnation string) bool
	// Incarnation tells who sweeps, for people: [Members.Incarnation].
	Incarnation func() string
	// Declared reports whether a tenant has a document, or that nobody can tell yet: then its
	// accounts stay. Nil: all have.
	Declared func(tenant string) bool

	Log zerolog.Logger
	// Now is the wall clock, by which windows are over: time.Now if not set. A clock that
	// is hours ahead removes what is used of windows that still run and nobody uses.
	Now func() time.Time
	// Every is the time between two sweeps, 1 min if not set; Shards how many of
	// the 256 shards are swept at a time, 8 if not set.
	Every  time.Duration
	Shards int

	known int64 // revision of the sweep key at the last look; -1: not looked yet

	sweeps, accounts, holders, units, ended, recalls, failed atomic.Int64
}

// NewSweeper returns a sweeper of an etcd.
func NewSweeper(kv Doer, liable func(incarnation string) bool, incarnation func() string) *Sweeper {
	return &Sweeper{
		kv: kv, Liable: liable, Incarnation: incarnation, Log: zerolog.Nop(),
		Now:   time.Now, //nolint:forbidigo // the edge, for those who set no other
		Every: sweepEvery, Shards: shardsAtOnce, known: -1,
	}
}

// SweepStats counts what a sweeper has done since it was made.
type SweepStats struct {
	Sweeps   int64 // turns that were this replica's
	Accounts int64 // looked at
	Holders  int64 // folded
	Units    int64 // returned to their accounts
	Ended    int64 // accounts of windows long over, of descriptors and of tenants without a document, removed
	Recalls  int64 // removed
	Failed   int64 // turns that etcd did not let come to an end
}

// Stats returns the counts.
func (s *Sweeper) Stats() SweepStats {
	return SweepStats{
		Sweeps: s.sweeps.Load(), Accounts: s.accounts.Load(), Holders: s.holders.Load(),
		Units: s.units.Load(), Ended: s.ended.Load(), Recalls: s.recalls.Load(), Failed: s.failed.Load(),
	}
}

// Run sweeps whenever it is this replica's turn, until ctx is done, and returns its
// error. A turn that fails is left: its shards come again in half an hour.
func (s *Sweeper) Run(ctx context.Context) error {
	for wait(ctx, jitter(s.Every)) == nil {
		turn, mine, err := s.take(ctx)
		if mine {
			err = s.sweep(ctx, turn)
		}
		if err != nil && ctx.Err() == nil {
			s.failed.Add(1)
			s.Log.Warn().Err(err).Msg("idle accounts are not swept in this turn")
		}
	}
	return ctx.Err()
}

// A turn is what the sweep key holds. Revisions of the key are the clock by which
// recalls are old.
type turn struct {
	Next   int     `json:"next_shard"` // after this turn's
	By     string  `json:"incarnation"`
	Before []int64 `json:"before"` // revisions of the key at the last sweeps, oldest first
}

// take looks whether anybody has moved the sweep key since the last look. If nobody
// has, it is this replica's turn, unless another one is quicker.
func (s *Sweeper) take(ctx context.Context) (t turn, mine bool, err error) {
	now, revision, err := s.look(ctx)
	if err != nil {
		return turn{}, false, err
	}
	known := s.known
	if s.known = revision; revision != known {
		return turn{}, false, nil
	}
	next := turn{Next: (now.Next + s.Shards) % shards, By: s.Incarnation(), Before: now.Before}
	if revision > 0 {
		next.Before = append(slices.Clone(now.Before), revision)
	}
	next.Before = next.Before[max(0, len(next.Before)-recallSweeps):]
	value, err := json.Marshal(next)
	if err != nil {
		panic("store: a turn that JSON cannot express: " + err.Error())
	}
	r, err := s.txn(ctx, []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(SweepKey), "=", revision)},
		[]clientv3.Op{clientv3.OpPut(SweepKey, string(value))}, nil)
	if err != nil {
		return turn{}, false, fmt.Errorf("take a turn by %s: %w", SweepKey, err)
	}
	if r.Succeeded {
		s.known = r.Header.Revision
	}
	return next, r.Succeeded, nil
}

// look reads the sweep key. What cannot be read is a turn that begins at shard 0.
func (s *Sweeper) look(ctx context.Context) (t turn, revision int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := get(ctx, s.kv, SweepKey)
	if err != nil {
		return turn{}, 0, fmt.Errorf("look whose turn it is by %s: %w", SweepKey, err)
	}
	if len(r.Kvs) == 0 {
		return turn{}, 0, nil
	}
	if json.Unmarshal(r.Kvs[0].Value, &t) != nil || t.Next < 0 {
		t = turn{}
	}
	return t, r.Kvs[0].ModRevision, nil
}

// sweep does the work of a turn. What fails in one shard does not keep it from the
// others.
func (s *Sweeper) sweep(ctx context.Context, t turn) error {
	s.sweeps.Add(1)
	first := s.removeRecalls(ctx, t)
	for i := range s.Shards {
		err := s.shard(ctx, t.Next-s.Shards+i+shards)
		if first == nil {
			first = err
		}
	}
	return first
}

// shard settles the accounts of one shard.
func (s *Sweeper) shard(ctx context.Context, n int) error {
	prefix := shardPrefix(n)
	var found []swap
	_, err := scanPages(ctx, s.kv, prefixSpan(prefix), 0, func(kvs []*mvccpb.KeyValue) {
		s.accounts.Add(int64(len(kvs)))
		for _, kv := range kvs {
			if w, ok := s.over(kv); ok {
				found = append(found, w)
			} else if w, ok := s.settled(kv); ok {
				found = append(found, w)
			}
		}
	})
	if err != nil {
		return err
	}
	done, err := s.commit(ctx, found)
	settled := 0
	for _, w := range done {
		if w.ended {
			s.ended.Add(1)
			continue
		}
		settled++
		s.holders.Add(int64(len(w.gone)))
		s.units.Add(w.units)
	}
	if settled > 0 {
		s.Log.Info().Str("prefix", prefix).Int("accounts", settled).Msg("settled accounts of replicas that are gone")
	}
	return err
}

// keptAfterEnd is for how long an account that is to be removed is kept after its window:
// longer than anybody spends from its leases, and than clocks differ. What is settled later
// still makes an account of its own, of just the difference.
const keptAfterEnd = 2 * time.Hour

// over returns how to remove an account of descriptors, or of a tenant without a document,
// whose window is long over; false for any other.
func (s *Sweeper) over(kv *mvccpb.KeyValue) (swap, bool) {
	key, ok := ParseAccountKey(string(kv.Key))
	if !ok {
		return swap{}, false
	}
	if !s.removes(key) {
		return swap{}, false
	}
	if end, ok := quota.LatestEnd(key.Window); !ok || s.Now().Sub(end) < keptAfterEnd {
		return swap{}, false
	}
	return swap{key: string(kv.Key), revision: kv.ModRevision, op: clientv3.OpDelete(string(kv.Key)), size: len(kv.Key), ended: true}, true
}

// removes reports whether an account is to be removed after its window.
func (s *Sweeper) removes(key quota.Key) bool {
	if plan.OfDescriptors(key.Limit) {
		_, known := plan.ParseAccount(key.Limit)
		return known
	}
	return s.Declared != nil && !s.Declared(key.Tenant)
}

// settled returns what to write in the place of an account; false if it has no
// holder to fold, or is none that this version can read.
func (s *Sweeper) settled(kv *mvccpb.KeyValue) (swap, bool) {
	a, err := decodeAccount(kv.Value)
	if _, ok := ParseAccountKey(string(kv.Key)); !ok || err != nil {
		return swap{}, false
	}
	var gone []string
	for _, h := range a.Holders {
		if !s.Liable(h.ID) && len(gone) < maxGone {
			gone = append(gone, h.ID) // more than that: the rest next time
		}
	}
	if len(gone) == 0 {
		return swap{}, false
	}
	next, units := quota.Reclaim(a, gone)
	value, err := encodeAccount(next)
	if err != nil {
		return swap{}, false
	}
	key := string(kv.Key)
	return swap{
		key: key, revision: kv.ModRevision, gone: gone, units: units,
		op: clientv3.OpPut(key, string(value)), size: len(key) + len(value),
	}, true
}

// removeRecalls removes recalls that were asked some sweeps ago and not again since.
func (s *Sweeper) removeRecalls(ctx context.Context, t turn) error {
	if len(t.Before) < recallSweeps {
		return nil
	}
	old, err := s.oldRecalls(ctx, t.Before[0])
	if err != nil {
		return err
	}
	done, err := s.commit(ctx, old)
	s.recalls.Add(int64(len(done)))
	return err
}

// oldRecalls finds recalls that were last asked up to a revision.
func (s *Sweeper) oldRecalls(ctx context.Context, revision int64) ([]swap, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	r, err := get(ctx, s.kv, RecallsPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithMaxModRev(revision), clientv3.WithLimit(recallsAtOnce))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", RecallsPrefix, err)
	}
	old := make([]swap, 0, len(r.Kvs))
	for _, kv := range r.Kvs {
		key := string(kv.Key)
		old = append(old, swap{key: key, revision: kv.ModRevision, op: clientv3.OpDelete(key), size: len(key)})
	}
	return old, nil
}

func (s *Sweeper) txn(ctx context.Context, compares []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return txn(ctx, s.kv, compares, then, otherwise)
}
