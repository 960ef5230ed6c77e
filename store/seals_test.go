package store_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/store"
)

// A sealClock is moved by hand; all replicas of a test may have it.
type sealClock struct {
	mu  sync.Mutex
	now time.Time
}

func newSealClock() *sealClock {
	return &sealClock{now: time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)}
}

func (c *sealClock) time() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *sealClock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// A sealer is one replica's seals, and what it was told.
type sealer struct {
	*store.Seals
	stop  func()
	looks atomic.Int64 // at the clock

	mu    sync.Mutex
	signs []store.SealKey
	all   []store.SealKey
}

// newSealer returns one that looks at the clock all the time.
func newSealer(t *testing.T, c *store.Cluster, now func() time.Time) *sealer {
	t.Helper()
	s := &sealer{Seals: store.NewSeals(c)}
	s.Progress, s.Silence = 5*time.Millisecond, 2*time.Second
	s.Now = func() time.Time { s.looks.Add(1); return now() }
	s.OnKeys = func(sign store.SealKey, all []store.SealKey) {
		if !slices.Contains(all, sign) {
			t.Errorf("told to sign with %v, which is not among %v", sign, all)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.signs, s.all = append(s.signs, sign), all
	}
	return s
}

func (s *sealer) run(t *testing.T) *sealer {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = s.Run(ctx) })
	s.stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(s.stop)
	return s
}

func startSealer(t *testing.T, c *clientv3.Client, now func() time.Time) *sealer {
	t.Helper()
	return newSealer(t, store.ClusterOf(c), now).run(t)
}

func startSealers(t *testing.T, n int, c *clientv3.Client, now func() time.Time) []*sealer {
	t.Helper()
	var all []*sealer
	for range n {
		all = append(all, startSealer(t, c, now))
	}
	return all
}

// sign returns the last key that s was told to sign with; zero: none yet.
func (s *sealer) sign() store.SealKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.signs) == 0 {
		return store.SealKey{}
	}
	return s.signs[len(s.signs)-1]
}

func (s *sealer) keys() []store.SealKey {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.all)
}

// knows waits until s was last told of exactly these keys.
func (s *sealer) knows(t *testing.T, keys ...store.SealKey) {
	t.Helper()
	eventually(t, fmt.Sprint("knows ", keys), func() bool { return slices.Equal(s.keys(), keys) })
}

// looked waits until all have seen to what the clock says now.
func looked(t *testing.T, all ...*sealer) {
	t.Helper()
	for _, s := range all {
		from := s.looks.Load()
		eventually(t, "looks", func() bool { return s.looks.Load() >= from+10 }) // at most 4 at a time
	}
}

