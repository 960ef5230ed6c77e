package quota_test

import (
	"context"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

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
// however often the recovering process fails or is killed, the account has what was used in
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
