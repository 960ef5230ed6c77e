package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/quota"
)

// tryTimeout bounds one request to etcd: two fit into the 300 ms that a request
// may wait for a lease, so that a second member can answer for one that hangs.
const tryTimeout = 120 * time.Millisecond

// Accounts keeps accounts in etcd. It implements [quota.Store].
type Accounts struct {
	kv clientv3.KV
	// Liable tells whether an incarnation may still hold units, as far as this
	// process knows: [Members.Liable]. A wrong answer costs a round trip and
	// nothing else. Nil: etcd is asked for each account.
	Liable func(incarnation string) bool

	used sync.Map // app name: its used key is known to exist
}

var _ quota.Store = (*Accounts)(nil)

// NewAccounts returns the accounts of an etcd.
func NewAccounts(kv clientv3.KV) *Accounts { return &Accounts{kv: kv} }

// Forget drops what is remembered of the store: it is another one now.
func (s *Accounts) Forget() { s.used.Clear() }

// Apply implements [quota.Store]. Each request to etcd has 120 ms; lost ones are
// repeated until ctx ends.
func (s *Accounts) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	a := attempt{store: s, op: op, key: AccountKey(op.Key), here: map[string]bool{op.Holder: true}}
	for pause := firstPause; ; {
		done, err := a.step(ctx)
		switch {
		case done:
			return a.result, nil
		case err == nil:
			continue
		case definite(err) && !a.unknown:
			return quota.Result{}, fmt.Errorf("apply to %s: %w", a.key, asNotApplied(err))
		case definite(err) && !certain(err):
			// An earlier try may have landed, or may yet.
			return quota.Result{}, fmt.Errorf("apply to %s: not known: %v", a.key, err) //nolint:errorlint // must not look like ErrNotApplied
		case certain(err):
			return quota.Result{}, fmt.Errorf("apply to %s: %w", a.key, err)
		}
		a.seen = nil
		if sleep(ctx, pause) != nil {
			return quota.Result{}, fmt.Errorf("apply to %s: %w", a.key, err)
		}
		pause = min(2*pause, lastPause)
	}
}

// Pauses between tries that failed.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = time.Second
)

// sleep waits for d; an error if ctx ends before that, or would.
func sleep(ctx context.Context, d time.Duration) error {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d { //nolint:forbidigo // context deadlines are on the real clock
		return context.DeadlineExceeded
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// An attempt is one call of Apply.
type attempt struct {
	store *Accounts
	op    quota.Operation // Gone is filled in anew in each step
	key   string

	seen    *version
	here    map[string]bool // holders whose liable key was just seen
	unknown bool            // a write of this call may have landed
	result  quota.Result
}

// A version is an account as it was read.
type version struct {
	account  quota.Account
	revision int64 // of the last change; 0: never written
	current  bool  // read through the leader after the call began
}

// step does one round: read if need be, compute, swap. It is done when the result
// is known; neither done nor an error means that the next step will tell.
func (a *attempt) step(ctx context.Context) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	if a.seen == nil {
		if err := a.read(ctx); err != nil {
			return false, err
		}
	}
	replay := replayed(a.seen.account, a.op)
	if !replay {
		if err := a.findGone(ctx); err != nil {
			return false, err
		}
	}
	next, result := quota.Apply(a.seen.account, a.op)
	a.result = result
	if replay && a.seen.current {
		return true, nil
	}
	t := newTransaction(a.key, a.seen.revision)
	if !replay {
		t.require(a.op)
	}
	if changed(a.seen.account, next, a.op.Holder) {
		if err := t.put(a, next); err != nil {
			return false, err
		}
	} else {
		t.then = append(t.then, clientv3.OpGet(a.key, clientv3.WithKeysOnly()))
	}
	return a.commit(ctx, t)
}

// read reads the account from any member: an old value only loses the swap. After
// a try of unknown outcome it reads through the leader.
func (a *attempt) read(ctx context.Context) error {
	var opts []clientv3.OpOption
	if !a.unknown {
		opts = append(opts, clientv3.WithSerializable())
	}
	r, err := a.store.kv.Get(ctx, a.key, opts...)
	if err != nil {
		return err
	}
	return a.see(r.Kvs, a.unknown)
}

func (a *attempt) see(kvs []*mvccpb.KeyValue, current bool) error {
	v := version{current: current}
	if len(kvs) > 0 {
		account, err := decodeAccount(kvs[0].Value)
		if err != nil {
			return fmt.Errorf("%w: %w", quota.ErrNotApplied, err)
		}
		v.account, v.revision = account, kvs[0].ModRevision
	}
	a.seen = &v
	return nil
}

// maxGone bounds how many holders one operation folds, so that its transaction
// stays below the 128 operations that etcd allows. The next one folds the rest.
const maxGone = 32

// findGone fills in the holders that do not seem liable any more.
func (a *attempt) findGone(ctx context.Context) error {
	a.op.Gone = nil
	var candidates []string
	for _, h := range a.seen.account.Holders {
		if a.here[h.ID] || a.store.Liable != nil && a.store.Liable(h.ID) {
			continue
		}
		if candidates = append(candidates, h.ID); len(candidates) == maxGone {
			break
		}
	}
	if a.store.Liable != nil || len(candidates) == 0 {
		a.op.Gone = candidates
		return nil
	}
	ops := make([]clientv3.Op, 0, len(candidates))
	for _, id := range candidates {
		ops = append(ops, clientv3.OpGet(liableKey(id), clientv3.WithKeysOnly(), clientv3.WithSerializable()))
	}
	r, err := a.store.kv.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return err
	}
	for i, id := range candidates {
		if len(r.Responses[i].GetResponseRange().GetKvs()) > 0 {
			a.here[id] = true
			continue
		}
		a.op.Gone = append(a.op.Gone, id)
	}
	return nil
}

