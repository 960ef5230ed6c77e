package store

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// VersionKey returns the key whose revision voids what replicas hold of a tenant or of a
// counter: writing it makes them give their leases back, fill the buckets of a
// counter, and ask again what is left.
func VersionKey(tenant string) string { return versionsPrefix + escape(tenant) }

// rangesTogether is how many shards one request reads, and keysOfRange how many keys of
// each it takes at first.
const (
	rangesTogether = 64
	keysOfRange    = 100
)

// ListUnder returns the accounts of all tenants whose names begin with prefix, which is
// ASCII, at one revision: those of a domain's counters. Accounts that cannot be read are
// left out.
func (s *Accounts) ListUnder(ctx context.Context, prefix string) ([]Entry, error) {
	var all []Entry
	var revision int64
	for first := 0; first < shards; first += rangesTogether {
		ops := make([]clientv3.Op, 0, rangesTogether)
		spans := make([]span, 0, rangesTogether)
		for hh := range rangesTogether {
			sp := prefixSpan(shardPrefix(first+hh) + escape(prefix))
			spans = append(spans, sp)
			ops = append(ops, clientv3.OpGet(sp.from, clientv3.WithRange(sp.to), clientv3.WithLimit(keysOfRange), clientv3.WithRev(revision)))
		}
		r, err := txn(ctx, s.kv, nil, ops, nil)
		if err != nil {
			return nil, fmt.Errorf("list accounts under %s: %w", prefix, err)
		}
		if revision == 0 {
			revision = r.Header.Revision
		}
		for i, o := range r.Responses {
			some, err := s.rest(ctx, o.GetResponseRange(), spans[i], revision)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
	}
	return all, nil
}

// ListOf returns the accounts of a tenant in the tree of a root, or of a counter, which is
// its own root.
func (s *Accounts) ListOf(ctx context.Context, root, tenant string) ([]Entry, error) {
	var all []Entry
	_, err := scanPages(ctx, s.kv, prefixSpan(AccountPrefix(root, tenant)), 0, func(kvs []*mvccpb.KeyValue) {
		for _, e := range entries(kvs) {
			e.Key.Root = root
			all = append(all, e)
		}
	})
	return all, err
}

// rest returns the accounts of a span of which r has the first.
func (s *Accounts) rest(ctx context.Context, r *etcdserverpb.RangeResponse, sp span, revision int64) ([]Entry, error) {
	all := entries(r.GetKvs())
	if !r.GetMore() {
		return all, nil
	}
	sp.from = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	_, err := scanPages(ctx, s.kv, sp, revision, func(kvs []*mvccpb.KeyValue) { all = append(all, entries(kvs)...) })
	return all, err
}

// A Cleared is an account that was cleared.
type Cleared struct {
	Key  quota.Key
	Used int64 // what it had counted; below 0 after refunds of what was cleared before
}

// clearedTogether is how many accounts are cleared in one transaction: as many as
// documents are written.
const clearedTogether = maxChanges

// ClearAccounts clears accounts of one tenant, or of one counter, as [quota.Account.Cleared]
// does, and makes all replicas void what they hold of it in the same transaction, so that
// callers that were refused are admitted as soon as replicas hear of it. Without accounts
// it does that alone. It returns what it has cleared, of accounts that were used, and the
// revision. More than 60 accounts take several transactions.
//
// Operations of replicas go on meanwhile: an account that moves is read again until ctx is
// done, and then the error is [ErrChanged]. What replicas have used and not reported counts
// in the cleared account. A store that needs a newer version is not written to: the error
// is a [*TooOldError]. After any other the last transaction may have been applied. Those
// before it were, in any case: what they cleared is returned. A repeat clears what was used
// since.
func ClearAccounts(ctx context.Context, kv Doer, tenant string, keys []quota.Key) (cleared []Cleared, revision int64, err error) {
	for {
		some := keys[:min(len(keys), clearedTogether)]
		keys = keys[len(some):]
		done, at, err := clearTogether(ctx, kv, tenant, some)
		if err != nil {
			return cleared, revision, fmt.Errorf("clear %d accounts of %s: %w", len(some), tenant, err)
		}
		cleared, revision = append(cleared, done...), at
		if len(keys) == 0 {
			return cleared, revision, nil
		}
	}
}

// A reading is what a clearing is computed from.
type reading struct {
	minimum  Minimum
	accounts []Entry // those that nobody has used at revision 0
}

// readingOps reads the minimum and accounts.
func readingOps(keys []quota.Key) []clientv3.Op {
	ops := []clientv3.Op{clientv3.OpGet(MinimumKey)}
	for _, k := range keys {
		ops = append(ops, clientv3.OpGet(AccountKey(k)))
	}
	return ops
}

// read takes in the answers to readingOps.
func read(keys []quota.Key, responses []*etcdserverpb.ResponseOp) (reading, error) {
	newest := func(i int) (value []byte, revision int64) {
		for _, kv := range responses[i].GetResponseRange().GetKvs() {
			value, revision = kv.Value, kv.ModRevision
		}
		return value, revision
	}
	r := reading{minimum: decodeMinimum(newest(0))}
	if r.minimum.Above(plan.FeatureLevel) {
		return r, &TooOldError{r.minimum}
	}
	for i, k := range keys {
		value, revision := newest(i + 1)
		a, err := decodeAccount(value)
		if err != nil {
			return r, fmt.Errorf("read %s: %w", AccountKey(k), err)
		}
		r.accounts = append(r.accounts, Entry{k, a, revision})
	}
	return r, nil
}

// clearTogether clears accounts in one transaction. When it loses, it goes on from what it
// lost to, as quickly as replicas do.
func clearTogether(ctx context.Context, kv Doer, tenant string, keys []quota.Key) ([]Cleared, int64, error) {
	answer, err := txn(ctx, kv, nil, readingOps(keys), nil)
	for err == nil {
		var now reading
		if now, err = read(keys, answer.Responses); err != nil {
			break
		}
		if ctx.Err() != nil {
			return nil, 0, fmt.Errorf("%w, again and again", ErrChanged)
		}
		compares, puts, cleared, encodeErr := now.clear()
		if encodeErr != nil {
			return nil, 0, encodeErr
		}
		puts = append(puts, clientv3.OpPut(VersionKey(tenant), ""))
		answer, err = txn(ctx, kv, compares, puts, readingOps(keys))
		if err == nil && answer.Succeeded {
			return cleared, answer.Header.Revision, nil
		}
	}
	return nil, 0, err
}

// clear returns what clears the accounts of a reading, if all is still as it was read.
func (r *reading) clear() (compares []clientv3.Cmp, puts []clientv3.Op, cleared []Cleared, err error) {
	compares = []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(MinimumKey), "=", r.minimum.revision)}
	for _, e := range r.accounts {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(AccountKey(e.Key)), "=", e.Revision))
		next, used := e.Account.Cleared()
		if used == 0 {
			continue
		}
		value, err := encodeAccount(next)
		if err != nil {
			return nil, nil, nil, err
		}
		puts = append(puts, clientv3.OpPut(AccountKey(e.Key), string(value)))
		cleared = append(cleared, Cleared{e.Key, used})
	}
	return compares, puts, cleared, nil
}
