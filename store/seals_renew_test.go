package store_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// rotated is longer than the newest key of any replica lives.
const rotated = 29 * time.Hour

func TestSeals_A26_RotationIsDoneOnce(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	clock := newSealClock()
	var log syncBuffer
	var replicas []*sealer
	for range 4 {
		s := newSealer(t, store.ClusterOf(c), clock.time)
		s.Log = zerolog.New(&log)
		replicas = append(replicas, s.run(t))
	}
	for n := 1; n <= 4; n++ {
		for _, s := range replicas {
			eventually(t, "knows them", func() bool { return len(s.keys()) == n })
		}
		clock.move(24*time.Hour - time.Second)
		looked(t, replicas...)
		if got := len(storedSeals(t, c)); got != n {
			t.Fatalf("%d keys before a day has passed, want %d", got, n)
		}
		before := replicas[0].sign()
		clock.move(rotated - 24*time.Hour)
		for _, s := range replicas {
			eventually(t, "knows the next", func() bool { return len(s.keys()) > n })
		}
		looked(t, replicas...)
		if got := len(storedSeals(t, c)); got != n+1 {
			t.Fatalf("%d keys, want one more than %d", got, n)
		}
		for _, s := range replicas {
			if s.sign() != before {
				t.Errorf("signs with %v at once", s.sign())
			}
		}
		clock.move(10 * time.Second)
		for _, s := range replicas {
			eventually(t, "signs with the next", func() bool { return s.sign() == s.keys()[n] })
		}
	}
	if n := strings.Count(log.String(), "made a new seal key"); n != 5 {
		t.Errorf("%d keys were made by the log:\n%s", n, log.String())
	}
	for _, value := range storedSeals(t, c) {
		if secret := value[len(`{"key":"`):][:24]; strings.Contains(log.String(), secret) {
			t.Errorf("a secret is in the log")
		}
	}
}

// A restarted replica does not begin to count again: the date that is stored tells it.
func TestSeals_A26_RotationSurvivesRestarts(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	clock := newSealClock()
	for range 8 {
		s := startSealer(t, c, clock.time)
		eventually(t, "a key", func() bool { return len(s.keys()) == 1 })
		clock.move(time.Minute)
		looked(t, s)
		s.stop()
		clock.move(3*time.Hour - time.Minute)
	}
	clock.move(5 * time.Hour)
	s := startSealer(t, c, clock.time)
	eventually(t, "knows it", func() bool { return len(s.keys()) == 1 })
	clock.move(time.Minute)
	eventually(t, "another one", func() bool { return len(s.keys()) == 2 })
}

// A clock that is ten years ahead makes a key a minute after it has heard of another one's,
// never sooner, and the others do not answer with keys of their own. One that is ten years
// behind makes one once it has itself known the newest for a day.
func TestSeals_A26_WrongClocks(t *testing.T) {
	t.Parallel()
	const years = 10 * 365 * 24 * time.Hour
	c := ownServer(t).Client()
	clock := newSealClock()
	good := startSealer(t, c, clock.time)
	eventually(t, "a key", func() bool { return len(good.keys()) == 1 })
	ahead := startSealer(t, c, func() time.Time { return clock.time().Add(years) })
	eventually(t, "knows it", func() bool { return len(ahead.keys()) == 1 })
	clock.move(time.Minute - 1)
	looked(t, ahead, good)
	if n := len(storedSeals(t, c)); n != 1 {
		t.Fatalf("%d keys in the first minute", n)
	}
	clock.move(1)
	eventually(t, "another one", func() bool { return len(ahead.keys()) == 2 && len(good.keys()) == 2 })
	for range 5 {
		clock.move(time.Hour)
		looked(t, ahead, good)
	}
	if n := len(storedSeals(t, c)); n != 2 {
		t.Errorf("%d keys after some hours", n)
	}
	ahead.stop()
	good.stop()
	behind := startSealer(t, c, func() time.Time { return clock.time().Add(-years) })
	eventually(t, "knows them", func() bool { return len(behind.keys()) == 2 })
	clock.move(rotated)
	eventually(t, "another one", func() bool { return len(behind.keys()) == 3 })
}

// A sealTrail keeps when each key was last signed with.
type sealTrail struct {
	t     *testing.T
	clock *sealClock

	mu   sync.Mutex
	last map[store.SealKey]time.Time
	most int
}

