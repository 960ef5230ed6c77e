package quota_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// died is when the process that left orphan was killed.
const died = int64(1_700_000_000_000_000_000)

func orphan(used, reported int64) quota.Orphan {
	return quota.Orphan{Key: key(), App: "api", Holder: "dead", Used: used, Reported: reported, Wall: died}
}

// did applies operations of holder, from sequence 1 on.
func did(t *testing.T, m *storetest.Memory, holder string, ops ...quota.Operation) {
	t.Helper()
	for i, op := range ops {
		op.Key, op.App, op.Holder, op.Seq, op.Ceiling, op.Replicas = key(), "api", holder, uint64(i+1), 1000, 1
		if _, err := m.Apply(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
}

// took is a first operation; used one that reports.
func took(units int64) quota.Operation { return quota.Operation{Want: units, Min: 1} }

func used(units, lease int64) quota.Operation {
	return quota.Operation{Used: units, Hold: []quota.Lease{{ID: 1, Units: lease}}}
}

func TestRecover_A45_A46_A59_P68_C101(t *testing.T) {
	t.Parallel()
	const minute = int64(time.Minute)
	unbased := func(used int64) quota.Orphan { return orphan(quota.Unbased+used, 0) }
	stale := func(o quota.Orphan) quota.Orphan { o.Stale = true; return o }
	fold := func(t *testing.T, m *storetest.Memory) {
		m.SetLiable("dead", false)
		did(t, m, "other", took(1))
	}
	gone := func(_ *testing.T, m *storetest.Memory) { m.SetLiable("dead", false) }
	for _, c := range []struct {
		name   string
		before []quota.Operation
		then   func(*testing.T, *storetest.Memory)
		orphan quota.Orphan
		after  int64 // how much later it is recovered
		want   quota.Recovered
		used   int64 // by the account's word
		leased int64
	}{
		{
			"what was not reported is", []quota.Operation{took(100), used(25, 75)}, nil,
			orphan(40, 25), minute, quota.Recovered{Reported: 15}, 40, 0,
		},
		{"nothing was ever reported", nil, nil, orphan(40, 0), minute, quota.Recovered{Reported: 40}, 40, 0},
		{
			"it was reported, but the answer was lost", []quota.Operation{took(100), used(40, 60)}, nil,
			orphan(40, 25), minute, quota.Recovered{}, 40, 0,
		},
		{
			"refunds are reported, too", []quota.Operation{took(100), used(25, 75)}, nil,
			orphan(20, 25), 11 * minute, quota.Recovered{Reported: -5}, 20, 0,
		},
		{"it had used nothing", []quota.Operation{took(100)}, nil, orphan(0, 0), minute, quota.Recovered{}, 0, 0},
		{"the store has never heard of it", nil, nil, orphan(0, 0), minute, quota.Recovered{}, 0, 0},
		{
			"held for 10 minutes", []quota.Operation{took(100), used(25, 75)}, nil,
			orphan(40, 25), 10 * minute, quota.Recovered{Reported: 15}, 40, 0,
		},
		{
			"held for more than 10 minutes", []quota.Operation{took(100), used(25, 75)}, nil,
			orphan(40, 25), 10*minute + 1, quota.Recovered{Dropped: 15}, 25, 0,
		},
		{
			"not liable any more", []quota.Operation{took(100), used(25, 75)}, gone,
			orphan(40, 25), minute, quota.Recovered{Lost: 15}, 25, 75,
		},
		{
			"not liable any more, and more was reported than is remembered",
			[]quota.Operation{took(100), used(25, 75)},
			gone, orphan(40, 20), minute, quota.Recovered{Lost: 15}, 25, 75,
		},
		{
			"not liable any more, and held for more than 10 minutes", []quota.Operation{took(100), used(25, 75)}, gone,
			orphan(40, 25), 31 * minute, quota.Recovered{Dropped: 15}, 25, 75,
		},
		{
			"folded away", []quota.Operation{took(100), used(25, 75)}, fold,
			orphan(40, 25), minute, quota.Recovered{Lost: 15}, 25, 1,
		},
		{
			"folded away with a report whose answer was lost", []quota.Operation{took(100), used(40, 60)}, fold,
			orphan(40, 0), minute, quota.Recovered{Lost: 40}, 40, 1,
		},
		{
			"unknown though something was reported", nil, nil,
			orphan(40, 25), minute, quota.Recovered{Lost: 15}, 0, 0,
		},
		{
			"on top of what a forerunner reported", []quota.Operation{took(100), used(25, 75)}, nil,
			unbased(7), minute, quota.Recovered{Reported: 7}, 32, 0,
		},
		{
			"a refund of what a forerunner reported", []quota.Operation{took(100), used(25, 75)}, nil,
			unbased(-7), minute, quota.Recovered{Reported: -7}, 18, 0,
		},
		{
			"on top of what a forerunner reported, and folded away",
			[]quota.Operation{took(100), used(25, 75)},
			fold, unbased(7), minute, quota.Recovered{Lost: 7}, 25, 1,
		},
		{
			"on top, and held for more than 10 minutes", []quota.Operation{took(100), used(25, 75)}, nil,
			unbased(7), 11 * minute, quota.Recovered{Dropped: 7}, 25, 0,
		},
		{
			"on top, but perhaps long reported", []quota.Operation{took(100), used(25, 75)}, nil,
			stale(unbased(7)), minute, quota.Recovered{Lost: 7}, 25, 0,
		},
		{
			"an old page of a machine that went down", []quota.Operation{took(100), used(25, 75)}, nil,
			stale(orphan(20, 20)), minute, quota.Recovered{}, 25, 0,
		},
		{
			"a new page of a machine that went down", []quota.Operation{took(100), used(25, 75)}, nil,
			stale(orphan(40, 20)), minute, quota.Recovered{Reported: 15}, 40, 0,
		},
		{
			"a clock that was set back", []quota.Operation{took(100), used(25, 75)}, nil,
			orphan(40, 25), -60 * minute, quota.Recovered{Reported: 15}, 40, 0,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var m storetest.Memory
			did(t, &m, "dead", c.before...)
			if c.then != nil {
				c.then(t, &m)
			}
			for range 2 { // it may be repeated, also by another process
				o := c.orphan
				kept := quota.Orphan{Used: o.Used, Reported: o.Reported}
				o.Keep = func(used, reported int64) error { kept.Used, kept.Reported = used, reported; return nil }
				got, err := quota.Recover(t.Context(), &m, &o, died+c.after)
				if err != nil || got != c.want {
					t.Errorf("recovered %+v, %v; want %+v", got, err, c.want)
				}
				if a := m.Account(key()); a.Used() != c.used || a.Leased() != c.leased {
					t.Errorf("the account says used %d, leased %d; want %d and %d", a.Used(), a.Leased(), c.used, c.leased)
				}
				c.orphan.Used, c.orphan.Reported = kept.Used, kept.Reported
				c.want.Reported = 0
				if c.orphan.Stale && c.want.Lost > 0 {
					c.want.Lost = 0 // given up, and kept so
				}
			}
		})
	}
}

// before is a store that something else reaches first, once, at its nth operation.
type before struct {
	quota.Store
	n    int
	what func()
}

func (b *before) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	if b.n--; b.n == 0 {
		b.what()
	}
	return b.Store.Apply(ctx, op)
}