// commit sends t. When it loses it finds out why.
func (a *attempt) commit(ctx context.Context, t *transaction) (done bool, err error) {
	r, err := a.store.kv.Txn(ctx).If(t.compares...).Then(t.then...).Else(t.reads()...).Commit()
	if err != nil {
		a.unknown = a.unknown || t.writes && !definite(err)
		return false, err
	}
	if r.Succeeded {
		if t.used {
			a.store.used.Store(a.op.App, true)
		}
		return true, nil
	}
	if err := a.see(r.Responses[0].GetResponseRange().GetKvs(), true); err != nil {
		return false, err
	}
	if replayed(a.seen.account, a.op) {
		return false, nil // an earlier try had landed
	}
	return false, t.lost(r.Responses[1:], a.here)
}

// A transaction is what step sends: the account at a revision, the conditions of
// the operation, and puts or a read.
type transaction struct {
	key      string
	compares []clientv3.Cmp
	then     []clientv3.Op
	writes   bool
	used     bool // then puts the used key

	guards []quota.Guard
	holder string   // that must be liable; "": no condition
	gone   []string // that must not be
}

// newTransaction returns one that wants the account to be at revision.
func newTransaction(key string, revision int64) *transaction {
	return &transaction{
		key:      key,
		compares: []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", revision)},
	}
}

// require adds the conditions under which op may be applied.
func (t *transaction) require(op quota.Operation) {
	if op.Want > 0 {
		t.guards, t.holder = op.Guards, op.Holder
		for _, g := range op.Guards {
			t.compares = append(t.compares, clientv3.Compare(clientv3.ModRevision(guardKey(g)), "=", g.Revision))
		}
		t.compares = append(t.compares, clientv3.Compare(clientv3.CreateRevision(liableKey(op.Holder)), ">", 0))
	}
	t.gone = op.Gone
	for _, id := range op.Gone {
		t.compares = append(t.compares, clientv3.Compare(clientv3.CreateRevision(liableKey(id)), "=", 0))
	}
}

// put makes t write the account, and the app's used key with its first use.
func (t *transaction) put(a *attempt, next quota.Account) error {
	b, err := encodeAccount(next)
	if err != nil {
		return fmt.Errorf("%w: %w", quota.ErrNotApplied, err)
	}
	t.writes = true
	t.then = append(t.then, clientv3.OpPut(t.key, string(b)))
	if _, known := a.store.used.Load(a.op.App); a.op.Used > 0 && a.op.App != "" && !known {
		t.used = true
		t.then = append(t.then, clientv3.OpPut(UsedKey(a.op.App), ""))
	}
	return nil
}

// reads returns what tells, after a loss, which condition failed.
func (t *transaction) reads() []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpGet(t.key)}
	for _, g := range t.guards {
		ops = append(ops, clientv3.OpGet(guardKey(g), clientv3.WithKeysOnly()))
	}
	if t.holder != "" {
		ops = append(ops, clientv3.OpGet(liableKey(t.holder), clientv3.WithKeysOnly()))
	}
	for _, id := range t.gone {
		ops = append(ops, clientv3.OpGet(liableKey(id), clientv3.WithKeysOnly()))
	}
	return ops
}

// lost reads the answers of reads but the first. It returns ErrStale or ErrGone;
// nil means that the account moved or that a holder is here after all.
func (t *transaction) lost(rs []*etcdserverpb.ResponseOp, here map[string]bool) error {
	revision := func() int64 {
		kvs := rs[0].GetResponseRange().GetKvs()
		rs = rs[1:]
		if len(kvs) == 0 {
			return 0
		}
		return kvs[0].ModRevision
	}
	for _, g := range t.guards {
		if now := revision(); now != g.Revision {
			return fmt.Errorf("%s %s is at revision %d, not %d: %w", g.Kind, g.Name, now, g.Revision, quota.ErrStale)
		}
	}
	if t.holder != "" && revision() == 0 {
		return fmt.Errorf("%s: %w", t.holder, quota.ErrGone)
	}
	for _, id := range t.gone {
		if revision() > 0 {
			here[id] = true
		}
	}
	return nil
}

