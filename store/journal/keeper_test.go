//go:build linux || darwin

package journal_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/journal"
	"github.com/meteproject/mete/store/storetest"
)

// TestJournal_A45_P68_C101_AKeeperThatIsKilled: a keeper over a store that loses answers
// stops in the middle, again and again. What the next one finds in the journal and
// reports makes the account exact each time, and a clean stop leaves nothing.
func TestJournal_A45_P68_C101_AKeeperThatIsKilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir, m := t.TempDir(), &storetest.Memory{}
		seed := rand.Uint64()
		t.Log("seed", seed)
		dice := rand.New(rand.NewPCG(seed, 0))
		var truth int64
		for run := range 30 {
			j, left, err := journal.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			r := quota.NewRecovery(quota.RecoveryConfig{
				Store: storetest.LostReply(m, 3), Now: time.Now,
				Settled: func(holders []string) {
					if err := j.Settled(); err != nil {
						t.Error(err)
					}
					for _, h := range holders {
						m.SetLiable(h, false)
					}
				},
			}, left.Orphans)
			if err := r.Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := m.Account(key("a")).Used(); got != truth {
				t.Fatalf("run %d: %d used by the account's word, want %d: %+v", run, got, truth, r.Stats())
			}
			n := live(t, dice, m, j, string(rune('A'+run)), run == 29)
			truth += n
			if err := j.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if left := files(t, dir); len(left) != 0 {
			t.Errorf("after a clean stop: %v", left)
		}
		if got := m.Account(key("a")); got.Used() != truth || got.Leased() > 0 && len(got.Holders) > 1 {
			t.Errorf("in the end: %+v, want %d", got, truth)
		}
	})
}

// live lets a keeper charge and refund for a while and returns what was used. Unless it
// ends clean it ends at once, with operations under way.
func live(t *testing.T, dice *rand.Rand, m *storetest.Memory, j quota.Journal, holder string, clean bool) (used int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	k := quota.NewKeeper(quota.KeeperConfig{Store: storetest.LostReply(m, 4), Now: time.Now, Journal: j}, holder)
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	var lock sync.Mutex
	terms := &quota.Terms{App: "api", Amount: 1e6, Ceiling: 1e6, Rule: quota.DefaultLeaseRule(), Version: 1}
	lock.Lock()
	p := k.Open(key("a"), quota.Window{ID: "2026-11"}, terms, &lock)
	lock.Unlock()
	for range 20 + dice.IntN(400) {
		lock.Lock()
		if p.Closed() {
			p = k.Open(key("a"), quota.Window{ID: "2026-11"}, terms, &lock)
		}
		now := k.Instant(time.Now())
		var wait <-chan struct{}
		switch n := 1 + dice.Int64N(5); {
		case p.Room(now, n) != quota.Fits:
			wait = p.Await(n)
		case dice.IntN(4) == 0:
			p.Refund(now, n, p.Charge(now, n))
		default:
			p.Charge(now, n)
			used += n
		}
		if dice.IntN(100) == 0 {
			p.Close()
		}
		lock.Unlock()
		if wait != nil {
			<-wait
		}
		time.Sleep(time.Duration(dice.Int64N(int64(time.Second))))
	}
	cancel()
	<-done
	if clean {
		if err := k.Settle(t.Context()); err != nil {
			t.Error(err)
		}
	}
	return used
}
