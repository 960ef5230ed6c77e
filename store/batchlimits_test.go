package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// The server of these tests has etcd's default limits.
func TestBatch_C111_TheServerTakesNoMoreThan128Operations(t *testing.T) {
	t.Parallel()
	gets := make([]clientv3.Op, 129)
	for i := range gets {
		gets[i] = clientv3.OpGet(fmt.Sprint("/", i))
	}
	if _, err := server.Client().Txn(t.Context()).Then(gets...).Commit(); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("129 operations: %v, want %v", err, rpctypes.ErrTooManyOps)
	}
}

func TestBatch_C111_500LeasesAreSettled(t *testing.T) {
	t.Parallel()
	s, ops := subject(t), asks(t, 500)
	w := newWire(nil)
	accounts := w.nested()
	together(t, w, accounts, ops)
	for i := range ops {
		ops[i].Seq, ops[i].Want, ops[i].Min, ops[i].Used = 2, 0, 0, 2
	}
	before := len(w.swaps())
	for i, o := range together(t, w, accounts, ops) {
		if want := (quota.Result{Left: 98, Used: 2, Seq: 2, Own: 2}); o.err != nil || o.Result != want {
			t.Fatalf("settle %d: %+v, %v", i, o.Result, o.err)
		}
	}
	for i := range ops {
		if a := s.Account(ops[i].Key); a.Used() != 2 || a.Leased() != 0 {
			t.Errorf("account %d: %+v", i, a)
		}
	}
	// One alone has the app's first use, so that the rest of its batch follows.
	if n := len(w.swaps()) - before; n > 10 {
		t.Errorf("settled in %d transactions, want about 500/64", n)
	}
}

// One account of 500 holders that are gone is folded in pieces.
func TestBatch_C111_500HoldersAreFolded(t *testing.T) {
	t.Parallel()
	inModes(t, func(t *testing.T, mode store.Batching) {
		t.Parallel()
		me := unique(t)
		put(t, server.Client(), store.LiableKey(me), "")
		op := quota.Operation{Key: quota.Key{Tenant: me}, Holder: me, Ceiling: 10_000, Want: 10_000, Min: 1, Replicas: 1}
		var full quota.Account
		for i := range 500 {
			full.Holders = append(full.Holders, quota.Holder{
				ID: fmt.Sprintf("gone-%03d", i), Seq: 1, Used: 2, Leases: []quota.Lease{{ID: 1, Units: 10}},
			})
		}
		b, err := store.EncodeAccount(full)
		if err != nil {
			t.Fatal(err)
		}
		put(t, server.Client(), store.AccountKey(op.Key), string(b))
		accounts := accountsOver(server.Client(), mode)
		for range 500 {
			op.Seq++
			r := apply(t, accounts, op)
			op.Hold = append(op.Hold, quota.Lease{ID: op.Seq, Units: r.Granted})
			if a, _, _ := accounts.Read(t.Context(), op.Key); len(a.Holders) == 1 {
				if a.Base != 1000 || a.Used()+a.Leased() > op.Ceiling {
					t.Errorf("folded to base %d with %d leased", a.Base, a.Leased())
				}
				return
			}
		}
		t.Error("never folded")
	})
}

// Operations with many conditions travel alone, and the others in one batch: a path
// of 12 nodes with 4 documents each, and holders that are gone.
func TestBatch_C111_ManyConditionsTravelAlone(t *testing.T) {
	t.Parallel()
	ops := asks(t, 64)
	const wide = 10
	for n := range 70 {
		ops[wide].Guards = append(ops[wide].Guards, quota.Guard{Kind: string(plan.KindTenant), Name: fmt.Sprint(ops[wide].Holder, n)})
	}
	w := newWire(nil)
	for i, o := range together(t, w, w.nested(), ops) {
		if o.err != nil || o.Result != granted() {
			t.Errorf("operation %d: %+v, %v", i, o.Result, o.err)
		}
	}
	if got := w.swaps(); !slices.Equal(got, []int{63, 1}) {
		t.Errorf("transactions of %v accounts, want the wide one by itself", got)
	}
}

