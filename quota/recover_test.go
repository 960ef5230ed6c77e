package quota_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

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

// took is a first operation, used25 the second, which reports.
func took() quota.Operation { return quota.Operation{Want: 100, Min: 1} }

func used25() quota.Operation {
	return quota.Operation{Used: 25, Hold: []quota.Lease{{ID: 1, Units: 75}}}
}

// A recovery is one orphan, what the store knew of it, and what is to become of it.
type recovery struct {
	name   string
	then   func(*testing.T, *storetest.Memory) // nil: its holder is liable
	orphan quota.Orphan
	after  time.Duration // how much later it is recovered
	want   quota.Recovered
	used   int64 // by the account's word
	leased int64
}

// check recovers c's orphan after the dead one's operations. It may be repeated, also
// by another process.
func (c recovery) check(t *testing.T, operations ...quota.Operation) {
	t.Helper()
	t.Run(c.name, func(t *testing.T) {
		t.Parallel()
		var m storetest.Memory
		did(t, &m, "dead", operations...)
		if c.then != nil {
			c.then(t, &m)
		}
		c.run(t, &m)
		c.want.Reported = 0
		if c.orphan.Stale {
			c.want.Lost = 0 // given up, and kept so
		}
		c.run(t, &m)
	})
}

func (c *recovery) run(t *testing.T, m *storetest.Memory) {
	t.Helper()
	o := c.orphan
	o.Keep = func(used, reported int64) error { c.orphan.Used, c.orphan.Reported = used, reported; return nil }
	got, err := quota.Recover(t.Context(), m, &o, died+int64(c.after))
	if err != nil || got != c.want {
		t.Errorf("recovered %+v, %v; want %+v", got, err, c.want)
	}
	if a := m.Account(key()); a.Used() != c.used || a.Leased() != c.leased {
		t.Errorf("the account says used %d, leased %d; want %d and %d", a.Used(), a.Leased(), c.used, c.leased)
	}
}

func notLiable(_ *testing.T, m *storetest.Memory) { m.SetLiable("dead", false) }

func folded(t *testing.T, m *storetest.Memory) {
	t.Helper()
	notLiable(t, m)
	did(t, m, "other", took())
}

func unbased(used int64) quota.Orphan { return orphan(quota.Unbased+used, 0) }

func stale(o quota.Orphan) quota.Orphan {
	o.Stale = true
	return o
}

func TestRecover_A47_P68_WhatWasNotReportedIs(t *testing.T) {
	t.Parallel()
	for _, c := range []recovery{
		{"40 used, 25 of them reported", nil, orphan(40, 25), time.Minute, quota.Recovered{Reported: 15}, 40, 0},
		{"all reported, but the answer was lost", nil, orphan(25, 10), time.Minute, quota.Recovered{}, 25, 0},
		{"refunds, however old", nil, orphan(20, 25), time.Hour, quota.Recovered{Reported: -5}, 20, 0},
		{"a clock that was set back", nil, orphan(40, 25), -time.Hour, quota.Recovered{Reported: 15}, 40, 0},
		{"on top of what a forerunner reported", nil, unbased(7), time.Minute, quota.Recovered{Reported: 7}, 32, 0},
		{"a refund of what a forerunner reported", nil, unbased(-7), time.Minute, quota.Recovered{Reported: -7}, 18, 0},
		{"a cell that was just opened", nil, orphan(quota.Unbased, 25), time.Minute, quota.Recovered{}, 25, 0},
	} {
		c.check(t, took(), used25())
	}
	recovery{"nothing yet reported", nil, orphan(40, 0), time.Minute, quota.Recovered{Reported: 40}, 40, 0}.check(t)
	recovery{"nothing used, and a lease", nil, orphan(0, 0), time.Minute, quota.Recovered{}, 0, 0}.check(t, took())
	recovery{"nothing at all", nil, orphan(0, 0), time.Minute, quota.Recovered{}, 0, 0}.check(t)
}

func TestRecover_A59_CountsHeldForMoreThanTenMinutes(t *testing.T) {
	t.Parallel()
	const long = 10*time.Minute + 1
	for _, c := range []recovery{
		{"just not", nil, orphan(40, 25), 10 * time.Minute, quota.Recovered{Reported: 15}, 40, 0},
		{"just", nil, orphan(40, 25), long, quota.Recovered{Dropped: 15}, 25, 0},
		{"on top of what a forerunner reported", nil, unbased(7), long, quota.Recovered{Dropped: 7}, 25, 0},
		{"not liable any more", notLiable, orphan(40, 25), 31 * time.Minute, quota.Recovered{Dropped: 15}, 25, 75},
		{"folded away", folded, orphan(40, 25), long, quota.Recovered{Dropped: 15}, 25, 100},
	} {
		c.check(t, took(), used25())
	}
}

func TestRecover_A45_A46_C101_AHolderThatIsGone(t *testing.T) {
	t.Parallel()
	for _, c := range []recovery{
		{"not liable any more", notLiable, orphan(40, 25), time.Minute, quota.Recovered{Lost: 15}, 25, 75},
		{"more was reported than is remembered", notLiable, orphan(40, 20), time.Minute, quota.Recovered{Lost: 15}, 25, 75},
		{"folded away", folded, orphan(40, 25), time.Minute, quota.Recovered{Lost: 15}, 25, 100},
		{"with a report whose answer was lost", folded, orphan(25, 0), time.Minute, quota.Recovered{Lost: 25}, 25, 100},
		{"on top of what a forerunner reported", folded, unbased(7), time.Minute, quota.Recovered{Lost: 7}, 25, 100},
		{"a cell that was just opened", folded, orphan(quota.Unbased, 25), time.Minute, quota.Recovered{}, 25, 100},
	} {
		c.check(t, took(), used25())
	}
	recovery{"unknown though something was reported", nil, orphan(40, 25), time.Minute, quota.Recovered{Lost: 15}, 0, 0}.check(t)
}

// What a page of before the machine went down says may have been reported since.
func TestRecover_A45_AMachineThatWentDown(t *testing.T) {
	t.Parallel()
	for _, c := range []recovery{
		{"an old page", nil, stale(orphan(20, 20)), time.Minute, quota.Recovered{}, 25, 0},
		{"a new page", nil, stale(orphan(40, 20)), time.Minute, quota.Recovered{Reported: 15}, 40, 0},
		{"on top of what a forerunner reported", nil, stale(unbased(7)), time.Minute, quota.Recovered{Lost: 7}, 25, 0},
		{"a refund of what a forerunner reported", nil, stale(unbased(-7)), time.Minute, quota.Recovered{}, 25, 0},
	} {
		c.check(t, took(), used25())
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
			{Seq: 3, Used: 30, Hold: []quota.Lease{{ID: 1, Units: 70}}},                    // a report
			{Seq: 3, Used: 30, Hold: []quota.Lease{{ID: 1, Units: 70}}, Want: 50, Min: 10}, // a renewal
			{Seq: 3, Used: 40, Want: 50, Min: 10},                                          // with all there is to report
			{Seq: 5, Used: 40, Want: 50, Min: 10},                                          // after refusals, which are not written
		} {
			var m storetest.Memory
			did(t, &m, "dead", took(), used25())
			late.Key, late.Holder, late.Ceiling, late.Replicas = key(), "dead", 1000, 1
			s := &before{Store: &m, n: n, what: func() { _, _ = m.Apply(t.Context(), late) }}
			if n == 3 && late.Seq == 5 {
				s.what = func() {} // the account has changed: its compare fails
			}
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
	did(t, &m, "dead", took(), used25())
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
	did(t, &m, "dead", took(), used25())
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
