package store

import (
	"context"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A keptKey is a key with an etcd lease of its own. Its calls go to one endpoint after
// another until one answers: repeating them leaves at worst a lease that runs out.
type keptKey struct {
	cluster *Cluster
	key     string
	ttl     time.Duration
	value   func() string
	lease   clientv3.LeaseID
}

// callTimeout bounds calls that nothing waits for.
const callTimeout = 2 * time.Second

func (k *keptKey) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var l *clientv3.LeaseGrantResponse
	err := k.cluster.repeat(ctx, func(ctx context.Context, c *clientv3.Client) (err error) {
		l, err = c.Grant(ctx, max(1, int64(k.ttl/time.Second)))
		return err
	})
	if err != nil {
		return fmt.Errorf("lease for %s: %w", k.key, err)
	}
	err = k.cluster.repeat(ctx, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Put(ctx, k.key, k.value(), clientv3.WithLease(l.ID))
		return err
	})
	if err != nil {
		return fmt.Errorf("put %s: %w", k.key, err)
	}
	k.lease = l.ID
	return nil
}

func (k *keptKey) keepAlive(ctx context.Context) error {
	if k.lease == clientv3.NoLease {
		return rpctypes.ErrLeaseNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return k.cluster.repeat(ctx, func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.KeepAliveOnce(ctx, k.lease)
		return err
	})
}

// exists reports whether the key exists. One that a late request of an earlier create has
// put under another lease is put under its own again: nobody keeps the other one alive.
func (k *keptKey) exists(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for range 2 {
		r, err := get(ctx, k.cluster, k.key) // keys alone come without their leases
		switch {
		case err != nil || len(r.Kvs) == 0:
			return false, err
		case clientv3.LeaseID(r.Kvs[0].Lease) == k.lease:
			return true, nil
		}
		if err := k.takeBack(ctx, r.Kvs[0].ModRevision); err != nil {
			return false, err
		}
	}
	return true, nil // it was when it was seen last
}

// takeBack puts the key under its lease if it is at revision. One that is gone must not
// come back: its holder may have been folded away.
func (k *keptKey) takeBack(ctx context.Context, revision int64) error {
	_, err := txn(ctx, k.cluster,
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(k.key), "=", revision)},
		[]clientv3.Op{clientv3.OpPut(k.key, k.value(), clientv3.WithLease(k.lease))}, nil)
	if err != nil {
		return fmt.Errorf("put %s under its lease: %w", k.key, err)
	}
	return nil
}

// missing reports whether the key certainly does not exist.
func (k *keptKey) missing(ctx context.Context) bool {
	exists, err := k.exists(ctx)
	return err == nil && !exists
}
