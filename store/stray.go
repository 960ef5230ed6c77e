package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
)

// strayMost is how many keys StrayKeys returns at most.
const strayMost = 100

// StrayKeys returns keys of mete's range that are neither documents nor state, sorted: what
// was written under plan/ in place of plans/, say. Replicas pass over them. It returns
// 100 at most, and reports whether there are more. Of tenants and credentials, which may
// be millions, it does not look at each key.
func StrayKeys(ctx context.Context, kv Doer) (keys []string, more bool, err error) {
	between, folders := straySpans()
	limits := []clientv3.OpOption{clientv3.WithKeysOnly(), clientv3.WithLimit(strayMost + 1)}
	for i, sp := range append(between, folders...) {
		if i == len(between) {
			limits = limits[:1] // what is not a document may stand after a thousand that are
		}
		found, err := get(ctx, kv, sp.from, append(limits, clientv3.WithRange(sp.to))...)
		if err != nil {
			return nil, false, fmt.Errorf("look for keys that are not documents: %w", err)
		}
		for _, kv := range found.Kvs {
			key := string(kv.Key)
			if _, _, document := ParseDocumentKey(key); !document && key != EpochKey {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	if len(keys) > strayMost {
		return keys[:strayMost], true, nil
	}
	return keys, false, nil
}

// straySpans are the ranges in which a key may be none of ours: what lies between our
// folders, and the folders of documents that are few.
func straySpans() (between, folders []span) {
	ours := []span{{statePrefix, stateEnd}, prefixSpan(EffectivePrefix), prefixSpan(StatusPrefix)}
	for _, kind := range Kinds() {
		sp := prefixSpan(DocumentPrefix(kind))
		ours = append(ours, sp)
		if kind != plan.KindTenant && kind != plan.KindCredential {
			folders = append(folders, sp)
		}
	}
	slices.SortFunc(ours, func(a, b span) int { return strings.Compare(a.from, b.from) })
	from := Prefix
	for _, sp := range ours {
		between = append(between, span{from, sp.from})
		from = sp.to
	}
	return append(between, span{from, prefixEnd}), folders
}