// follow has s note what it signs with, and check that nothing is forgotten too soon.
func (l *sealTrail) follow(s *sealer) {
	told := s.OnKeys
	var signs store.SealKey
	s.OnKeys = func(sign store.SealKey, all []store.SealKey) {
		told(sign, all)
		l.mu.Lock()
		defer l.mu.Unlock()
		now := l.clock.time()
		l.last[sign] = now
		if signs != (store.SealKey{}) {
			l.last[signs] = now
		}
		signs, l.most = sign, max(l.most, len(all))
		for k, at := range l.last {
			if now.Sub(at) < 72*time.Hour && !slices.Contains(all, k) {
				l.t.Errorf("%v is forgotten %v after a token was signed with it", k, now.Sub(at))
			}
		}
	}
}

// Whatever was signed in the last three days can be opened, by replicas that start and stop
// and were all away for a week, and by one whose clock is wrong; what is older goes.
func TestSeals_A26_OldKeysGoOnceNobodyNeedsThem(t *testing.T) {
	t.Parallel()
	const years = 10 * 365 * 24 * time.Hour
	for name, wrong := range map[string]time.Duration{"right clocks": 0, "one is ahead": years, "one is behind": -years} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ownServer(t).Client()
			clock := newSealClock()
			trail := &sealTrail{t: t, clock: clock, last: map[store.SealKey]time.Time{}}
			start := func(off time.Duration) *sealer {
				s := newSealer(t, store.ClusterOf(c), func() time.Time { return clock.time().Add(off) })
				trail.follow(s)
				s.run(t)
				eventually(t, "knows keys", func() bool { return len(s.keys()) > 0 })
				return s
			}
			replicas := []*sealer{start(0), start(wrong)}
			seen := map[string]bool{}
			for step := range 24 {
				for _, d := range []time.Duration{rotated, 10 * time.Second, time.Minute, 10 * time.Second} {
					clock.move(d)
					looked(t, replicas...)
				}
				switch step {
				case 5, 13: // one starts again
					replicas[0].stop()
					replicas[0] = start(0)
				case 9, 17: // all do, after a week
					replicas[0].stop()
					replicas[1].stop()
					clock.move(7 * 24 * time.Hour)
					replicas = []*sealer{start(0), start(wrong)}
				}
				for key := range storedSeals(t, c) {
					seen[key] = true
				}
			}
			if stored := len(storedSeals(t, c)); stored < 5 || stored > 8 || trail.most > 9 || len(seen) < 24 {
				t.Errorf("%d keys are stored, %d were at most, of %d", stored, trail.most, len(seen))
			}
		})
	}
}

// An operator may delete all keys: a new one takes their place, the same for all, and
// nobody is told that there is none.
func TestSeals_A26_AllKeysAreDeleted(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	clock := newSealClock()
	replicas := startSealers(t, 3, c, clock.time)
	var last store.SealKey
	for round := range 10 {
		for _, s := range replicas {
			eventually(t, "another key", func() bool { return len(s.keys()) == 1 && s.sign() != last })
		}
		last = replicas[0].sign()
		looked(t, replicas...)
		if n := len(storedSeals(t, c)); n != 1 || replicas[1].sign() != last || replicas[2].sign() != last {
			t.Fatalf("round %d: %d keys; %v, %v, %v", round, n, last, replicas[1].sign(), replicas[2].sign())
		}
		if _, err := c.Delete(t.Context(), store.SealsPrefix, clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
	}
}

// failingWrites does not do the first writes, or does them and does not say so.
type failingWrites struct {
	clientv3.KV
	left  atomic.Int64
	apply bool
}

func (f *failingWrites) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if _, then, _ := op.Txn(); len(then) == 0 || then[0].IsGet() || f.left.Add(-1) < 0 {
		return f.KV.Do(ctx, op)
	}
	if f.apply {
		if _, err := f.KV.Do(ctx, op); err != nil {
			return clientv3.OpResponse{}, err
		}
	}
	return clientv3.OpResponse{}, errors.New("the connection broke")
}

