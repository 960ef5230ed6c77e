package quota_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// orphans returns n of one holder, each with 3 units that were not reported.
func orphans(holder string, n int) []quota.Orphan {
	all := make([]quota.Orphan, n)
	for i := range all {
		all[i] = orphan(3, 0)
		all[i].Key.Tenant, all[i].Holder, all[i].Wall = fmt.Sprint("t", i), holder, time.Now().UnixNano()
	}
	return all
}

// atOnce counts the operations that a slow store has under way.
type atOnce struct {
	quota.Store
	now, most, calls atomic.Int64
}

func (a *atOnce) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	a.calls.Add(1)
	defer a.now.Add(-1)
	for n := a.now.Add(1); ; {
		if most := a.most.Load(); n <= most || a.most.CompareAndSwap(most, n) {
			break
		}
	}
	time.Sleep(time.Millisecond)
	return a.Store.Apply(ctx, op)
}

func TestRecovery_P68_AllThatKilledProcessesLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m storetest.Memory
		s := &atOnce{Store: storetest.LostReply(&m, 7)}
		var settled [][]string
		all := append(orphans("a1", 1000), orphans("a2", 300)...)
		r := quota.NewRecovery(quota.RecoveryConfig{
			Store: s, Now: time.Now, Settled: func(holders []string) { settled = append(settled, holders) },
		}, all)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(settled) != 1 || !slices.Equal(settled[0], []string{"a1", "a2"}) {
			t.Errorf("settled was told %v, want a1 and a2, once", settled)
		}
		if most := s.most.Load(); most != 64 {
			t.Errorf("%d at once, want 64", most)
		}
		if st := r.Stats(); st.Left != 0 || st.Settled != 1300 || st.Reported != 3900 || st.Lost+st.Dropped != 0 || st.Failed == 0 {
			t.Errorf("stats: %+v", st)
		}
		var sum int64
		for _, k := range m.Accounts() {
			a := m.Account(k)
			sum += a.Used()
		}
		if sum != 3900 {
			t.Errorf("the accounts have %d, want 3900", sum)
		}
	})
}

// While the store is away one orphan a second is tried; what was used less than 10
// minutes ago when it comes back is reported, and older use is dropped (A59).
func TestRecovery_A59_TheStoreIsAway(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		away              time.Duration
		reported, dropped int64
	}{{5 * time.Minute, 1500, 0}, {11 * time.Minute, 0, 1500}} {
		t.Run(c.away.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var m storetest.Memory
				link := storetest.Partition(&m)
				link.Cut()
				s := &atOnce{Store: link}
				r := quota.NewRecovery(quota.RecoveryConfig{Store: s, Now: time.Now}, orphans("dead", 500))
				done := make(chan error, 1)
				go func() { done <- r.Run(t.Context()) }()
				time.Sleep(c.away)
				if n := s.calls.Load(); n > 64+int64(c.away/time.Second) {
					t.Errorf("%d operations in %v", n, c.away)
				}
				if st := r.Stats(); st.Left != 500 || st.Err == nil {
					t.Errorf("while it is away: %+v", st)
				}
				link.Heal()
				began := time.Now()
				if err := <-done; err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("took %v once the store was back", took)
				}
				if st := r.Stats(); st.Reported != c.reported || st.Dropped != c.dropped || st.Err != nil {
					t.Errorf("stats: %+v, want %d reported and %d dropped", st, c.reported, c.dropped)
				}
			})
		})
	}
}

// poisoned refuses some accounts.
type poisoned struct {
	quota.Store
	bad func(tenant string) bool
}

func (p poisoned) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	if p.bad(op.Key.Tenant) {
		return quota.Result{}, fmt.Errorf("cannot be read: %w", quota.ErrNotApplied)
	}
	return p.Store.Apply(ctx, op)
}

// Accounts that cannot be settled hold up no other one, however many there are and
// wherever they stand, but nothing is forgotten while they are there.
func TestRecovery_SomeAccountsCannotBeSettled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var m storetest.Memory
		s := poisoned{&m, func(tenant string) bool { return len(tenant) < 4 }} // the first hundred
		told := false
		r := quota.NewRecovery(quota.RecoveryConfig{Store: s, Now: time.Now, Settled: func([]string) { told = true }}, orphans("dead", 900))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the deadline", err)
		}
		if st := r.Stats(); st.Settled != 800 || st.Left != 100 || told {
			t.Errorf("stats: %+v, all settled: %v; want 800 settled and 100 left", st, told)
		}
	})
}

func TestRecovery_NothingWasLeft(t *testing.T) {
	t.Parallel()
	told := 0
	r := quota.NewRecovery(quota.RecoveryConfig{Store: &storetest.Memory{}, Now: time.Now, Settled: func([]string) { told++ }}, nil)
	if err := r.Run(t.Context()); err != nil || told != 1 {
		t.Errorf("%v, told %d times", err, told)
	}
}

// Two orphans of one account and holder do not undo each other.
func TestRecovery_TheLastOfTwoCounts(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int64{{5, 9}, {9, 5}} {
		var m storetest.Memory
		var all []quota.Orphan
		for _, n := range order {
			o := orphan(n, 0)
			o.Wall += n
			all = append(all, o)
		}
		all[0].Key.Root = "moved" // which says where an account is, not which one
		r := quota.NewRecovery(quota.RecoveryConfig{Store: &m, Now: func() time.Time { return time.Unix(0, died) }}, all)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		settled(t, &m, 9)
	}
}

// Two orphans of accounts in different trees, of a tenant that moved, are both recovered.
func TestRecovery_A26_OfATenantThatMoved(t *testing.T) {
	t.Parallel()
	m := storetest.Memory{Trees: true}
	all := []quota.Orphan{orphan(5, 0), orphan(9, 0)}
	all[1].Key.Root = "org:new"
	r := quota.NewRecovery(quota.RecoveryConfig{
		Store: &m, Now: func() time.Time { return time.Unix(0, died) }, SameAccount: func(quota.Key, quota.Key) bool { return false },
	}, all)
	if err := r.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, want := range []int64{5, 9} {
		if got := m.Account(all[i].Key).Used(); got != want {
			t.Errorf("%s: %d are used, want %d", all[i].Key.Root, got, want)
		}
	}
}
