package store_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// startSweeper runs a sweeper that sweeps everything all the time. Liable are those
// holders that are named; nil: nobody is thought to be.
func startSweeper(t *testing.T, kv store.Doer, me string, liable ...string) (s *store.Sweeper, stop func()) {
	t.Helper()
	s = newSweeper(kv, me, liable...)
	return s, runSweeper(t, s)
}

func newSweeper(kv store.Doer, me string, liable ...string) *store.Sweeper {
	s := store.NewSweeper(kv, func(id string) bool {
		for _, l := range liable {
			if l == id {
				return true
			}
		}
		return false
	}, func() string { return me })
	s.Every, s.Shards = 5*time.Millisecond, 256
	return s
}

func runSweeper(t *testing.T, s *store.Sweeper) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = s.Run(ctx) })
	stop = sync.OnceFunc(func() { cancel(); done.Wait() })
	t.Cleanup(stop)
	return stop
}

// sweptTwice waits until a sweep has begun and ended.
func sweptTwice(t *testing.T, s *store.Sweeper) {
	t.Helper()
	from := s.Stats().Sweeps
	eventually(t, "swept", func() bool { return s.Stats().Sweeps >= from+2 })
}

func storeAccount(t *testing.T, c *clientv3.Client, k quota.Key, a quota.Account) {
	t.Helper()
	value, err := store.EncodeAccount(a)
	if err != nil {
		t.Fatal(err)
	}
	put(t, c, store.AccountKey(k), string(value))
}

func readAccount(t *testing.T, c *clientv3.Client, k quota.Key) quota.Account {
	t.Helper()
	a, _, err := store.NewAccounts(c).Read(t.Context(), k)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// C101: replica a has a lease of 100, 25 of it reported, and is killed. Until its
// liable key is gone its lease counts as out, whatever a sweeper believes; then 25 are
// used and 75 are back, once. What b holds stays.
func TestSweep_A33_A46_C101_ADeadHoldersLeasesComeBackOnce(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	k := accountOf("org:a/b")
	accounts := store.NewAccounts(c)
	for _, id := range []string{"a", "b"} {
		put(t, c, store.LiableKey(id), "")
		apply(t, accounts, quota.Operation{Key: k, App: "shop", Holder: id, Seq: 1, Want: 100, Min: 1, Ceiling: 1000, Replicas: 1})
	}
	apply(t, accounts, quota.Operation{
		Key: k, App: "shop", Holder: "a", Seq: 2, Used: 25, Hold: []quota.Lease{{ID: 1, Units: 75}}, Ceiling: 1000,
	})
	s, stop := startSweeper(t, c, "c", "b") // which thinks that a is gone
	sweptTwice(t, s)
	if a := readAccount(t, c, k); a.Used() != 25 || a.Leased() != 175 {
		t.Errorf("used %d, leased %d while a is liable; want 25 and 175", a.Used(), a.Leased())
	}
	del(t, c, store.LiableKey("a"))
	eventually(t, "settled", func() bool { return s.Stats().Units > 0 })
	sweptTwice(t, s)
	stop()
	a := readAccount(t, c, k)
	if a.Used() != 25 || a.Leased() != 100 || a.Base != 25 || len(a.Holders) != 1 || a.Holders[0].ID != "b" {
		t.Errorf("after the sweep %+v, want 25 in the base and b with its 100", a)
	}
	if got := s.Stats(); got.Holders != 1 || got.Units != 75 || got.Failed != 0 || got.Accounts == 0 {
		t.Errorf("counted %+v, want 1 holder and 75 units", got)
	}
}

// The other C of C101: what a holder uses after it was settled is reported under its
// next incarnation, and the sweep neither takes nor counts it.
func TestSweep_C101_AHolderThatComesBackLosesNothing(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	k := accountOf("org:a")
	accounts := store.NewAccounts(c)
	put(t, c, store.LiableKey("c1"), "")
	apply(t, accounts, quota.Operation{Key: k, Holder: "c1", Seq: 1, Want: 50, Min: 1, Ceiling: 1000, Replicas: 1})
	del(t, c, store.LiableKey("c1"))
	s, _ := startSweeper(t, c, "d", "c2")
	eventually(t, "settled", func() bool { return s.Stats().Units == 50 })
	put(t, c, store.LiableKey("c2"), "")
	apply(t, accounts, quota.Operation{Key: k, Holder: "c2", Seq: 1, Used: 15})
	sweptTwice(t, s)
	if a := readAccount(t, c, k); a.Used() != 15 || a.Leased() != 0 {
		t.Errorf("used %d, leased %d; want the 15 once", a.Used(), a.Leased())
	}
}

// With etcd's own clock: the fold comes after the end of the liable lease.
func TestSweep_A33_TheLiableLeaseDecides(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	m := startMember(t, c, "m", time.Minute)
	lease, err := c.Grant(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), store.LiableKey("dead"), "", clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	k := accountOf("org:a")
	storeAccount(t, c, k, quota.Account{Holders: []quota.Holder{
		{ID: "dead", Seq: 1, Used: 3, Leases: []quota.Lease{{ID: 1, Units: 7}}},
	}})
	s := store.NewSweeper(c, m.Liable, m.Incarnation)
	s.Every, s.Shards = 5*time.Millisecond, 256
	runSweeper(t, s)
	eventually(t, "settled", func() bool { return s.Stats().Units == 7 })
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(t.Context()))
	defer cancel()
	var ended int64
	for r := range c.Watch(ctx, store.LiableKey("dead"), clientv3.WithRev(1)) {
		for _, e := range r.Events {
			if e.Type == clientv3.EventTypeDelete {
				ended = e.Kv.ModRevision
			}
		}
		break //nolint:staticcheck // all of history comes in the first response
	}
	r, err := c.Get(t.Context(), store.AccountKey(k))
	if err != nil || ended == 0 || r.Kvs[0].ModRevision <= ended {
		t.Errorf("settled at %d, the liable key ended at %d, %v", r.Kvs[0].ModRevision, ended, err)
	}
}