// A write that fails, or whose answer is lost, is tried again, and leaves one key.
func TestSeals_A26_WritesThatFail(t *testing.T) {
	t.Parallel()
	for name, apply := range map[string]bool{"not done": false, "done": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := ownServer(t).Client()
			kv := &failingWrites{KV: c.KV, apply: apply}
			kv.left.Store(3)
			flaky := clientv3.NewCtxClient(t.Context())
			flaky.KV, flaky.Watcher = kv, c.Watcher
			clock := newSealClock()
			s := startSealer(t, flaky, clock.time)
			eventually(t, "a key", func() bool { return len(s.keys()) == 1 })
			kv.left.Store(1)
			clock.move(rotated)
			eventually(t, "tried", func() bool { return kv.left.Load() == 0 })
			looked(t, s)
			clock.move(time.Minute)
			eventually(t, "another key", func() bool { return len(s.keys()) == 2 })
			looked(t, s)
			if n := len(storedSeals(t, c)); n != 2 {
				t.Errorf("%d keys", n)
			}
		})
	}
}

// What happened while the watch was away is known once it is back, though it cannot go
// on where it was.
func TestSeals_A26_C105_CompactionWhileAway(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	var cut cutWatcher
	cut.Watcher = c.Watcher
	away := clientv3.NewCtxClient(t.Context())
	away.KV, away.Watcher = c.KV, &cut
	clock := newSealClock()
	first, second := putSeal(t, c, 1, clock.time()), putSeal(t, c, 2, clock.time())
	s := startSealer(t, away, clock.time)
	s.knows(t, first, second)
	clock.move(time.Minute)
	eventually(t, "signs with the second", func() bool { return s.sign() == second })
	cut.cut(true)
	third, fourth := putSeal(t, c, 3, clock.time()), putSeal(t, c, 4, clock.time())
	del(t, c, sealKey(first.ID))
	if _, err := c.Compact(t.Context(), put(t, c, "/elsewhere", "")); err != nil {
		t.Fatal(err)
	}
	cut.cut(false)
	s.knows(t, second, third, fourth)
	if s.sign() != second { // it has known that one all the time
		t.Errorf("signs with %v", s.sign())
	}
	fifth := putSeal(t, c, 5, clock.time())
	s.knows(t, second, third, fourth, fifth)
}

// Restored from a backup, the keys of the backup hold.
func TestSeals_A26_ARestoredStoreIsReadAnew(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: filepath.Join(t.TempDir(), "now"), ClientURL: "127.0.0.1:0"}
	server, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ClientURL = server.Endpoint()
	clock := newSealClock()
	first, second := putSeal(t, server.Client(), 1, clock.time()), putSeal(t, server.Client(), 2, clock.time())
	server.Close()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	if server, err = embedded.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	c, err := store.NewCluster(store.Config{Endpoints: []string{cfg.ClientURL}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	s := newSealer(t, c, clock.time).run(t)
	defer s.stop()
	s.knows(t, first, second)
	del(t, server.Client(), sealKey(first.ID))
	var since []store.SealKey
	for id := range uint32(20) {
		since = append(since, putSeal(t, server.Client(), 100+id, clock.time()))
	}
	s.knows(t, append([]store.SealKey{second}, since...)...)
	server.Close()
	cfg.Dir = backup
	if server, err = embedded.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	eventually(t, "what the backup says", func() bool {
		return slices.Equal(s.keys(), []store.SealKey{first, second})
	})
	third := putSeal(t, server.Client(), 3, clock.time())
	s.knows(t, first, second, third)
}

// deafWatcher hears nothing under the seals: as in a store that was put in place of
// another one while nobody looked.
type deafWatcher struct {
	clientv3.Watcher
	deaf atomic.Bool
}

func (w *deafWatcher) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	if key == store.SealsPrefix && w.deaf.CompareAndSwap(true, false) {
		key = "/elsewhere/"
		opts = append(opts, clientv3.WithRange("/elsewhere0"))
	}
	return w.Watcher.Watch(ctx, key, opts...)
}

// Another epoch says that the store is another one: all is read again.
func TestSeals_A26_AnotherEpochIsReadAnew(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	ears := &deafWatcher{Watcher: c.Watcher}
	ears.deaf.Store(true)
	deaf := clientv3.NewCtxClient(t.Context())
	deaf.KV, deaf.Watcher = c.KV, ears
	clock := newSealClock()
	first := putSeal(t, c, 1, clock.time())
	s := startSealer(t, deaf, clock.time)
	s.knows(t, first)
	second := putSeal(t, c, 2, clock.time())
	looked(t, s)
	if len(s.keys()) != 1 {
		t.Fatal("it is not deaf")
	}
	put(t, c, store.EpochKey, "another")
	s.knows(t, first, second)
}
