package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// A board under test, and what it was told.
type board struct {
	*store.Board
	stop func()

	mu       sync.Mutex
	recalls  map[quota.Key]int
	accounts map[quota.Key][]quota.Account
}

func newBoard(t *testing.T, c *clientv3.Client, me string) *board {
	t.Helper()
	return newBoardOf(store.ClusterOf(c), me)
}

func newBoardOf(c *store.Cluster, me string) *board {
	b := &board{
		Board:    store.NewBoard(c, func() string { return me }),
		recalls:  map[quota.Key]int{},
		accounts: map[quota.Key][]quota.Account{},
	}
	b.OnRecall = func(k quota.Key) { b.mu.Lock(); defer b.mu.Unlock(); b.recalls[k]++ }
	b.OnAccount = func(k quota.Key, a quota.Account) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.accounts[k] = append(b.accounts[k], a)
	}
	return b
}

func (b *board) run(t *testing.T) *board {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = b.Run(ctx) })
	b.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(b.stop)
	return b
}

// listening returns a running board that hears what is asked from now on.
func listening(t *testing.T, c *clientv3.Client, me string) *board {
	t.Helper()
	b := newBoard(t, c, me).run(t)
	probe := accountOf("probe")
	eventually(t, me+" listens", func() bool {
		put(t, c, store.RecallKey(probe), `{"incarnation":"nobody"}`)
		return b.recalled(probe) > 0
	})
	return b
}

func (b *board) recalled(k quota.Key) int {
	k.Root = ""
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.recalls[k]
}

func (b *board) recall(t *testing.T, k quota.Key) {
	t.Helper()
	if err := b.Recall(t.Context(), k); err != nil {
		t.Fatal(err)
	}
}

func accountOf(tenant string) quota.Key {
	return quota.Key{Root: "org:root", Tenant: tenant, Limit: "monthly", Window: "2026-11"}
}

func TestBoard_RecallReachesTheOthersAndNotTheAsker(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a, b, other := listening(t, c, "a"), listening(t, c, "b"), listening(t, c, "c")
	k, once, last := accountOf("org:a/b"), accountOf("once"), accountOf("last")
	for range 3 {
		toB, toOther := b.recalled(k), other.recalled(k)
		a.recall(t, k) // a slow etcd may be told twice
		eventually(t, "asked", func() bool { return b.recalled(k) > toB && other.recalled(k) > toOther })
	}
	var r struct{ Incarnation, At string }
	if err := json.Unmarshal([]byte(get(t, c, store.RecallKey(k))), &r); err != nil || r.Incarnation != "a" || r.At == "" {
		t.Errorf("stored %+v, %v", r, err)
	}
	put(t, c, store.RecallKey(once), `{"incarnation":"nobody"}`)
	eventually(t, "asked once", func() bool { return other.recalled(once) > 0 })
	del(t, c, store.RecallKey(once)) // is no recall
	b.recall(t, last)
	eventually(t, "the last is asked", func() bool { return a.recalled(last) > 0 && other.recalled(last) > 0 })
	if n := a.recalled(k); n != 0 {
		t.Errorf("the asker was asked %d times by itself", n)
	}
	if n := other.recalled(once); n != 1 {
		t.Errorf("told of %d recalls, want 1: a deletion is none", n)
	}
	if s := a.Stats(); s.Asked != 3 {
		t.Errorf("counted %+v, want 3 asked", s)
	}
}

// What others have written there, and cannot be read, asks as well, if it has the key
// of an account.
func TestBoard_ARecallOfANewerVersionCounts(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	b := listening(t, c, "b")
	put(t, c, store.RecallsPrefix+"notes", "")
	put(t, c, store.RecallKey(accountOf("x")), "\x08\x01")
	eventually(t, "asked", func() bool { return b.recalled(accountOf("x")) > 0 })
}

func TestBoard_ABurstOfRecallsArrivesWhole(t *testing.T) {
	t.Parallel()
	const burst = 500
	c := ownServer(t).Client()
	a, b := listening(t, c, "a"), listening(t, c, "b")
	var all sync.WaitGroup
	for i := range burst {
		// Many at once take their time on a slow machine; here each has to come through.
		all.Go(func() {
			for a.Recall(t.Context(), accountOf(fmt.Sprint(i))) != nil && t.Context().Err() == nil {
				continue
			}
		})
	}
	all.Wait()
	eventuallyWithin(t, time.Minute, "all asked", func() bool {
		for i := range burst {
			if b.recalled(accountOf(fmt.Sprint(i))) == 0 {
				return false
			}
		}
		return true
	})
	for i := range burst {
		if n := a.recalled(accountOf(fmt.Sprint(i))); n != 0 {
			t.Fatalf("the asker was asked for %d, %d times", i, n)
		}
	}
}