// Sweepers that work at the same time return every unit once, of more accounts and
// holders than one transaction takes, while one account is used and one holder is here
// after all.
func TestSweep_C101_ManySweepersReturnEachUnitOnce(t *testing.T) {
	t.Parallel()
	const many = 300
	c := ownServer(t).Client()
	put(t, c, store.LiableKey("here"), "")
	dead := func(i, n int) quota.Holder {
		return quota.Holder{ID: fmt.Sprint("dead", i%97, "-", n), Seq: 1, Used: 1, Leases: []quota.Lease{{ID: 1, Units: int64(i)}}}
	}
	var want int64
	for i := range many {
		a := quota.Account{Holders: []quota.Holder{dead(i, 1), dead(i, 2)}}
		want += 2 * int64(i)
		if i == 7 {
			a.Holders = append(a.Holders, quota.Holder{ID: "here", Seq: 1, Leases: []quota.Lease{{ID: 1, Units: 5}}})
		}
		storeAccount(t, c, accountOf(fmt.Sprint("t", i)), a)
	}
	want -= 2 * 7 // of the account with a holder that sweepers wrongly think is gone
	var all []*store.Sweeper
	for i := range 4 {
		s, _ := startSweeper(t, c, fmt.Sprint("s", i))
		all = append(all, s)
	}
	returned := func() (units int64) {
		for _, s := range all {
			units += s.Stats().Units
		}
		return units
	}
	eventuallyWithin(t, time.Minute, "settled", func() bool { return returned() >= want })
	for _, s := range all {
		eventually(t, "swept again", func() bool { return s.Stats().Sweeps > 0 })
	}
	sweptTwice(t, all[0])
	for i := range many {
		r, err := c.Get(t.Context(), store.AccountKey(accountOf(fmt.Sprint("t", i))))
		if err != nil {
			t.Fatal(err)
		}
		a, err := store.DecodeAccount(r.Kvs[0].Value)
		writes, holders := int64(2), 0
		if i == 7 {
			writes, holders = 1, 3
		}
		if err != nil || r.Kvs[0].Version != writes || len(a.Holders) != holders || a.Used() != 2 {
			t.Fatalf("account %d was written %d times and is %+v, %v", i, r.Kvs[0].Version, a, err)
		}
	}
	if got := returned(); got != want {
		t.Errorf("%d units returned, want %d", got, want)
	}
}

// meddling changes an account just before it would be settled for the first time.
type meddling struct {
	store.Doer
	meddle func()
	swaps  atomic.Int64 // transactions that settle
}

func (m *meddling) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if op.IsTxn() {
		if _, then, _ := op.Txn(); strings.HasPrefix(string(then[0].KeyBytes()), store.AccountsPrefix) && m.swaps.Add(1) == 1 {
			m.meddle()
		}
	}
	return m.Doer.Do(ctx, op)
}