// Accounts are large with hundreds of holders: a batch of them is cut far below the
// 1.5 MiB that etcd takes.
func TestBatch_C111_LargeAccountsAreCut(t *testing.T) {
	t.Parallel()
	ops := asks(t, 40)
	for i := range ops {
		fatten(t, ops[i].Key, 100<<10)
	}
	w := newWire(nil)
	for i, o := range together(t, w, w.nested(), ops) {
		if o.err != nil || o.Result != granted() {
			t.Errorf("operation %d: %+v, %v", i, o.Result, o.err)
		}
	}
	for _, n := range w.swaps() {
		if n > 5 {
			t.Errorf("%d accounts of 100 KiB in one transaction, want at most 512 KiB", n)
		}
	}
}

// fatten makes an account of about n bytes, by a field of a version to come.
func fatten(t *testing.T, key quota.Key, n int) {
	t.Helper()
	b, err := store.EncodeAccount(quota.Account{Unknown: unknownField(strings.Repeat("x", n))})
	if err != nil {
		t.Fatal(err)
	}
	put(t, server.Client(), store.AccountKey(key), string(b))
}

// An account that is too large for etcd is refused, and nobody else.
func TestBatch_C111_OnlyWhatIsTooLargeIsRefused(t *testing.T) {
	t.Parallel()
	ops := asks(t, 10)
	const large = 4
	fatten(t, ops[large].Key, 1536<<10-300) // just fits alone, not with conditions
	w := newWire(nil)
	expectOneRefused(t, together(t, w, w.nested(), ops), large)
}

func expectOneRefused(t *testing.T, outcomes []outcome, refused int) {
	t.Helper()
	for i, o := range outcomes {
		switch {
		case i == refused && !errors.Is(o.err, quota.ErrNotApplied):
			t.Errorf("got %v, want ErrNotApplied", o.err)
		case i != refused && (o.err != nil || o.Result != granted()):
			t.Errorf("operation %d: %+v, %v", i, o.Result, o.err)
		}
	}
}

// A batch that etcd refuses for one key in it is sent without the one.
func TestBatch_A34_OneRefusedKeyFailsNobodyElse(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		reads bool // are refused, too
		err   error
	}{
		{"permission", false, rpctypes.ErrPermissionDenied},
		{"permission to read", true, rpctypes.ErrPermissionDenied},
		{"request", false, rpctypes.ErrRequestTooLarge},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ops := asks(t, 64)
			const denied = 41
			key := store.AccountKey(ops[denied].Key)
			w := newWire(nil)
			w.Doer = refusing{w.Doer, func(op clientv3.Op) error {
				if slices.Contains(accountKeys(op), key) && (c.reads || accountsIn(op) > 0) {
					return c.err
				}
				return nil
			}}
			expectOneRefused(t, together(t, w, w.nested(), ops), denied)
			if n := len(w.sent()); n > 40 {
				t.Errorf("%d transactions to find one of 64", n)
			}
		})
	}
}

// refusing refuses requests.
type refusing struct {
	store.Doer
	why func(clientv3.Op) error
}

// Do implements [store.Doer].
func (r refusing) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	if err := r.why(op); err != nil {
		return clientv3.OpResponse{}, err
	}
	return r.Doer.Do(ctx, op)
}

