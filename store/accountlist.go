package store

import (
	"context"
	"fmt"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/quota"
)

// Read returns an account and its revision; 0 if nobody has used it.
func (s *Accounts) Read(ctx context.Context, key quota.Key) (quota.Account, int64, error) {
	r, err := get(ctx, s.kv, AccountKey(key))
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
		var revision int64 // of the first half; 0: the newest
		for half := range 2 {
			ops := make([]clientv3.Op, 0, 128)
			for hh := range 128 {
				prefix := fmt.Sprintf("%s%02x/%s/", AccountsPrefix, half*128+hh, escape(tenant))
				ops = append(ops, clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithRev(revision)))
			}
			r, err := txn(ctx, s.kv, nil, ops, nil)
			if err != nil {
				return nil, fmt.Errorf("list accounts of %s: %w", tenant, err)
			}
			revision = r.Header.Revision
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