// replayed tells whether a has seen op before, or op only asks.
func replayed(a quota.Account, op quota.Operation) bool {
	if op.Seq == 0 {
		return true
	}
	for _, h := range a.Holders {
		if h.ID == op.Holder {
			return h.Seq >= op.Seq
		}
	}
	return false
}

// changed tells whether b differs from a in more than the sequence of holder: a
// refusal that reports nothing is not written. The only thing that a late
// duplicate of it could still do is to grant a lease that its holder never
// lists, and so closes.
func changed(a, b quota.Account, holder string) bool {
	if a.Base != b.Base || len(a.Holders) > len(b.Holders) {
		return true
	}
	was := make(map[string]quota.Holder, len(a.Holders))
	for _, h := range a.Holders {
		was[h.ID] = h
	}
	for _, h := range b.Holders {
		old, known := was[h.ID]
		if h.Used != old.Used || !sameLeases(h.Leases, old.Leases) || !known && h.ID != holder {
			return true
		}
	}
	return false
}

func sameLeases(a, b []quota.Lease) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Read returns an account and its revision; 0 if nobody has used it.
func (s *Accounts) Read(ctx context.Context, key quota.Key) (quota.Account, int64, error) {
	r, err := s.kv.Get(ctx, AccountKey(key))
	if err != nil {
		return quota.Account{}, 0, fmt.Errorf("read %s: %w", AccountKey(key), err)
	}
	if len(r.Kvs) == 0 {
		return quota.Account{}, 0, nil
	}
	a, err := decodeAccount(r.Kvs[0].Value)
	if err != nil {
		return quota.Account{}, 0, fmt.Errorf("read %s: %w", AccountKey(key), err)
	}
	return a, r.Kvs[0].ModRevision, nil
}

// An Entry is an account as it is stored.
type Entry struct {
	Key      quota.Key // without the root, which the store keeps only the shard of
	Account  quota.Account
	Revision int64
}

// List returns the accounts of some tenants, or of all, at one revision for each
// tenant.
func (s *Accounts) List(ctx context.Context, tenants ...string) ([]Entry, error) {
	var all []Entry
	if len(tenants) == 0 {
		_, err := scan(ctx, s.kv, prefixSpan(AccountsPrefix), 0, func(kv *mvccpb.KeyValue) {
			all = append(all, entries([]*mvccpb.KeyValue{kv})...)
		})
		return all, err
	}
	for _, tenant := range tenants {
		// The root is not known here; a tenant's accounts may be in any shard.
		for half := range 2 {
			ops := make([]clientv3.Op, 0, 128)
			for hh := range 128 {
				prefix := fmt.Sprintf("%s%02x/%s/", AccountsPrefix, half*128+hh, escape(tenant))
				ops = append(ops, clientv3.OpGet(prefix, clientv3.WithPrefix()))
			}
			r, err := s.kv.Txn(ctx).Then(ops...).Commit()
			if err != nil {
				return nil, fmt.Errorf("list accounts of %s: %w", tenant, err)
			}
			for _, o := range r.Responses {
				all = append(all, entries(o.GetResponseRange().GetKvs())...)
			}
		}
	}
	return all, nil
}

// entries decodes accounts; what is none is left out.
func entries(kvs []*mvccpb.KeyValue) []Entry {
	var all []Entry
	for _, kv := range kvs {
		key, ok := ParseAccountKey(string(kv.Key))
		a, err := decodeAccount(kv.Value)
		if ok && err == nil {
			all = append(all, Entry{Key: key, Account: a, Revision: kv.ModRevision})
		}
	}
	return all
}

// definite tells whether an error says that a transaction was not applied. All
// else is not known: the connection broke, the leader changed, the time ran out.
func definite(err error) bool {
	if errors.Is(err, quota.ErrNotApplied) || certain(err) {
		return true
	}
	code := status.Code(err)
	var etcd rpctypes.EtcdError
	if errors.As(err, &etcd) {
		code = etcd.Code()
	}
	switch code { //nolint:exhaustive // the rest is unknown
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

// certain tells whether an error rules out earlier tries of the same operation
// too: a guard that has moved on, and a liable key that is gone, never come back.
func certain(err error) bool {
	return errors.Is(err, quota.ErrStale) || errors.Is(err, quota.ErrGone)
}

// asNotApplied makes a definite error of etcd one that callers branch on.
func asNotApplied(err error) error {
	if certain(err) || errors.Is(err, quota.ErrNotApplied) {
		return err
	}
	return fmt.Errorf("%w: %w", quota.ErrNotApplied, err)
}
