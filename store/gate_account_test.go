package store_test

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// S30: whatever an old replica writes to an account, what a newer one has marked there
// stays: the account's own fields, a holder's, a lease's.
func TestOldReplica_S30_KeepsWhatANewerOneMarked(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	mark := func(name string) []byte {
		return protowire.AppendString(protowire.AppendTag(nil, 77, protowire.BytesType), name)
	}
	newer, err := store.EncodeAccount(quota.Account{
		Base: 1, Unknown: mark("the account ends never"),
		Holders: []quota.Holder{{
			ID: "newer", Seq: 3, Used: 5, Unknown: mark("the holder settles late"),
			Leases: []quota.Lease{{ID: 1, Units: 7, Version: 2, Unknown: string(mark("the lease is urgent"))}},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	key := quota.Key{Root: "org:marked", Tenant: "org:marked", Limit: "monthly", Window: "2026-01"}
	put(t, c, store.AccountKey(key), string(newer))
	put(t, c, store.LiableKey("older"), "")
	put(t, c, store.LiableKey("newer"), "")
	accounts := store.NewAccounts(c)
	for seq := range int64(3) { // a grant, a report, a close
		op := quota.Operation{Key: key, App: "shop", Holder: "older", Seq: uint64(seq + 1), Used: seq, Ceiling: 1000, Replicas: 2}
		if seq == 0 {
			op.Want, op.Min = 10, 1
		}
		if _, err := accounts.Apply(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		stored := []byte(get(t, c, store.AccountKey(key)))
		for _, m := range []string{"the account ends never", "the holder settles late", "the lease is urgent"} {
			if !bytes.Contains(stored, mark(m)) {
				t.Errorf("operation %d removed %q", seq+1, m)
			}
		}
	}
}
