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

// exists tells whether the key exists.
func (k *keptKey) exists(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	r, err := get(ctx, k.cluster, k.key, clientv3.WithCountOnly())
	return err == nil && r.Count > 0, err
}

// missing tells whether the key certainly does not exist.
func (k *keptKey) missing(ctx context.Context) bool {
	exists, err := k.exists(ctx)
	return err == nil && !exists
}
