package store_test

import (
	"reflect"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// newer returns fields that this version does not know.
func newer(t *rapid.T, label string) []byte {
	var b []byte
	for range rapid.IntRange(0, 3).Draw(t, label) {
		b = protowire.AppendTag(b, protowire.Number(rapid.IntRange(20, 40).Draw(t, "field")), protowire.BytesType)
		b = protowire.AppendBytes(b, rapid.SliceOfN(rapid.Byte(), 0, 5).Draw(t, "value"))
	}
	return b
}

// A newer writer's fields survive an operation of an older reader.
func TestUnknownFieldsSurviveApply(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := quota.Account{
			Base: rapid.Int64Range(0, 50).Draw(t, "base"),
			Holders: []quota.Holder{
				{ID: "a", Seq: 1, Used: 5, Reserved: 3, Unknown: newer(t, "holder a"), Leases: []quota.Lease{
					{ID: 1, Units: 3, Version: 9, Unknown: string(newer(t, "lease"))},
				}},
				{ID: "b", Seq: 4, Used: 7, Unknown: newer(t, "holder b")},
			},
			Unknown: newer(t, "account"),
		}
		stored := decode(t, encode(t, a))
		who := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "who")
		next, _ := quota.Apply(stored, quota.Operation{
			Holder: who, Seq: 5, Used: 6, Hold: []quota.Lease{{ID: 1, Units: 2}}, Want: 10, Min: 1, Ceiling: 1000,
		})
		got := decode(t, encode(t, next))
		if string(got.Unknown) != string(a.Unknown) {
			t.Fatalf("account: %x, want %x", got.Unknown, a.Unknown)
		}
		for i, h := range a.Holders {
			if string(got.Holders[i].Unknown) != string(h.Unknown) {
				t.Fatalf("holder %s: %x, want %x", h.ID, got.Holders[i].Unknown, h.Unknown)
			}
			if len(h.Leases) > 0 && (len(got.Holders[i].Leases) == 0 || got.Holders[i].Leases[0].Unknown != h.Leases[0].Unknown) {
				t.Fatalf("lease of %s: %+v, want the fields of %+v", h.ID, got.Holders[i].Leases, h.Leases)
			}
		}
		if again := decode(t, encode(t, got)); !reflect.DeepEqual(again, got) {
			t.Fatalf("%+v became %+v", got, again)
		}
	})
}

func encode(t *rapid.T, a quota.Account) []byte {
	b, err := store.EncodeAccount(a)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func decode(t *rapid.T, b []byte) quota.Account {
	a, err := store.DecodeAccount(b)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func FuzzDecodeAccount(f *testing.F) {
	b, err := store.EncodeAccount(quota.Account{Base: 3, Holders: []quota.Holder{{ID: "a", Leases: []quota.Lease{{ID: 1, Units: 2}}}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := store.DecodeAccount(b)
		if err != nil {
			return
		}
		if _, err := store.EncodeAccount(a); err != nil {
			t.Errorf("%x is read and cannot be written: %v", b, err)
		}
	})
}