// An account that is used between the look and the write is left as it is then; the
// others that were to be written with it are. The next turn settles it.
func TestSweep_AnAccountThatMovesMeanwhileIsLeftAlone(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	dead := quota.Holder{ID: "dead", Seq: 1, Used: 2, Leases: []quota.Lease{{ID: 1, Units: 10}}}
	here := quota.Holder{ID: "here", Seq: 1, Used: 1, Leases: []quota.Lease{{ID: 1, Units: 4}}}
	put(t, c, store.LiableKey("here"), "")
	for i := range 3 {
		storeAccount(t, c, accountOf(fmt.Sprint(i)), quota.Account{Holders: []quota.Holder{dead}})
	}
	moved := quota.Account{Holders: []quota.Holder{dead, here}}
	m := &meddling{Doer: c, meddle: func() { storeAccount(t, c, accountOf("1"), moved) }}
	s, stop := startSweeper(t, m, "a", "here")
	eventually(t, "settled", func() bool { return s.Stats().Holders == 3 })
	stop()
	// Lost with all three, made with two; then the third alone.
	if got := s.Stats(); got.Units != 30 || m.swaps.Load() != 3 || got.Failed != 0 {
		t.Errorf("counted %+v in %d transactions, want 30 units in 3", got, m.swaps.Load())
	}
	if a := readAccount(t, c, accountOf("1")); a.Base != 2 || len(a.Holders) != 1 || a.Holders[0].ID != "here" || a.Leased() != 4 {
		t.Errorf("the account that moved is %+v, want 2 in the base and the other holder as it was", a)
	}
}

// S30: what a newer version has written stays, but for what belongs to holders that
// are gone.
func TestSweep_S30_UnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	k := accountOf("org:a")
	field := func(text string) []byte { return append([]byte{0xa2, 0x02, byte(len(text))}, text...) } // number 36
	put(t, c, store.LiableKey("b"), "")
	storeAccount(t, c, k, quota.Account{Unknown: field("account"), Holders: []quota.Holder{
		{ID: "a", Seq: 1, Used: 4, Unknown: field("gone")},
		{ID: "b", Seq: 1, Unknown: field("holder"), Leases: []quota.Lease{{ID: 1, Units: 2, Unknown: string(field("lease"))}}},
	}})
	s, stop := startSweeper(t, c, "c", "b")
	eventually(t, "settled", func() bool { return s.Stats().Holders == 1 })
	stop()
	a := readAccount(t, c, k)
	if len(a.Holders) != 1 || len(a.Holders[0].Leases) != 1 {
		t.Fatalf("settled to %+v", a)
	}
	b := a.Holders[0]
	if string(a.Unknown) != string(field("account")) || string(b.Unknown) != string(field("holder")) || b.Leases[0].Unknown != string(field("lease")) {
		t.Errorf("settled to %+v", a)
	}
}

// What is no account, or cannot be read, is left alone and keeps nobody waiting.
func TestSweep_LeavesWhatItCannotRead(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	k := accountOf("org:a")
	bad, note := store.AccountKey(accountOf("org:bad")), store.AccountPrefix("org:root", "note")
	put(t, c, bad, "\xff\xff")
	put(t, c, note, "")
	storeAccount(t, c, k, quota.Account{Holders: []quota.Holder{{ID: "a", Seq: 1, Leases: []quota.Lease{{ID: 1, Units: 2}}}}})
	s, _ := startSweeper(t, c, "b")
	eventually(t, "settled", func() bool { return s.Stats().Units == 2 })
	if get(t, c, bad) != "\xff\xff" || s.Stats().Failed != 0 {
		t.Errorf("the account is now %q, counted %+v", get(t, c, bad), s.Stats())
	}
}

// A recall is removed some sweeps after it was asked, and not when it was asked again.
func TestSweep_RemovesOldRecalls(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	for i := range 200 {
		put(t, c, store.RecallKey(accountOf(fmt.Sprint(i))), "")
	}
	s, stop := startSweeper(t, c, "a")
	again := store.RecallKey(accountOf("7"))
	eventuallyWithin(t, time.Minute, "removed", func() bool {
		put(t, c, again, "")
		return s.Stats().Recalls == 199
	})
	put(t, c, again, "")
	before := s.Stats().Sweeps
	eventually(t, "removed", func() bool { return s.Stats().Recalls == 200 })
	if stop(); s.Stats().Sweeps < before+3 {
		t.Errorf("removed within %d sweeps", s.Stats().Sweeps-before)
	}
	if r, err := c.Get(t.Context(), store.RecallsPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly()); err != nil || r.Count != 0 {
		t.Errorf("%d are left, %v", r.Count, err)
	}
}

// Replicas take turns by moving one key: about once a minute in all, however many
// there are, and every shard has its turn in about half an hour.
func TestSweep_OneTurnAMinuteForAllReplicas(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &memoryKV{}
		var at []time.Time
		var shards []int
		kv.puts = func(key string) {
			if key != store.SweepKey {
				return
			}
			at = append(at, time.Now())
			var turn struct {
				Next int `json:"next_shard"`
			}
			if err := json.Unmarshal(kv.keys[key].Value, &turn); err != nil {
				t.Error(err)
			}
			shards = append(shards, turn.Next)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var done sync.WaitGroup
		sweepers := make([]*store.Sweeper, 5)
		for i := range sweepers {
			s := store.NewSweeper(kv, func(string) bool { return true }, func() string { return fmt.Sprint(i) })
			sweepers[i] = s
			done.Go(func() { _ = s.Run(ctx) })
		}
		time.Sleep(time.Hour)
		cancel()
		done.Wait()
		var sum int64
		for _, s := range sweepers {
			sum += s.Stats().Sweeps
		}
		if int(sum) != len(at) || sum < 32 || sum > 75 {
			t.Errorf("%d turns in an hour, of %d moves; want one a minute, more or less", sum, len(at))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < 48*time.Second || gap > 2*time.Minute {
				t.Errorf("turn %d comes %v after the one before", i, gap)
			}
			if shards[i] != (shards[i-1]+8)%256 {
				t.Errorf("turn %d ends at shard %d, the one before at %d", i, shards[i], shards[i-1])
			}
		}
	})
}