// An operation that the dead process had sent may be applied at any moment until the
// account changes.
func TestRecover_A47_AnOperationOfTheDeadThatComesLate(t *testing.T) {
	t.Parallel()
	for n := 1; n <= 3; n++ {
		for _, late := range []quota.Operation{
			{Used: 30, Hold: []quota.Lease{{ID: 1, Units: 70}}},                    // a report
			{Used: 30, Hold: []quota.Lease{{ID: 1, Units: 70}}, Want: 50, Min: 10}, // a renewal
			{Used: 40, Want: 50, Min: 10},                                          // with all there is to report
		} {
			var m storetest.Memory
			did(t, &m, "dead", took(100), used(25, 75))
			late.Key, late.Holder, late.Seq, late.Ceiling, late.Replicas = key(), "dead", 3, 1000, 1
			s := &before{Store: &m, n: n, what: func() { _, _ = m.Apply(t.Context(), late) }}
			o := orphan(40, 25)
			if _, err := quota.Recover(t.Context(), s, &o, died); err != nil {
				t.Fatal(err)
			}
			settled(t, &m, 40)
		}
	}
}

// Someone who goes on under the dead one's name is not fought with for ever.
func TestRecover_ADeadProcessThatIsNotDead(t *testing.T) {
	t.Parallel()
	var m storetest.Memory
	did(t, &m, "dead", took(100), used(25, 75))
	o := orphan(40, 25)
	alive := alive{Store: &m, seq: 2}
	if _, err := quota.Recover(t.Context(), &alive, &o, died); err == nil || !strings.Contains(err.Error(), "still there") {
		t.Errorf("got %v, want an error that asks whether the process is still there", err)
	}
}

type alive struct {
	quota.Store
	seq uint64
}

func (a *alive) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	if op.Seq > 0 {
		a.seq++
		_, _ = a.Store.Apply(ctx, quota.Operation{Key: op.Key, Holder: op.Holder, Seq: a.seq, Used: int64(a.seq), Ceiling: 1000})
	}
	return a.Store.Apply(ctx, op)
}

func TestRecover_FailuresSayWhatWasDone(t *testing.T) {
	t.Parallel()
	broken := errors.New("disk full")
	var m storetest.Memory
	did(t, &m, "dead", took(100), used(25, 75))
	o := orphan(quota.Unbased+7, 0)
	o.Keep = func(int64, int64) error { return broken }
	if _, err := quota.Recover(t.Context(), &m, &o, died); !errors.Is(err, broken) || !strings.Contains(err.Error(), "dead") {
		t.Errorf("got %v, want one that says what of dead failed", err)
	}
	if a := m.Account(key()); a.Used() != 25 {
		t.Errorf("%d used: reported before it was kept", a.Used())
	}
	for _, op := range []int{1, 2} {
		s := &before{Store: &m, n: op}
		ctx, cancel := context.WithCancel(t.Context())
		s.what = cancel
		o := orphan(40, 25)
		if _, err := quota.Recover(ctx, s, &o, died); !errors.Is(err, context.Canceled) {
			t.Errorf("operation %d fails: got %v", op, err)
		}
	}
}

