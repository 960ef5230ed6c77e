package quota_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"

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
