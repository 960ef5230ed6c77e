package quota_test

import (
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
)

// C101: a lease of 100 of which 40 are used and 25 reported: 25 stay, 75 come back.
func TestReclaim_A33_A46_C101_ReportedUseStaysAndTheRestComesBack(t *testing.T) {
	t.Parallel()
	b := quota.Holder{ID: "b", Seq: 3, Used: 7, Leases: []quota.Lease{{ID: 3, Units: 5}}, Unknown: []byte("newer")}
	a := quota.Account{
		Base: 11, Unknown: []byte("newer still"),
		Holders: []quota.Holder{{ID: "a", Seq: 2, Used: 25, Leases: []quota.Lease{{ID: 1, Units: 60}, {ID: 2, Units: 15}}}, b},
	}
	got, units := quota.Reclaim(a, []string{"a", "nobody"})
	want := quota.Account{Base: 36, Holders: []quota.Holder{b}, Unknown: a.Unknown}
	if units != 75 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v and %d units, want %+v and 75", got, units, want)
	}
	if again, units := quota.Reclaim(got, []string{"a"}); units != 0 || !reflect.DeepEqual(again, got) {
		t.Errorf("again: got %+v and %d units", again, units)
	}
	if a.Base != 11 || len(a.Holders) != 2 {
		t.Errorf("the account that was given has changed: %+v", a)
	}
}

// Q45: what may have been spent exactly counts as used.
func TestReclaim_Q45_ExactLeasesCountAsUsed(t *testing.T) {
	t.Parallel()
	a := quota.Account{Holders: []quota.Holder{
		{ID: "a", Used: 1, Leases: []quota.Lease{{ID: 1, Units: 30}, {ID: 2, Units: 4, Exact: true}}},
	}}
	if got, units := quota.Reclaim(a, []string{"a"}); got.Used() != 5 || got.Leased() != 0 || units != 30 {
		t.Errorf("got %+v and %d units, want 5 used and 30 back", got, units)
	}
}

// A sweep and an operation fold alike, so that it does not matter which of them comes
// first.
func TestReclaim_FoldsAsAnOperationDoes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var a quota.Account
		var gone []string
		a.Base = rapid.Int64Range(0, 100).Draw(t, "base")
		for _, id := range []string{"a", "b", "c", "d"} {
			h := quota.Holder{ID: id, Seq: 9, Used: rapid.Int64Range(-20, 100).Draw(t, "used")}
			for i := range rapid.Uint64Range(0, 3).Draw(t, "leases") {
				h.Leases = append(h.Leases, quota.Lease{
					ID: i + 1, Units: rapid.Int64Range(1, 50).Draw(t, "units"), Exact: rapid.Bool().Draw(t, "exact"),
				})
			}
			a.Holders = append(a.Holders, h)
			if id != "d" && rapid.Bool().Draw(t, "gone") {
				gone = append(gone, id)
			}
		}
		d := a.Holders[3]
		op := quota.Operation{Holder: "d", Seq: 10, Used: d.Used, Hold: d.Leases, Ceiling: 10_000, Gone: gone}
		after, result := quota.Apply(a, op)
		swept, units := quota.Reclaim(a, gone)
		if swept.Base != after.Base || swept.Used() != after.Used() || swept.Leased() != after.Leased() || len(swept.Holders) != len(after.Holders) {
			t.Fatalf("swept %+v, an operation says %+v", swept, after)
		}
		if left := op.Ceiling - a.Used() - a.Leased(); left+units != result.Left {
			t.Fatalf("%d were left and %d came back, an operation says %d are left", left, units, result.Left)
		}
	})
}