// storedSeals returns what is stored, by key.
func storedSeals(t *testing.T, c *clientv3.Client) map[string]string {
	t.Helper()
	r, err := c.Get(t.Context(), store.SealsPrefix, clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, kv := range r.Kvs {
		all[string(kv.Key)] = string(kv.Value)
	}
	return all
}

// putSeal puts a key as another replica does.
func putSeal(t *testing.T, c *clientv3.Client, id uint32, made time.Time) store.SealKey {
	t.Helper()
	k := store.SealKey{ID: id}
	copy(k.Key[:], fmt.Sprintf("secret of %06x", id))
	put(t, c, sealKey(id), fmt.Sprintf(`{"key":%q,"made":%q,"colour":"red"}`,
		base64.StdEncoding.EncodeToString(k.Key[:]), made.Format(time.RFC3339)))
	return k
}

func sealKey(id uint32) string { return fmt.Sprintf("%s%08x", store.SealsPrefix, id) }

// Replicas that start together on a store without keys, or without keys any more, agree on
// one, whatever else was deleted with them.
func TestSeals_A26_FirstKeyIsOne(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	clock := newSealClock()
	for round := range 20 {
		replicas := startSealers(t, 3, c, clock.time)
		for _, s := range replicas {
			eventually(t, "a key", func() bool { return len(s.keys()) > 0 })
		}
		looked(t, replicas...)
		stored := storedSeals(t, c)
		for _, s := range replicas {
			s.stop()
			if k := s.sign(); len(stored) != 1 || len(s.keys()) != 1 || k != replicas[0].sign() || stored[sealKey(k.ID)] == "" || k.Key == [16]byte{} {
				t.Fatalf("round %d: %v is told, %v is stored", round, s.keys(), slices.Collect(maps.Keys(stored)))
			}
		}
		prefix := store.SealsPrefix
		if round%2 == 1 {
			prefix = store.Prefix + "state/"
		}
		if _, err := c.Delete(t.Context(), prefix, clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
	}
}

// What is stored is what the documents say: old and new versions read it.
func TestSeals_A26_WhatIsStored(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	clock := newSealClock()
	s := newSealer(t, store.ClusterOf(c), clock.time)
	s.Progress = time.Hour // the first key is made at once
	s.run(t)
	eventually(t, "a key", func() bool { return len(s.keys()) == 1 })
	for key, value := range storedSeals(t, c) {
		var r struct{ Key, Made string }
		if err := json.Unmarshal([]byte(value), &r); err != nil {
			t.Error(err)
		}
		k := s.sign()
		if key != sealKey(k.ID) || !regexp.MustCompile(`^/mete/v1/state/seals/[0-9a-f]{8}$`).MatchString(key) ||
			r.Key != base64.StdEncoding.EncodeToString(k.Key[:]) || r.Made != "2026-11-01T12:00:00Z" {
			t.Errorf("%s: made %s", key, r.Made)
		}
		if turn := get(t, c, store.SealsKey); turn != fmt.Sprintf(`{"newest":"%08x","made":"2026-11-01T12:00:00Z"}`, k.ID) {
			t.Errorf("%s: %s", store.SealsKey, turn)
		}
	}
}

// A key is signed with once this replica has known it for 10 s, and not before, though
// all that it may come back with is known at once.
func TestSeals_A26_SignsOnlyAfterAWhile(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	clock := newSealClock()
	first := putSeal(t, c, 7, clock.time())
	s := startSealer(t, c, clock.time)
	s.knows(t, first) // the only one is signed with at once
	clock.move(time.Hour)
	second := putSeal(t, c, 3, clock.time().Add(-time.Hour)) // made long ago, by another clock
	s.knows(t, first, second)
	clock.move(10*time.Second - 1)
	looked(t, s)
	third := putSeal(t, c, 5, clock.time())
	s.knows(t, first, second, third)
	if s.sign() != first {
		t.Errorf("signs with %v before 10 s", s.sign())
	}
	clock.move(1)
	eventually(t, "signs with the second", func() bool { return s.sign() == second })
	clock.move(10*time.Second - 1)
	eventually(t, "signs with the third", func() bool { return s.sign() == third })
	del(t, c, sealKey(third.ID))
	s.knows(t, first, second)
	if s.sign() != second || !slices.Equal(s.signs, []store.SealKey{first, first, first, second, third, second}) {
		t.Errorf("signs with %v, was told %v", s.sign(), s.signs)
	}
}

// A key that was put again is a new one: others may not have heard of it yet.
func TestSeals_A26_AKeyPutAgainIsNew(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	clock := newSealClock()
	first, second := putSeal(t, c, 1, clock.time()), putSeal(t, c, 2, clock.time())
	s := startSealer(t, c, clock.time)
	s.knows(t, first, second)
	clock.move(time.Minute)
	eventually(t, "signs with the second", func() bool { return s.sign() == second })
	put(t, c, sealKey(second.ID), fmt.Sprintf(`{"key":%q}`, base64.StdEncoding.EncodeToString([]byte("another sixteen."))))
	eventually(t, "signs with the first", func() bool { return s.sign() == first })
	changed := s.keys()[1]
	clock.move(10 * time.Second)
	eventually(t, "signs with the changed one", func() bool { return s.sign() == changed && changed.ID == 2 && changed != second })
	put(t, c, sealKey(second.ID), get(t, c, sealKey(second.ID)))
	eventually(t, "signs with the first again", func() bool { return s.sign() == first })
}

// A replica that starts signs with the second newest: everybody knows that one, and the
// older ones may be deleted soon.
func TestSeals_A26_AReplicaThatStartsSignsWithTheSecondNewest(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	clock := newSealClock()
	first, second, third := putSeal(t, c, 9, clock.time()), putSeal(t, c, 5, clock.time()), putSeal(t, c, 7, clock.time())
	s := startSealer(t, c, clock.time)
	s.knows(t, first, second, third)
	if s.sign() != second {
		t.Errorf("signs with %v", s.sign())
	}
	clock.move(10 * time.Second)
	eventually(t, "signs with the newest", func() bool { return s.sign() == third })
}

// What cannot be read is logged once, whatever is read again, and never its value; it
// keeps nobody from making a key.
func TestSeals_A26_MalformedValues(t *testing.T) {
	t.Parallel()
	const secret = "c2VjcmV0IG9mIDAwMDAwMQ=="
	c := ownServer(t).Client()
	bad := map[string]string{
		sealKey(1): "", sealKey(2): `{"key":"` + secret, sealKey(3): `{}`, sealKey(4): `{"key":"` + secret[:20] + `"}`,
		sealKey(5): `{"key":["` + secret + `"]}`, sealKey(6): `{"key":"` + secret[:22] + `!` + `"}`,
		sealKey(7): `{"key":"` + base64.StdEncoding.EncodeToString(make([]byte, 17)) + `"}`, sealKey(8): "\x08\x01" + secret,
		store.SealsPrefix:              `{"key":"` + secret + `"}`,
		store.SealsPrefix + "0000000A": `{"key":"` + secret + `"}`,
		store.SealsPrefix + "a":        `{"key":"` + secret + `"}`,
		store.SealsPrefix + "+0000001": `{"key":"` + secret + `"}`,
		sealKey(9) + "/notes":          `{"key":"` + secret + `"}`,
	}
	for key, value := range bad {
		put(t, c, key, value)
	}
	var log syncBuffer
	clock := newSealClock()
	s := newSealer(t, store.ClusterOf(c), clock.time)
	s.Log = zerolog.New(&log)
	s.run(t)
	eventually(t, "a key", func() bool { return len(s.keys()) == 1 })
	put(t, c, store.EpochKey, "another") // all is read again
	good := store.SealKey{ID: 0xfffffffe}
	copy(good.Key[:], "secret of 000001")
	put(t, c, sealKey(good.ID), `{"made":"yesterday","key":"`+secret+`"}`)
	eventually(t, "a good one", func() bool { return len(s.keys()) == 2 && s.keys()[1] == good })
	looked(t, s)
	for key := range bad {
		if n := strings.Count(log.String(), `"key":"`+key+`"`); n != 1 {
			t.Errorf("%s is logged %d times", key, n)
		}
	}
	if strings.Contains(log.String(), secret[:8]) || strings.Contains(log.String(), "secret of") {
		t.Error(log.String())
	}
	put(t, c, sealKey(1), "changed")
	eventually(t, "logged again", func() bool { return strings.Count(log.String(), sealKey(1)) == 2 })
	del(t, c, sealKey(good.ID))
	put(t, c, sealKey(2), `{"key":"`+secret+`"}`)
	eventually(t, "mended", func() bool { return len(s.keys()) == 2 && s.keys()[1].ID == 2 && s.keys()[1].Key == good.Key })
}

// Neither a log nor an error shows a secret by accident.
func TestSealKey_FormatsAsItsID(t *testing.T) {
	t.Parallel()
	k := store.SealKey{ID: 0xab, Key: [16]byte{1, 2, 3}}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%d", "%x", "%q"} {
		if got := fmt.Sprintf(verb, k); got != "seal key 000000ab" {
			t.Errorf("%s: %s", verb, got)
		}
		if got := fmt.Sprintf(verb, []*store.SealKey{&k}); strings.Contains(got, "1 2 3") || strings.Contains(got, "010203") {
			t.Errorf("%s: %s", verb, got)
		}
	}
	if b, err := json.Marshal(map[string]any{"k": k}); err != nil || string(b) != `{"k":"seal key 000000ab"}` {
		t.Errorf("%s, %v", b, err)
	}
}
