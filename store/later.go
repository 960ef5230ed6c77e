package store

import (
	"context"
	"fmt"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// PutSettledLater tells all replicas that what a rule of a rate limit domain is charged
// tells of use that happened (case C153). It stays so: a repeat changes nothing.
func PutSettledLater(ctx context.Context, kv Doer, path string) error {
	key := LaterPrefix + escape(path)
	_, err := txn(ctx, kv,
		[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
		[]clientv3.Op{clientv3.OpPut(key, "")}, nil)
	if err != nil {
		return fmt.Errorf("put %s: %w", key, err)
	}
	return nil
}

// SettledLater returns the paths of those rules, sorted by their keys.
func SettledLater(ctx context.Context, kv Doer) ([]string, error) {
	r, err := get(ctx, kv, LaterPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, fmt.Errorf("read rules that are settled later: %w", err)
	}
	var paths []string
	for _, kv := range r.Kvs {
		if path, ok := ruleOf(string(kv.Key)); ok {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// ruleOf is the inverse of the key of a rule that is settled later.
func ruleOf(key string) (path string, ok bool) {
	escaped, isLater := strings.CutPrefix(key, LaterPrefix)
	path, canonical := unescape(escaped)
	return path, isLater && canonical && path != ""
}
