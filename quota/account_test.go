package quota_test

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
)

// step is an operation of a holder that asks for a lease of want under a ceiling.
func step(holder string, seq uint64, want, ceiling int64) quota.Operation {
	op := quota.Operation{Holder: holder, Seq: seq, Want: want, Ceiling: ceiling, Replicas: 1}
	if want > 0 {
		op.Min = 1
	}
	return op
}

// account returns an account with that much used and leased by another replica.
func account(used, leased int64) quota.Account {
	h := quota.Holder{ID: "other", Seq: 1, Used: used}
	if leased > 0 {
		h.Leases = []quota.Lease{{ID: 1, Units: leased, Version: 1}}
	}
	return quota.Account{Holders: []quota.Holder{h}}
}

func TestGrant(t *testing.T) {
	tests := []struct {
		name         string
		used, leased int64
		ceiling      int64
		want, least  int64
		replicas     int
		granted      int64
	}{
		{"all that is asked for", 0, 0, 1000, 100, 1, 1, 100},
		{"near the end a share (Q41)", 7_998_000, 0, 8_000_000, 100, 1, 40, 25},
		{"leases of others count (A34)", 7_900_000, 98_000, 8_000_000, 100, 1, 40, 25},
		{"far from the end no share (Q42)", 0, 0, 10_000_000, 100, 1, 40, 100},
		{"just enough for all of it", 0, 0, 8000, 100, 1, 40, 100},
		{"one less than enough for all of it", 0, 0, 7999, 100, 1, 40, 99},
		{"never less than the least", 990, 0, 1000, 100, 7, 40, 7},
		{"the least, exactly left (A24)", 993, 0, 1000, 100, 7, 40, 7},
		{"less than the least is left", 994, 0, 1000, 100, 7, 40, 0},
		{"the last unit", 999, 0, 1000, 100, 1, 40, 1},
		{"nothing left", 1000, 0, 1000, 100, 1, 1, 0},
		{"all out on lease (A34)", 0, 1000, 1000, 100, 1, 1, 0},
		{"used and leased are all (A34)", 600, 400, 1000, 1, 1, 1, 0},
		{"after an overshoot", 1200, 0, 1000, 100, 1, 1, 0},
		{"the ceiling shrank below what is leased", 0, 500, 100, 1, 1, 1, 0},
		{"a ceiling of nothing", 0, 0, 0, 1, 1, 1, 0},
		{"a ceiling below nothing", 0, 0, -5, 1, 1, 1, 0},
		{"nothing asked for", 0, 0, 1000, 0, 0, 1, 0},
		{"no replicas counted yet", 0, 0, 1000, 100, 1, 0, 100},
		{"a ceiling that never refuses", 0, 0, quota.MaxUnits, quota.MaxUnits / 10, 1, 1, quota.MaxUnits / 10},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			op := quota.Operation{
				Holder: "self", Seq: 1, Want: tt.want, Min: tt.least,
				Ceiling: tt.ceiling, Replicas: tt.replicas, Version: 7,
			}
			a, r := quota.Apply(account(tt.used, tt.leased), op)
			if r.Granted != tt.granted {
				t.Errorf("granted: got %d, want %d", r.Granted, tt.granted)
			}
			want := quota.Result{
				Granted: tt.granted, Used: tt.used, Leased: tt.leased + tt.granted,
				Left: tt.ceiling - tt.used - tt.leased - tt.granted, Seq: 1,
			}
			if r != want {
				t.Errorf("result: got %+v, want %+v", r, want)
			}
			var leases []quota.Lease
			if tt.granted > 0 {
				leases = []quota.Lease{{ID: 1, Units: tt.granted, Version: 7}}
			}
			if got := holder(t, a, "self").Leases; !slices.Equal(got, leases) {
				t.Errorf("leases: got %v, want %v", got, leases)
			}
		})
	}
}

func holder(t *testing.T, a quota.Account, id string) quota.Holder {
	t.Helper()
	i := slices.IndexFunc(a.Holders, func(h quota.Holder) bool { return h.ID == id })
	if i < 0 {
		t.Fatalf("%s is not in %+v", id, a)
	}
	return a.Holders[i]
}

