package quota_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
)

// fleet plays operations of several holders on one account and knows what must
// come of them, from the rules and not from the code.
type fleet struct {
	account quota.Account
	ceiling int64
	ops     map[string]quota.Operation // the last of each holder
	results map[string]quota.Result    // what it gave
	over    int64                      // used beyond what was held, in all
	highest int64                      // ceiling so far
}

var holderIDs = []string{"a", "b", "c", "d", "e"}

func newFleet(t *rapid.T) *fleet {
	f := &fleet{ops: map[string]quota.Operation{}, results: map[string]quota.Result{}}
	f.account.Unknown = []byte("account")
	f.setCeiling(t)
	return f
}

func (f *fleet) setCeiling(t *rapid.T) {
	f.ceiling = rapid.OneOf(rapid.Int64Range(0, 50), rapid.Int64Range(0, 5000), rapid.Just(int64(quota.MaxUnits))).Draw(t, "ceiling")
	f.highest = max(f.highest, f.ceiling)
}

// of returns what the account has of a holder.
func of(a quota.Account, id string) quota.Holder {
	for _, h := range a.Holders {
		if h.ID == id {
			return h
		}
	}
	return quota.Holder{ID: id}
}

func units(leases []quota.Lease) int64 {
	var n int64
	for _, l := range leases {
		n += l.Units
	}
	return n
}

// operation draws the next operation of a holder, which may say anything if it lies.
func (f *fleet) operation(t *rapid.T, id string, lies bool) quota.Operation {
	h := of(f.account, id)
	op := quota.Operation{
		Holder: id, Seq: max(f.ops[id].Seq, h.Seq) + 1, Used: h.Used, Ceiling: f.ceiling,
		Replicas: rapid.IntRange(0, 50).Draw(t, "replicas"), Version: rapid.Int64Range(1, 9).Draw(t, "version"),
	}
	if rapid.Bool().Draw(t, "asks") {
		op.Min = rapid.Int64Range(1, 20).Draw(t, "least")
		op.Want = op.Min + rapid.Int64Range(0, 200).Draw(t, "more")
	}
	if lies {
		op.Used = rapid.Int64Range(-100, 500).Draw(t, "used")
		for range rapid.IntRange(0, 5).Draw(t, "held") {
			op.Hold = append(op.Hold, quota.Lease{
				ID:    rapid.Uint64Range(0, op.Seq+1).Draw(t, "id"),
				Units: rapid.Int64Range(-10, 300).Draw(t, "units"),
			})
		}
		return op
	}
	for _, l := range h.Leases {
		spent := rapid.Int64Range(0, l.Units).Draw(t, "spent")
		op.Used += spent
		if rapid.Bool().Draw(t, "keeps it") {
			op.Hold = append(op.Hold, quota.Lease{ID: l.ID, Units: l.Units - spent})
		}
	}
	if op.Used > 0 && rapid.Bool().Draw(t, "refunds") {
		op.Used -= rapid.Int64Range(0, op.Used).Draw(t, "refund")
	}
	return op
}

// gone draws holders that the store has found gone.
func gone(t *rapid.T) []string {
	return rapid.SliceOfN(rapid.SampledFrom(append(holderIDs, "stranger")), 0, 2).Draw(t, "gone")
}

// apply applies op and checks all that must come of it.
func (f *fleet) apply(t *rapid.T, op quota.Operation) {
	before := f.account
	kept := clone(before)
	after, r := quota.Apply(before, op)
	if !reflect.DeepEqual(before, kept) {
		t.Fatalf("the account that was given has changed: %+v, was %+v", before, kept)
	}
	self := of(before, op.Holder)
	held := self.Used + units(self.Leases)
	f.checkOthers(t, before, after, op)
	left := checkSelf(t, self, after, op, r)
	checkGranted(t, op, r.Granted, left)

	sum := after.Used() + after.Leased()
	over := max(0, op.Used-held)
	was := before.Used() + before.Leased()
	if r.Granted > 0 && sum > op.Ceiling {
		t.Fatalf("used and leased: got %d after a grant, want at most the ceiling %d", sum, op.Ceiling)
	}
	if sum-r.Granted > was+over {
		t.Fatalf("used and leased: got %d of which %d granted, was %d with %d used beyond what was held", sum, r.Granted, was, over)
	}
	f.over += over
	if sum > f.highest+f.over {
		t.Fatalf("used and leased: got %d, want at most %d and %d of overshoot", sum, f.highest, f.over)
	}
	if want := (quota.Result{
		Granted: r.Granted, Left: op.Ceiling - sum, Used: after.Used(), Leased: after.Leased(), Seq: op.Seq, Own: op.Used,
	}); r != want {
		t.Fatalf("result: got %+v, want %+v", r, want)
	}
	f.account = after
	f.ops[op.Holder], f.results[op.Holder] = op, r
	f.replay(t, op.Holder)
	if again := f.results[op.Holder]; again != r {
		t.Fatalf("the same again at once: got %+v, want %+v", again, r)
	}
}

// checkOthers checks that those who are gone are folded and all others are as they were.
func (f *fleet) checkOthers(t *rapid.T, before, after quota.Account, op quota.Operation) {
	base := before.Base
	var want []quota.Holder
	for _, h := range before.Holders {
		switch {
		case h.ID == op.Holder:
		case slices.Contains(op.Gone, h.ID):
			base += h.Used
			delete(f.ops, h.ID)
		default:
			want = append(want, h)
		}
	}
	var got []quota.Holder
	for _, h := range after.Holders {
		if h.ID != op.Holder {
			got = append(got, h)
		}
	}
	sorted := slices.IsSortedFunc(after.Holders, func(a, b quota.Holder) int { return strings.Compare(a.ID, b.ID) })
	if !reflect.DeepEqual(got, want) || after.Base != base || string(after.Unknown) != "account" || !sorted {
		t.Fatalf("the others: got %+v and a base of %d, want %+v and %d", got, after.Base, want, base)
	}
}

