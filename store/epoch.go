package store

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
)

// errNoEpoch: others registered or wrote while a store was given its epoch, each time.
var errNoEpoch = errors.New("replicas come and go; try again")

// EnsureEpoch returns the random id of the store, and makes one if it has none. A
// restore from a backup must change it.
//
// A store without one is new. It then needs the feature level of this build from the
// start, unless a live replica has a lower one: no document was written there that
// meant something else before. A repeat changes nothing.
func EnsureEpoch(ctx context.Context, kv Doer) (string, error) {
	const tries = 4
	for range tries {
		id, err := foundEpoch(ctx, kv)
		if !errors.Is(err, errNoEpoch) {
			return id, err
		}
	}
	return "", fmt.Errorf("ensure %s: %w", EpochKey, errNoEpoch)
}

// foundEpoch is one try of EnsureEpoch; errNoEpoch if something that it read changed.
func foundEpoch(ctx context.Context, kv Doer) (string, error) {
	f := newFleet()
	r, err := txn(ctx, kv, nil, append(f.reads(plan.FeatureLevel), clientv3.OpGet(EpochKey)), nil)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", EpochKey, err)
	}
	if found := r.Responses[len(r.Responses)-1].GetResponseRange().GetKvs(); len(found) > 0 {
		return string(found[0].Value), nil
	}
	f.renew(plan.FeatureLevel, r)
	id := randomID(16)
	compares := []clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(EpochKey), "=", 0)}
	writes := []clientv3.Op{clientv3.OpPut(EpochKey, id)}
	if f.behind(plan.FeatureLevel) == "" {
		compares = append(compares, f.guards(plan.FeatureLevel)...)
		writes = append(writes, f.raise(plan.FeatureLevel)...)
	}
	r, err = txn(ctx, kv, compares, writes, nil)
	switch {
	case err != nil:
		return "", fmt.Errorf("ensure %s: %w", EpochKey, err)
	case !r.Succeeded:
		return "", errNoEpoch
	}
	return id, nil
}