// TestReport tells what becomes of one holder's numbers, which start at 30 used
// and leases of 10 and 20.
func TestReport(t *testing.T) {
	tests := []struct {
		name   string
		used   int64
		hold   []quota.Lease
		leases []quota.Lease
	}{
		{"used from one lease, holds both", 34, []quota.Lease{{ID: 1, Units: 6}, {ID: 2, Units: 20}}, []quota.Lease{{ID: 1, Units: 6, Version: 5}, {ID: 2, Units: 20, Version: 6}}},
		{"what is not listed is closed (A32)", 34, []quota.Lease{{ID: 2, Units: 20}}, []quota.Lease{{ID: 2, Units: 20, Version: 6}}},
		{"nothing is listed", 60, nil, nil},
		{"a refund makes use shrink", 25, []quota.Lease{{ID: 1, Units: 10}, {ID: 2, Units: 20}}, []quota.Lease{{ID: 1, Units: 10, Version: 5}, {ID: 2, Units: 20, Version: 6}}},
		{"a refund goes back into a lease", 25, []quota.Lease{{ID: 1, Units: 15}, {ID: 2, Units: 20}}, []quota.Lease{{ID: 1, Units: 15, Version: 5}, {ID: 2, Units: 20, Version: 6}}},
		{"a refund of what another replica charged", -5, nil, nil},
		{"used more than it held (A43)", 65, []quota.Lease{{ID: 1, Units: 1}}, nil},
		{"says that it holds more than it did", 34, []quota.Lease{{ID: 1, Units: 100}, {ID: 2, Units: 20}}, []quota.Lease{{ID: 1, Units: 26, Version: 5}}},
		{"says it twice", 34, []quota.Lease{{ID: 1, Units: 6}, {ID: 1, Units: 6}}, []quota.Lease{{ID: 1, Units: 6, Version: 5}}},
		{"says it in no order", 34, []quota.Lease{{ID: 2, Units: 20}, {ID: 1, Units: 6}}, []quota.Lease{{ID: 1, Units: 6, Version: 5}, {ID: 2, Units: 20, Version: 6}}},
		{"holds what nobody granted", 34, []quota.Lease{{ID: 9, Units: 5}}, nil},
		{"an empty lease is closed", 40, []quota.Lease{{ID: 1, Units: 0}, {ID: 2, Units: 20}}, []quota.Lease{{ID: 2, Units: 20, Version: 6}}},
		{"holds less than nothing", 34, []quota.Lease{{ID: 1, Units: -5}, {ID: 2, Units: 0}}, nil},
		{"versions are the account's", 34, []quota.Lease{{ID: 1, Units: 6, Version: 99}}, []quota.Lease{{ID: 1, Units: 6, Version: 5}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := account(100, 0)
			a.Holders = append(a.Holders, quota.Holder{
				ID: "self", Seq: 2, Used: 30,
				Leases: []quota.Lease{{ID: 1, Units: 10, Version: 5}, {ID: 2, Units: 20, Version: 6}},
			})
			op := step("self", 3, 0, 1000)
			op.Used, op.Hold, op.Version = tt.used, tt.hold, 99
			a, r := quota.Apply(a, op)
			h := holder(t, a, "self")
			if h.Used != tt.used || h.Seq != 3 || !slices.Equal(h.Leases, tt.leases) {
				t.Errorf("holder: got %+v, want %d used and %v", h, tt.used, tt.leases)
			}
			if r.Used != 100+tt.used || r.Own != tt.used || r.Left+r.Used+r.Leased != 1000 {
				t.Errorf("result: got %+v, want %d used", r, 100+tt.used)
			}
		})
	}
}

// What one operation gives back, the same operation may be granted.
func TestRenewalAsksForWhatItCloses(t *testing.T) {
	a, _ := quota.Apply(quota.Account{}, step("self", 1, 50, 100))
	op := step("self", 2, 40, 100)
	op.Used = 20
	a, r := quota.Apply(a, op)
	if want := (quota.Result{Granted: 40, Left: 40, Used: 20, Leased: 40, Seq: 2, Own: 20}); r != want {
		t.Errorf("result: got %+v, want %+v", r, want)
	}
	if got := holder(t, a, "self").Leases; !slices.Equal(got, []quota.Lease{{ID: 2, Units: 40}}) {
		t.Errorf("leases: got %v, want the new one alone", got)
	}
}