// What was asked while the watch was away is told once it is back, though it cannot go
// on where it was; what was told before is not told again.
func TestBoard_RecallsSurviveACompaction(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	a := newBoard(t, c, "a")
	var cut cutWatcher
	cut.Watcher = c.Watcher
	away := clientv3.NewCtxClient(t.Context())
	away.KV, away.Watcher = c.KV, &cut
	b := listening(t, away, "b")
	before, while := accountOf("before"), accountOf("while")
	a.recall(t, before)
	eventually(t, "asked", func() bool { return b.recalled(before) > 0 })
	cut.cut(true)
	a.recall(t, while)
	if _, err := c.Compact(t.Context(), put(t, c, "/elsewhere", "")); err != nil {
		t.Fatal(err)
	}
	cut.cut(false)
	eventually(t, "asked meanwhile", func() bool { return b.recalled(while) > 0 })
	after := accountOf("after")
	a.recall(t, after)
	eventually(t, "asked afterwards", func() bool { return b.recalled(after) > 0 })
	if n, m := b.recalled(before), b.recalled(while); n != 1 || m != 1 {
		t.Errorf("told %d and %d times, want once each", n, m)
	}
}

// A replica that begins holds nothing that somebody may have meant.
func TestBoard_OldRecallsAreNotToldToANewReplica(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	newBoard(t, c, "a").recall(t, accountOf("old"))
	b := listening(t, c, "b")
	if n := b.recalled(accountOf("old")); n != 0 {
		t.Errorf("told %d times", n)
	}
}

// hangingPuts lets the first puts hang until their time is over.
type hangingPuts struct {
	clientv3.KV
	hang  int64
	tries atomic.Int64
}

func (h *hangingPuts) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if h.tries.Add(1) <= h.hang {
		<-ctx.Done()
		return clientv3.OpResponse{}, ctx.Err()
	}
	return h.KV.Do(ctx, op)
}

// A member that hangs costs one try, and an etcd that is away costs two.
func TestBoard_A56_ARecallDoesNotWaitForAnEtcdThatHangs(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	for _, hang := range []int64{1, 99} {
		kv := &hangingPuts{KV: c.KV, hang: hang}
		slow := clientv3.NewCtxClient(t.Context())
		slow.KV = kv
		k := accountOf(fmt.Sprint("hangs ", hang))
		err := newBoard(t, slow, "a").Recall(t.Context(), k)
		if landed := get(t, c, store.RecallKey(k)) != ""; landed != (hang == 1) || (err == nil) != landed || kv.tries.Load() != 2 {
			t.Errorf("%d hang: %d tries, landed %t, %v", hang, kv.tries.Load(), landed, err)
		}
	}
}

func TestRecallKeys(t *testing.T) {
	t.Parallel()
	k := quota.Key{Root: "org:acme", Tenant: "a/b %", Limit: "monthly", Window: "2026-11"}
	key := store.RecallKey(k)
	parsed, ok := store.ParseRecallKey(key)
	if k.Root = ""; !ok || parsed != k {
		t.Errorf("%s: got %+v, %t", key, parsed, ok)
	}
	for _, bad := range []string{
		store.AccountKey(k), store.RecallsPrefix, store.RecallsPrefix + "00/a/b", store.RecallsPrefix + "00/a/b/c/d",
		store.RecallsPrefix + "000/a/b/c", store.RecallsPrefix + "00/a%2fb/b/c",
	} {
		if _, ok := store.ParseRecallKey(bad); ok {
			t.Errorf("%s is no recall", bad)
		}
	}
	account, recall := store.AccountKey(k), store.RecallKey(k)
	if !slices.Equal([]byte(account[len(store.AccountsPrefix):]), []byte(recall[len(store.RecallsPrefix):])) {
		t.Errorf("%s and %s differ in more than what they begin with", account, recall)
	}
}