// One replica alone settles every shard within 35 minutes.
func TestSweep_A33_EveryShardHasItsTurn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &memoryKV{}
		value, err := store.EncodeAccount(quota.Account{Holders: []quota.Holder{{ID: "a", Leases: []quota.Lease{{ID: 1, Units: 1}}}}})
		if err != nil {
			t.Fatal(err)
		}
		shards := map[string]bool{}
		for i := 0; len(shards) < 256; i++ {
			key := store.AccountKey(quota.Key{Root: fmt.Sprint(i), Tenant: "t", Limit: "l", Window: "w"})
			if shard := strings.Split(key, "/")[5]; !shards[shard] {
				shards[shard] = true
				kv.set(key, value)
			}
		}
		s := store.NewSweeper(kv, func(string) bool { return false }, func() string { return "b" })
		stop := runSweeper(t, s)
		time.Sleep(35 * time.Minute)
		stop()
		if got := s.Stats(); got.Units != 256 || got.Holders != 256 || got.Failed != 0 {
			t.Errorf("counted %+v, want 256 units of 256 holders", got)
		}
	})
}

// Accounts of descriptors, and of tenants without a document, whose windows are long over
// are removed, no matter who is liable; those of running windows and of other tenants stay (P36).
func TestSweep_C027_RemovesCountersOfWindowsLongOver(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	now := time.Now()
	window := func(kind quota.CalendarKind, at time.Time) string { return quota.Calendar{Kind: kind}.Window(at).ID }
	counter := func(limit, window string) quota.Key {
		return quota.Key{Root: "edge?ip=1", Tenant: "edge?ip=1", Limit: limit, Window: window}
	}
	over := []quota.Key{
		counter("ratelimit:per_hour", window(quota.Hour, now.Add(-4*time.Hour))),
		counter("ratelimit:per_hour=5", window(quota.Hour, now.Add(-4*time.Hour))),
		counter("ratelimit:per_day", window(quota.Day, now.AddDate(0, 0, -4))),
		{Root: "made-up", Tenant: "made-up", Limit: "hourly", Window: window(quota.Hour, now.Add(-4*time.Hour))},
		{Root: "made-up", Tenant: "made-up", Limit: "monthly", Window: window(quota.Month, now.AddDate(0, -3, 0))},
	}
	stay := []quota.Key{
		counter("ratelimit:per_hour", window(quota.Hour, now)),
		counter("ratelimit:per_hour", window(quota.Hour, now.Add(-90*time.Minute))),
		counter("ratelimit:per_month", window(quota.Month, now)),
		counter("ratelimit:per_fortnight", window(quota.Hour, now.Add(-40*time.Hour))),
		counter("ratelimit:per_hour", "hour"),
		{Root: "made-up", Tenant: "made-up", Limit: "monthly", Window: window(quota.Month, now)},
		{Root: "made-up", Tenant: "made-up", Limit: "hourly", Window: window(quota.Hour, now.Add(-90*time.Minute))},
		{Root: "org:a", Tenant: "org:a", Limit: "hourly", Window: window(quota.Hour, now.Add(-40*time.Hour))},
	}
	for _, k := range append(over, stay...) {
		storeAccount(t, c, k, quota.Account{Base: 7, Holders: []quota.Holder{{ID: "a", Seq: 1, Used: 3, Leases: []quota.Lease{{ID: 1, Units: 2}}}}})
	}
	put(t, c, store.LiableKey("a"), "")
	s := newSweeper(c, "me", "a")
	s.Declared = func(tenant string) bool { return tenant == "org:a" }
	stop := runSweeper(t, s)
	sweptTwice(t, s)
	stop()
	for _, k := range over {
		if a := readAccount(t, c, k); a.Used() != 0 {
			t.Errorf("%s is still there", store.AccountKey(k))
		}
	}
	for _, k := range stay {
		if a := readAccount(t, c, k); a.Used() != 10 || a.Leased() != 2 {
			t.Errorf("%s is changed: %+v", store.AccountKey(k), a)
		}
	}
	if n := s.Stats().Ended; n != int64(len(over)) {
		t.Errorf("counts %d removed, want %d", n, len(over))
	}
}