// checkSelf checks what became of op's own holder and returns what was left when
// it asked.
func checkSelf(t *rapid.T, was quota.Holder, after quota.Account, op quota.Operation, r quota.Result) (left int64) {
	h := of(after, op.Holder)
	if h.Seq != op.Seq || h.Used != op.Used || !reflect.DeepEqual(h.Unknown, was.Unknown) {
		t.Fatalf("holder: got %+v after %+v", h, op)
	}
	leases := h.Leases
	if r.Granted > 0 {
		last := len(leases) - 1
		if last < 0 || leases[last] != (quota.Lease{ID: op.Seq, Units: r.Granted, Version: op.Version}) {
			t.Fatalf("leases: got %v, want the new one of %d at the end", leases, r.Granted)
		}
		leases = leases[:last]
	}
	for i, l := range leases {
		if i > 0 && leases[i-1].ID >= l.ID {
			t.Fatalf("leases: got %v, want them sorted by id", leases)
		}
		known := slices.ContainsFunc(was.Leases, func(o quota.Lease) bool { return o.ID == l.ID && o.Version == l.Version })
		said := slices.ContainsFunc(op.Hold, func(o quota.Lease) bool { return o.ID == l.ID && o.Units >= l.Units })
		if !known || !said || l.Units <= 0 {
			t.Fatalf("lease %v: want one that the account had and the holder holds", l)
		}
	}
	room := max(0, was.Used+units(was.Leases)-op.Used)
	if units(leases) > room {
		t.Fatalf("leases: got %v, want at most the %d that it did not use", leases, room)
	}
	honest := units(op.Hold) <= room && slices.IsSortedFunc(op.Hold, func(a, b quota.Lease) int { return int(a.ID) - int(b.ID) })
	for i, l := range op.Hold {
		had := slices.ContainsFunc(was.Leases, func(o quota.Lease) bool { return o.ID == l.ID })
		honest = honest && had && l.Units >= 0 && (i == 0 || op.Hold[i-1].ID < l.ID)
	}
	if honest && units(leases) != units(op.Hold) {
		t.Fatalf("leases: got %v, want all of %v", leases, op.Hold)
	}
	return op.Ceiling - after.Used() - after.Leased() + r.Granted
}

// checkGranted checks a grant against the rules Q41, A24 and A34.
func checkGranted(t *rapid.T, op quota.Operation, granted, left int64) {
	want := int64(0)
	if op.Want > 0 && left >= op.Min {
		want = min(op.Want, left/2/int64(max(1, op.Replicas)))
		want = max(want, op.Min)
	}
	if granted != want || granted > max(0, left) {
		t.Fatalf("granted: got %d, want %d of %d left, for %+v", granted, want, left, op)
	}
}

// replay applies a holder's last operation again: it changes nothing, and tells
// of the same grant.
func (f *fleet) replay(t *rapid.T, id string) {
	op := f.ops[id]
	after, r := quota.Apply(f.account, op)
	if !reflect.DeepEqual(after, f.account) {
		t.Fatalf("%s again: got %+v, want no change to %+v", id, after, f.account)
	}
	if was := f.results[id]; r.Granted != was.Granted || r.Own != was.Own || r.Seq != was.Seq {
		t.Fatalf("%s again: got %+v, want the same grant as in %+v", id, r, was)
	}
	f.results[id] = r
}

func clone(a quota.Account) quota.Account {
	a.Holders = slices.Clone(a.Holders)
	for i, h := range a.Holders {
		a.Holders[i].Leases = slices.Clone(h.Leases)
	}
	return a
}

// TestApply plays what holders may say, true and not, in any order, with replies
// that get lost, ceilings that shrink and replicas that die.
func TestApply(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newFleet(t)
		turn := func(lies bool) func(*rapid.T) {
			return func(t *rapid.T) {
				op := f.operation(t, rapid.SampledFrom(holderIDs).Draw(t, "holder"), lies)
				if rapid.Bool().Draw(t, "some are gone") {
					op.Gone = gone(t)
				}
				f.apply(t, op)
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"step":    turn(false),
			"lie":     turn(true),
			"ceiling": f.setCeiling,
			"newer fields": func(t *rapid.T) {
				f.account = clone(f.account)
				for i := range f.account.Holders {
					f.account.Holders[i].Unknown = []byte(fmt.Sprint("newer ", i))
				}
			},
			"repeat": func(t *rapid.T) {
				ids := slices.Sorted(maps.Keys(f.ops))
				if len(ids) == 0 {
					t.Skip("nobody has done anything")
				}
				f.replay(t, rapid.SampledFrom(ids).Draw(t, "holder"))
			},
			"late duplicate": func(t *rapid.T) {
				if len(f.account.Holders) == 0 {
					t.Skip("nobody is there")
				}
				h := rapid.SampledFrom(f.account.Holders).Draw(t, "holder")
				op := f.operation(t, h.ID, true)
				op.Seq = rapid.Uint64Range(0, h.Seq).Draw(t, "seq")
				op.Gone = gone(t)
				if after, _ := quota.Apply(f.account, op); !reflect.DeepEqual(after, f.account) {
					t.Fatalf("operation %d after %d: got %+v, want no change", op.Seq, h.Seq, after)
				}
			},
		})
	})
}