// A crash is a purse's life up to a kill, as a store and a journal saw it.
type crash struct {
	memory  *storetest.Memory
	truth   int64            // used
	late    *quota.Operation // sent, and not applied yet
	journal quota.Orphan
}

func (c *crash) send(t *rapid.T, op quota.Operation, lost bool) {
	op.Key, op.App, op.Holder, op.Ceiling, op.Replicas = key(), "api", "dead", 1000, 1
	r, err := c.memory.Apply(context.Background(), op)
	if err != nil {
		t.Fatal(err)
	}
	if !lost {
		c.journal.Reported = r.Own
	}
}

// live lets the purse spend and report, until an operation at the end that may be
// late, or whose answer may be lost.
func (c *crash) live(t *rapid.T) {
	c.journal = orphan(0, 0)
	charge := func() {
		c.truth += rapid.Int64Range(-3, 20).Draw(t, "use")
		c.journal.Used = c.truth
	}
	op := func(seq int) quota.Operation {
		op := quota.Operation{Seq: uint64(seq), Used: c.truth}
		if seq > 1 {
			op.Hold = []quota.Lease{{ID: uint64(seq - 1), Units: rapid.Int64Range(0, 5).Draw(t, "held")}}
		}
		op.Want = rapid.Int64Range(0, 30).Draw(t, "want")
		op.Min = min(1, op.Want)
		return op
	}
	n := rapid.IntRange(0, 4).Draw(t, "operations")
	for seq := range n {
		c.send(t, op(seq+1), false)
		charge()
	}
	last := op(n + 1)
	last.Key, last.App, last.Holder, last.Ceiling, last.Replicas = key(), "api", "dead", 1000, 1
	switch rapid.SampledFrom([]string{"none", "lost", "late"}).Draw(t, "last") {
	case "lost":
		c.send(t, last, true)
	case "late":
		last.Seq += rapid.Uint64Range(0, 2).Draw(t, "refusals") // that were not written
		c.late = &last
	}
	charge()
}

// unruly lets what is late come first and loses answers, as t draws it.
type unruly struct {
	*crash
	t *rapid.T
}

func (u unruly) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	if u.late != nil && rapid.IntRange(0, 2).Draw(u.t, "late now") == 0 {
		_, _ = u.memory.Apply(ctx, *u.late)
		u.late = nil
	}
	was := u.memory.Account(key())
	r, err := u.memory.Apply(ctx, op)
	if !reflect.DeepEqual(was, u.memory.Account(key())) {
		u.late = nil // its compare fails from now on
	}
	if rapid.IntRange(0, 3).Draw(u.t, "lost answer") == 0 {
		return quota.Result{}, context.DeadlineExceeded
	}
	return r, err
}

// TestRecover_P68_ToTheUnit: whatever was under way when the process was killed, and
// however often whoever recovers fails or is killed, the account has what was used in
// the end, and no lease of the dead.
func TestRecover_P68_ToTheUnit(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &crash{memory: &storetest.Memory{}}
		c.live(t)
		if first := rapid.Int64Range(0, 9).Draw(t, "unbased"); first > 0 && c.late == nil {
			c.reopen(t, first)
		}
		o := c.journal
		keep := func(used, reported int64) error { c.journal.Used, c.journal.Reported = used, reported; return nil }
		for {
			o.Keep = keep
			if _, err := quota.Recover(context.Background(), unruly{c, t}, &o, died); err == nil {
				break
			}
			if rapid.IntRange(0, 2).Draw(t, "killed") == 0 {
				o = c.journal
			}
		}
		if got := c.memory.Account(key()).Used(); got != c.truth {
			t.Fatalf("the account has %d, want %d", got, c.truth)
		}
		c.memory.SetLiable("dead", false)
		_, err := c.memory.Apply(context.Background(), quota.Operation{Key: key(), Holder: "b", Seq: 1, Want: 1, Min: 1, Ceiling: 1000})
		if a := c.memory.Account(key()); err != nil || a.Used() != c.truth || a.Leased() != 1 {
			t.Fatalf("once it is folded away, the account has %d used and %d leased, %v; want %d and 1", a.Used(), a.Leased(), err, c.truth)
		}
	})
}

// reopen settles the purse and opens another, which is killed before it knows what the
// first one reported.
func (c *crash) reopen(t *rapid.T, use int64) {
	r, err := c.memory.Apply(context.Background(), quota.Operation{Key: key(), Holder: "dead", Ceiling: 1000})
	if err != nil {
		t.Fatal(err)
	}
	c.send(t, quota.Operation{Seq: r.Seq + 1, Used: c.truth}, false)
	c.journal = orphan(quota.Unbased+use, 0)
	c.truth += use
}