// A full database takes no puts. Who is refused units has nothing to put.
func TestBatch_A34_AFullDatabaseStillAnswersRefusals(t *testing.T) {
	t.Parallel()
	ops := asks(t, 20)
	for i := range 10 {
		ops[i].Ceiling = 0
	}
	w := newWire(nil)
	w.Doer = refusing{w.Doer, func(op clientv3.Op) error {
		if puts(op) {
			return rpctypes.ErrNoSpace
		}
		return nil
	}}
	for i, o := range together(t, w, w.nested(), ops) {
		switch {
		case i < 10 && (o.err != nil || o.Granted != 0):
			t.Errorf("a refusal: %+v, %v", o.Result, o.err)
		case i >= 10 && !errors.Is(o.err, quota.ErrNotApplied):
			t.Errorf("a grant: %v, want ErrNotApplied", o.err)
		}
	}
	if got := w.swaps(); !slices.Equal(got, []int{20, 10}) {
		t.Errorf("transactions of %v accounts, want all and then those without a put", got)
	}
}

// puts reports whether a request may put something.
func puts(op clientv3.Op) bool {
	if !op.IsTxn() {
		return op.IsPut()
	}
	_, then, _ := op.Txn()
	return slices.ContainsFunc(then, puts)
}

// While etcd has too much to do batches are half as large, and grow again afterwards.
func TestBatch_A34_TooManyRequestsHalveTheBatch(t *testing.T) {
	t.Parallel()
	refusals := 2
	w := newWire(func(_ int, op clientv3.Op) fault {
		if refusals > 0 && accountsIn(op) > 1 {
			refusals--
			return fault{lost: rpctypes.ErrTooManyRequests}
		}
		return fault{}
	})
	accounts := w.nested()
	for i, o := range together(t, w, accounts, asks(t, 130)) {
		if o.err != nil || o.Result != granted() {
			t.Errorf("operation %d: %+v, %v", i, o.Result, o.err)
		}
	}
	if got := w.swaps(); !slices.Equal(got[:4], []int{64, 32, 16, 17}) {
		t.Errorf("transactions of %v accounts, want 64, 32, 16, 17 and so on", got)
	}
}

// The first account that is written with use writes the app's used key in the same
// transaction (A18), in a batch where all are the first, too.
func TestBatch_A18_FirstUseIsWrittenWithTheAccount(t *testing.T) {
	t.Parallel()
	ops := asks(t, 64)
	for i := range ops {
		ops[i].Used = 1
	}
	w := newWire(nil)
	for i, o := range together(t, w, w.nested(), ops) {
		if o.err != nil || o.Granted != 5 {
			t.Fatalf("operation %d: %+v, %v", i, o.Result, o.err)
		}
	}
	c := server.Client()
	used, err := c.Get(t.Context(), store.UsedKey(ops[0].App))
	if err != nil || len(used.Kvs) != 1 {
		t.Fatalf("the used key: %v, %v", used, err)
	}
	first := used.Kvs[0].ModRevision + 1
	for _, op := range ops {
		r, err := c.Get(t.Context(), store.AccountKey(op.Key))
		if err != nil {
			t.Fatal(err)
		}
		first = min(first, r.Kvs[0].CreateRevision)
	}
	if used.Kvs[0].CreateRevision != first || used.Kvs[0].Version != 1 {
		t.Errorf("the used key is of revision %d, the first account of %d", used.Kvs[0].CreateRevision, first)
	}
	if got := w.swaps(); !slices.Equal(got, []int{1, 63}) {
		t.Errorf("transactions of %v accounts, want the first use and all others", got)
	}
}

// Use that is not recorded fixes no time zone, though others of the batch are applied.
func TestBatch_A18_UseThatIsRefusedIsNone(t *testing.T) {
	t.Parallel()
	s, ops := subject(t), asks(t, 10)
	ops[3].Used = 1
	s.SetLiable(ops[3].Holder, false)
	w := newWire(nil)
	outcomes := together(t, w, w.nested(), ops)
	if !errors.Is(outcomes[3].err, quota.ErrGone) {
		t.Errorf("got %v, want ErrGone", outcomes[3].err)
	}
	if keyExists(t, store.UsedKey(ops[3].App)) {
		t.Error("the app counts as used")
	}
}

func keyExists(t *testing.T, key string) bool {
	t.Helper()
	r, err := server.Client().Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Kvs) > 0
}
