package store_test

import (
	"bytes"
	"fmt"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// unknownField is a field of a version to come.
func unknownField(text string) []byte {
	return protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), text)
}

// Every write keeps what a newer version wrote: into the account, its holders and
// their leases, of the writer and of others.
func TestAccounts_S30_WritesKeepUnknownFields(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, mode store.Batching) {
		t.Parallel()
		s := subjectIn(t, mode)
		ops := asks(t, 8)
		w := newWire(nil)
		accounts := accountsOver(w, mode)
		accounts.Liable = func(string) bool { return true }
		other := unique(t)
		s.SetLiable(other, true)
		for i, op := range ops {
			newer := quota.Account{Unknown: unknownField("account")}
			for _, id := range []string{op.Holder, other} {
				newer.Holders = append(newer.Holders, quota.Holder{
					ID: id, Seq: 4, Used: 2, Unknown: unknownField(id + " holder"),
					Leases: []quota.Lease{{ID: 4, Units: 10, Version: 3, Exact: true, Unknown: string(unknownField(id + " lease"))}},
				})
			}
			if newer.Holders[0].ID > newer.Holders[1].ID {
				newer.Holders[0], newer.Holders[1] = newer.Holders[1], newer.Holders[0]
			}
			b, err := store.EncodeAccount(newer)
			if err != nil {
				t.Fatal(err)
			}
			put(t, server.Client(), store.AccountKey(op.Key), string(b))
			ops[i].Seq, ops[i].Used, ops[i].Hold = 5, 5, []quota.Lease{{ID: 4, Units: 7}}
		}
		if mode == store.Nested {
			together(t, w, accounts, ops)
		} else {
			for _, op := range ops {
				apply(t, accounts, op)
			}
		}
		for _, op := range ops {
			checkUnknown(t, s.Account(op.Key), op.Holder)
		}
	})
}

func checkUnknown(t *testing.T, a quota.Account, writer string) {
	t.Helper()
	if !bytes.Equal(a.Unknown, unknownField("account")) || len(a.Holders) != 2 {
		t.Fatalf("account is %+v", a)
	}
	for _, h := range a.Holders {
		if !bytes.Equal(h.Unknown, unknownField(h.ID+" holder")) {
			t.Errorf("holder is %+v", h)
		}
		if l := h.Leases[0]; l.Unknown != string(unknownField(h.ID+" lease")) || !l.Exact || l.Version != 3 {
			t.Errorf("lease is %+v", l)
		}
		if want := fmt.Sprint(h.ID == writer); fmt.Sprint(h.Used == 5) != want || fmt.Sprint(len(h.Leases) == 2) != want {
			t.Errorf("holder is %+v; the writer is %v", h, want)
		}
	}
}
