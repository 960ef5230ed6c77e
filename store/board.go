package store

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
)

// maxFollowed bounds how many accounts one replica follows.
const maxFollowed = 4096

// recallTries are made of one recall: the second one reaches another member than one
// that hangs.
const recallTries = 2

// A Board carries word between replicas through etcd. It implements [quota.Board].
// Fields are set before Run and not changed after; methods may be called before Run
// and while it runs.
type Board struct {
	cluster *Cluster
	// Incarnation tells who asks: [Members.Incarnation].
	Incarnation func() string
	Now         func() time.Time
	Log         zerolog.Logger
	// OnRecall is called when another replica asks for the units of an account, one
	// call at a time. Requests for one account that come while it runs are one. The
	// key has no root. What was asked before Run is not told.
	OnRecall func(quota.Key)
	// OnAccount is called with an account that is followed, as it is at first and
	// after each change; changes that come while it runs are one. Calls for
	// different accounts may overlap. None begins after Unfollow.
	OnAccount func(quota.Key, quota.Account)
	// MaxFollowed is how many accounts are followed at most, 4096 if not set. The
	// replica learns of the others when it asks again.
	MaxFollowed int

	asked, heard atomic.Int64
	seen         int64 // newest revision of a recall that was told; owned by the watch
	wake         chan struct{}

	mu       sync.Mutex
	followed map[quota.Key]*following // guarded by mu, as all below
	due      []*following             // to be read and watched
	watching int                      // watches that are open
	word     time.Time                // when one of them last said something, or the first was opened
	told     header                   // newest state that they know of; zero: none was opened
	passed   int64                    // calls of Follow beyond the bound
}

var _ quota.Board = (*Board)(nil)

// NewBoard returns the board of an etcd, for the replica whose incarnation is told.
func NewBoard(cluster *Cluster, incarnation func() string) *Board {
	return &Board{
		cluster: cluster, Incarnation: incarnation, Log: zerolog.Nop(),
		Now:         time.Now, //nolint:forbidigo // the default of an edge
		MaxFollowed: maxFollowed,
		wake:        make(chan struct{}, 1),
		followed:    map[quota.Key]*following{},
	}
}

// A recallRecord is what is stored under a recall key. Its revision is what counts.
type recallRecord struct {
	Incarnation string `json:"incarnation"` // that asks
	At          string `json:"at"`          // by its own clock; for people
}

// Recall implements [quota.Board]. It tries twice, 120 ms each, or two round trips if etcd is farther away.
func (b *Board) Recall(ctx context.Context, key quota.Key) error {
	value, err := json.Marshal(recallRecord{Incarnation: b.Incarnation(), At: b.Now().UTC().Format(time.RFC3339Nano)})
	if err != nil {
		panic("store: a recall that JSON cannot express: " + err.Error())
	}
	for range recallTries {
		if err = b.put(ctx, RecallKey(key), string(value)); err == nil {
			b.asked.Add(1)
			return nil
		}
		if definite(err) || ctx.Err() != nil {
			break
		}
	}
	return fmt.Errorf("ask other replicas for units, for %s: %w", told(key), err)
}

func (b *Board) put(ctx context.Context, key, value string) error {
	ctx, cancel := context.WithTimeout(ctx, patienceFor(b.cluster.RoundTrip()))
	defer cancel()
	_, err := b.cluster.Do(ctx, clientv3.OpPut(key, value))
	return err
}

// Run carries word until ctx is done, and returns its error.
func (b *Board) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { b.watchRecalls(ctx) })
	wg.Go(func() { b.watchAccounts(ctx) })
	wg.Wait()
	return ctx.Err()
}

func (b *Board) watchRecalls(ctx context.Context) {
	w := watcher{cluster: b.cluster, log: b.Log, name: "recalls", spans: []span{prefixSpan(RecallsPrefix)}}
	first := true
	w.run(ctx, func(batch batch) error {
		if first || batch.reset {
			// Nothing is held here that somebody could have meant.
			first, b.seen = false, batch.revision
		}
		b.tellRecalls(batch)
		return nil
	})
}

// tellRecalls calls OnRecall for what others have asked since the last batch.
func (b *Board) tellRecalls(batch batch) {
	for _, c := range batch.changes {
		if c.deleted() || c.revision <= b.seen {
			continue
		}
		var r recallRecord
		// What cannot be read here was written by another one, of another version.
		if json.Unmarshal(c.value(), &r) == nil && r.Incarnation == b.Incarnation() {
			continue
		}
		if key, ok := ParseRecallKey(c.key); ok && b.OnRecall != nil {
			b.heard.Add(1)
			b.OnRecall(key)
		}
	}
	b.seen = max(b.seen, batch.revision)
}

// BoardStats counts what a board has done since it was made.
type BoardStats struct {
	Asked    int64 // recalls put
	Heard    int64 // recalls of others that were told
	Followed int   // accounts that are followed now
	Passed   int64 // calls of Follow that did nothing, for there were too many
}

// Stats returns the counts.
func (b *Board) Stats() BoardStats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return BoardStats{Asked: b.asked.Load(), Heard: b.heard.Load(), Followed: len(b.followed), Passed: b.passed}
}