// C045 by lease: one unit at a time, exactly the quota.
func TestLastUnit(t *testing.T) {
	for _, ceiling := range []int64{1, 2, 10} {
		var a quota.Account
		var used int64
		for seq := uint64(1); seq <= 20; seq++ {
			op := step("self", seq, 1, ceiling)
			op.Used = used
			var r quota.Result
			a, r = quota.Apply(a, op)
			used += r.Granted
		}
		if used != ceiling {
			t.Errorf("of %d: got %d", ceiling, used)
		}
	}
}

// A33: the use of a holder that is gone stays, its leases come back; being found
// gone again, or by itself, changes nothing.
func TestGone(t *testing.T) {
	a := account(100, 50)
	a.Unknown = []byte("account")
	op := step("self", 1, 900, 1000)
	op.Gone = []string{"other", "other", "self", "stranger"}
	a, r := quota.Apply(a, op)
	if want := (quota.Result{Granted: 450, Left: 450, Used: 100, Leased: 450, Seq: 1}); r != want {
		t.Errorf("result: got %+v, want %+v", r, want)
	}
	if a.Base != 100 || len(a.Holders) != 1 || string(a.Unknown) != "account" {
		t.Errorf("account: got %+v, want the other folded into the base", a)
	}
	op.Seq, op.Used, op.Want = 2, 0, 0
	a, r = quota.Apply(a, op)
	if a.Base != 100 || r.Used != 100 || r.Leased != 0 {
		t.Errorf("folded again: got %+v, want a base of 100 still", a)
	}
}

// An operation with Seq 0 only tells.
func TestOnlyTells(t *testing.T) {
	a, _ := quota.Apply(account(100, 50), step("self", 1, 10, 1000))
	for _, id := range []string{"self", "stranger"} {
		op := step(id, 0, 10, 1000)
		op.Used, op.Gone = 5, []string{"other"}
		b, r := quota.Apply(a, op)
		if !reflect.DeepEqual(a, b) || r.Granted != 0 || r.Used != 100 || r.Leased != 60 {
			t.Errorf("%s: got %+v and %+v, want no change", id, r, b)
		}
	}
}

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

// A spender is a replica that spends what it was granted and nothing else.
type spender struct {
	id       string
	seq      uint64
	used     int64
	reported int64
	lots     []quota.Lease
}

// spenders are honest replicas under one ceiling, who may crash.
type spenders struct {
	account quota.Account
	ceiling int64
	fleet   []*spender
	dead    []string

	spent     int64
	forgotten int64 // spent, and not reported before a crash (A45)
}

func newSpenders(t *rapid.T) *spenders {
	f := &spenders{ceiling: rapid.Int64Range(1, 2000).Draw(t, "ceiling")}
	for i := range rapid.IntRange(1, 6).Draw(t, "replicas") {
		f.fleet = append(f.fleet, &spender{id: fmt.Sprint("replica-", i)})
	}
	return f
}

func (f *spenders) any(t *rapid.T) *spender { return rapid.SampledFrom(f.fleet).Draw(t, "replica") }

func (f *spenders) spend(t *rapid.T) {
	s := f.any(t)
	for i := range s.lots {
		n := rapid.Int64Range(0, s.lots[i].Units).Draw(t, "units")
		s.lots[i].Units -= n
		s.used += n
		f.spent += n
	}
}

func (f *spenders) refund(t *rapid.T) {
	s := f.any(t)
	if s.used == 0 || len(s.lots) == 0 {
		t.Skip("nothing to refund")
	}
	n := rapid.Int64Range(0, s.used).Draw(t, "units")
	s.used -= n
	f.spent -= n
	s.lots[0].Units += n
}

// renew reports what s has used, and asks for more; all replies but the last get lost.
func (f *spenders) renew(t *rapid.T, s *spender, want, least int64) {
	s.seq++
	// An empty lease is closed: what is refunded later must not go into it.
	s.lots = slices.DeleteFunc(s.lots, func(l quota.Lease) bool { return l.Units == 0 })
	op := quota.Operation{
		Holder: s.id, Seq: s.seq, Used: s.used, Hold: slices.Clone(s.lots), Want: want, Min: least,
		Ceiling: f.ceiling, Replicas: len(f.fleet), Gone: f.dead,
	}
	var r quota.Result
	for range rapid.IntRange(1, 3).Draw(t, "tries") {
		f.account, r = quota.Apply(f.account, op)
	}
	s.reported = s.used
	if r.Granted > 0 {
		s.lots = append(s.lots, quota.Lease{ID: s.seq, Units: r.Granted})
	}
	if r.Left+r.Used+r.Leased != f.ceiling || r.Left < 0 {
		t.Fatalf("result: got %+v, want it to sum up to %d", r, f.ceiling)
	}
}

