package store_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// told returns the bases that OnAccount was called with.
func (b *board) told(k quota.Key) []int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	var bases []int64
	for _, a := range b.accounts[k] {
		bases = append(bases, a.Base)
	}
	return bases
}

func (b *board) lastTold(k quota.Key, base int64) func() bool {
	return func() bool {
		told := b.told(k)
		return len(told) > 0 && told[len(told)-1] == base
	}
}

// writeAccount writes an account that can be told by its base.
func writeAccount(t *testing.T, c *clientv3.Client, k quota.Key, base int64) int64 {
	t.Helper()
	value, err := store.EncodeAccount(quota.Account{Base: base})
	if err != nil {
		t.Fatal(err)
	}
	return put(t, c, store.AccountKey(k), string(value))
}

// connected returns a client over TCP: it has a stream of its own for each watcher.
func connected(t *testing.T, endpoint string) *clientv3.Client {
	t.Helper()
	c, err := store.Connect(store.Config{Endpoints: []string{endpoint}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestBoard_A35_FollowHearsWhenUnitsComeBack(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"in process", "over TCP"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			s := ownServer(t)
			c := s.Client()
			if where == "over TCP" {
				c = connected(t, s.Endpoint())
			}
			k, empty := accountOf("org:a/b"), accountOf("nobody")
			writeAccount(t, c, k, 7)
			b := newBoard(t, c, "b")
			b.Follow(k) // before Run
			b.run(t)
			b.Follow(empty)
			b.Follow(k) // changes nothing
			eventually(t, "told how they are", func() bool {
				return slices.Equal(b.told(k), []int64{7}) && slices.Equal(b.told(empty), []int64{0})
			})
			for base := int64(8); base < 11; base++ {
				writeAccount(t, c, k, base)
				eventually(t, "told the change", b.lastTold(k, base))
			}
			writeAccount(t, c, empty, 1)
			eventually(t, "told the first write", b.lastTold(empty, 1))
			del(t, c, store.AccountKey(k))
			eventually(t, "told the deletion", b.lastTold(k, 0))
			if got := b.told(k); !slices.Equal(got, []int64{7, 8, 9, 10, 0}) {
				t.Errorf("told %v, want each change once", got)
			}
		})
	}
}

func TestBoard_UnfollowStops(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	b := newBoard(t, c, "b").run(t)
	k, other := accountOf("k"), accountOf("other")
	writeAccount(t, c, k, 1)
	b.Follow(k)
	b.Follow(other)
	eventually(t, "told", func() bool { return b.lastTold(k, 1)() && b.lastTold(other, 0)() })
	b.Unfollow(k)
	b.Unfollow(k) // changes nothing
	b.Unfollow(accountOf("never"))
	writeAccount(t, c, k, 2)
	writeAccount(t, c, other, 2)
	eventually(t, "the other is told", b.lastTold(other, 2))
	if got := b.told(k); !slices.Equal(got, []int64{1}) {
		t.Errorf("told %v after Unfollow, want nothing new", got)
	}
	b.Follow(k)
	eventually(t, "told again", b.lastTold(k, 2))
	writeAccount(t, c, k, 3)
	eventually(t, "told the change", b.lastTold(k, 3))
}

func TestBoard_FollowHasABound(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	b := newBoard(t, c, "b")
	b.MaxFollowed = 2
	for i := range 3 {
		b.Follow(accountOf(fmt.Sprint(i)))
	}
	if s := b.Stats(); s.Followed != 2 || s.Passed != 1 {
		t.Errorf("%+v, want 2 followed and 1 passed", s)
	}
	b.run(t)
	b.Unfollow(accountOf("0"))
	b.Follow(accountOf("3"))
	eventually(t, "told of the last", b.lastTold(accountOf("3"), 0))
	eventually(t, "told of the second", b.lastTold(accountOf("1"), 0))
	if got := b.told(accountOf("2")); len(got) != 0 {
		t.Errorf("told %v of an account beyond the bound", got)
	}
}