func (f *spenders) settle(t *rapid.T, s *spender) {
	s.lots = nil
	f.renew(t, s, 0, 0)
}

func (f *spenders) crash(t *rapid.T) {
	s := f.any(t)
	f.forgotten += s.used - s.reported
	f.dead = append(f.dead, s.id)
	*s = spender{id: s.id + "'"}
}

// spendAll lets one replica alone have all the rest, bit by bit.
func (f *spenders) spendAll(t *rapid.T) {
	for _, s := range f.fleet {
		f.settle(t, s)
	}
	s := f.fleet[0]
	for {
		f.renew(t, s, f.ceiling, 1)
		rest := units(s.lots)
		if rest == 0 {
			return
		}
		s.used += rest
		f.spent += rest
		s.lots = nil
	}
}

// TestNothingIsSpentTwice lets honest replicas spend, crash and start again under
// one ceiling: what is spent, but for what crashes made forgotten, never goes
// beyond it, and all of it can be spent.
func TestNothingIsSpentTwice(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		f := newSpenders(t)
		t.Repeat(map[string]func(*rapid.T){
			"spend":  f.spend,
			"refund": f.refund,
			"crash":  f.crash,
			"settle": func(t *rapid.T) { f.settle(t, f.any(t)) },
			"renew": func(t *rapid.T) {
				least := rapid.Int64Range(1, 10).Draw(t, "least")
				f.renew(t, f.any(t), least+rapid.Int64Range(0, 200).Draw(t, "more"), least)
			},
			"": func(t *rapid.T) {
				if f.spent-f.forgotten > f.ceiling {
					t.Fatalf("spent: got %d of which %d forgotten, want at most %d", f.spent, f.forgotten, f.ceiling)
				}
			},
		})
		f.spendAll(t)
		if f.spent-f.forgotten != f.ceiling {
			t.Fatalf("spent to the end: got %d of which %d forgotten, want %d", f.spent, f.forgotten, f.ceiling)
		}
	})
}

// Sums of what a fleet may hold do not overflow.
func TestLargeNumbers(t *testing.T) {
	a := quota.Account{Base: quota.MaxUnits}
	for i := range 1000 {
		a.Holders = append(a.Holders, quota.Holder{ID: fmt.Sprintf("%04d", i), Seq: 1, Used: quota.MaxUnits, Leases: []quota.Lease{{ID: 1, Units: quota.MaxUnits}}})
	}
	_, r := quota.Apply(a, step("self", 1, math.MaxInt64, quota.MaxUnits))
	if r.Granted != 0 || r.Left >= 0 || r.Used != 1001*quota.MaxUnits {
		t.Errorf("result: got %+v", r)
	}
}

func BenchmarkApply(b *testing.B) {
	for _, n := range []int{1, 40} {
		b.Run(fmt.Sprint(n, " holders"), func(b *testing.B) {
			var a quota.Account
			for i := range n {
				a, _ = quota.Apply(a, step(fmt.Sprintf("replica-%02d", i), 1, 100, 10_000_000))
			}
			b.ReportAllocs()
			op := step("replica-00", 2, 100, 10_000_000)
			for b.Loop() {
				quota.Apply(a, op)
			}
		})
	}
}

// What a newer version wrote into a lease stays, though its holder does not list it.
func TestApply_KeepsWhatANewerVersionWroteIntoALease(t *testing.T) {
	t.Parallel()
	a := quota.Account{Holders: []quota.Holder{{ID: "a", Seq: 1, Leases: []quota.Lease{{ID: 1, Units: 5, Unknown: "new"}}}}}
	got, _ := quota.Apply(a, quota.Operation{
		Holder: "a", Seq: 2, Used: 2, Hold: []quota.Lease{{ID: 1, Units: 3}}, Want: 4, Min: 1, Ceiling: 100,
	})
	want := []quota.Lease{{ID: 1, Units: 3, Unknown: "new"}, {ID: 2, Units: 4}}
	if !slices.Equal(got.Holders[0].Leases, want) {
		t.Errorf("got %+v, want %+v", got.Holders[0].Leases, want)
	}
}