// A watch that cannot go on where it was begins from a fresh read.
func TestBoard_FollowSurvivesACompaction(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	var cut cutWatcher
	cut.Watcher = c.Watcher
	away := clientv3.NewCtxClient(t.Context())
	away.KV, away.Watcher = c.KV, &cut
	b := newBoard(t, away, "b").run(t)
	same, changed, gone, before := accountOf("same"), accountOf("changed"), accountOf("gone"), accountOf("before")
	all := []quota.Key{same, changed, gone, before}
	for _, k := range all {
		writeAccount(t, c, k, 1)
		b.Follow(k)
		eventually(t, "told", b.lastTold(k, 1))
	}
	del(t, c, store.AccountKey(before))
	eventually(t, "told the deletion", b.lastTold(before, 0))
	cut.cut(true)
	writeAccount(t, c, changed, 2)
	del(t, c, store.AccountKey(gone))
	if _, err := c.Compact(t.Context(), put(t, c, "/elsewhere", "")); err != nil {
		t.Fatal(err)
	}
	cut.cut(false)
	eventually(t, "told what changed", func() bool { return b.lastTold(changed, 2)() && b.lastTold(gone, 0)() })
	for _, k := range all {
		writeAccount(t, c, k, 3)
		eventually(t, "told what changes", b.lastTold(k, 3))
	}
	if s, d := b.told(same), b.told(before); !slices.Equal(s, []int64{1, 3}) || !slices.Equal(d, []int64{1, 0, 3}) {
		t.Errorf("told %v and %v, want each state once", s, d)
	}
}

func TestBoard_FollowSurvivesARestartOfEtcd(t *testing.T) {
	t.Parallel()
	dir, endpoint := t.TempDir(), freeURLs(t, 1)[0].Host
	start := func() *embedded.Server {
		s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, ClientURL: endpoint, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	s := start()
	c := connected(t, endpoint)
	b := newBoard(t, c, "b").run(t)
	k, during := accountOf("k"), accountOf("during")
	writeAccount(t, s.Client(), k, 1)
	b.Follow(k)
	eventually(t, "told", b.lastTold(k, 1))
	s.Close()
	b.Follow(during) // nobody answers
	s = start()
	writeAccount(t, s.Client(), during, 5)
	last := writeAccount(t, s.Client(), k, 2)
	if _, err := s.Client().Compact(t.Context(), last); err != nil {
		t.Fatal(err)
	}
	eventually(t, "told what changed", func() bool { return b.lastTold(k, 2)() && b.lastTold(during, 5)() })
	writeAccount(t, s.Client(), k, 3)
	eventually(t, "told what changes", b.lastTold(k, 3))
	b.stop()
}

// Thousands of accounts share one stream, and come and go while it runs.
func TestBoard_FollowsThousands(t *testing.T) {
	t.Parallel()
	const many = 2000
	s := ownServer(t)
	b := newBoard(t, connected(t, s.Endpoint()), "b").run(t)
	keys := make([]quota.Key, many)
	for i := range keys {
		keys[i] = accountOf(fmt.Sprint("t", i))
		b.Follow(keys[i])
		if i%2 == 1 {
			b.Unfollow(keys[i])
		}
	}
	all := func(base int64) func() bool {
		next := 0 // all before it have been told
		return func() bool {
			for next < many && b.lastTold(keys[next], base)() {
				next += 2
			}
			return next >= many
		}
	}
	eventuallyWithin(t, time.Minute, "all told how they are", all(0))
	value, err := store.EncodeAccount(quota.Account{Base: 9})
	if err != nil {
		t.Fatal(err)
	}
	for part := range slices.Chunk(keys, 100) {
		ops := make([]clientv3.Op, len(part))
		for i, k := range part {
			ops[i] = clientv3.OpPut(store.AccountKey(k), string(value))
		}
		if _, err := s.Client().Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	eventuallyWithin(t, time.Minute, "all told the change", all(9))
	b.stop()
	if s := b.Stats(); s.Followed != many/2 || s.Passed != 0 {
		t.Errorf("%+v, want %d followed", s, many/2)
	}
	for i := 1; i < many; i += 2 {
		if slices.Contains(b.told(keys[i]), 9) {
			t.Fatalf("told of %v after Unfollow", keys[i])
		}
	}
}

// Nothing that a caller under a lock does waits for etcd.
func TestBoard_FollowAndUnfollowDoNotWait(t *testing.T) {
	t.Parallel()
	deaf := clientv3.NewCtxClient(t.Context())
	deaf.KV, deaf.Watcher = &hangingPuts{hang: 1 << 40}, clientv3.NewWatchFromWatchClient(nil, nil)
	b := newBoard(t, deaf, "b")
	b.OnAccount = nil
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Run(ctx) }()
	began := time.Now()
	for i := range 1000 {
		b.Follow(accountOf(fmt.Sprint(i)))
		b.Unfollow(accountOf(fmt.Sprint(i)))
	}
	if took := time.Since(began); took > atOnce { // what they would wait for hangs for ever
		t.Errorf("took %v", took)
	}
	cancel()
	<-done
}

// A member that hangs with all watches on it is left within seconds, once some other
// call has noticed it.
func TestBoard_FollowLeavesAMemberThatHangs(t *testing.T) {
	t.Parallel()
	p := startProxied(t)
	b := newBoardOf(p.Cluster, "b").run(t)
	defer b.stop()
	k := accountOf("k")
	writeAccount(t, p.direct, k, 1)
	b.Follow(k)
	eventually(t, "told", b.lastTold(k, 1))
	p.inUse().set(hangs)
	writeAccount(t, p.direct, k, 2)
	b.Follow(accountOf("other")) // is read on another one
	eventuallyWithin(t, 12*time.Second, "told what changed", b.lastTold(k, 2))
}

// silentWatcher takes watches and says nothing, as a member does that hangs.
type silentWatcher struct{ clientv3.Watcher }

func (silentWatcher) Watch(ctx context.Context, _ string, _ ...clientv3.OpOption) clientv3.WatchChan {
	ch := make(chan clientv3.WatchResponse)
	context.AfterFunc(ctx, func() { close(ch) })
	return ch
}

func (silentWatcher) RequestProgress(context.Context) error { return nil }

// Watches that say nothing, though they are asked, are begun again from a fresh read.
func TestBoard_C105_SilentWatchesAreBegunAnew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &memoryKV{}
		c := clientv3.NewCtxClient(t.Context())
		c.KV, c.Watcher = kv, silentWatcher{}
		b := newBoard(t, c, "b").run(t)
		k := accountOf("k")
		b.Follow(k)
		time.Sleep(time.Second)
		if got := b.told(k); !slices.Equal(got, []int64{0}) {
			t.Fatalf("told %v, want how it is", got)
		}
		value, err := store.EncodeAccount(quota.Account{Base: 4})
		if err != nil {
			t.Fatal(err)
		}
		kv.set(store.AccountKey(k), value)
		time.Sleep(30 * time.Second)
		if got := b.told(k); !slices.Equal(got, []int64{0, 4}) {
			t.Errorf("told %v half a minute after the change", got)
		}
		b.stop()
	})
}

// Where nothing is written the watches have nothing to say: that is no silence.
func TestBoard_C185_WatchesOfAnIdleStoreGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := clientv3.NewCtxClient(t.Context())
		c.KV, c.Watcher = &memoryKV{}, silentWatcher{}
		var log syncBuffer
		b := newBoard(t, c, "b")
		b.Log = zerolog.New(&log)
		b.run(t)
		b.Follow(accountOf("k"))
		time.Sleep(9 * time.Minute) // after ten the recalls are read again in any case
		if got := log.String(); got != "" {
			t.Errorf("logged:\n%.1000s", got)
		}
		b.stop()
	})
}
