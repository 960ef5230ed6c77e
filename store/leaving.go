package store

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// LeaveTimeout bounds how long Members.Run takes to end without etcd; its keys then
// run out.
const LeaveTimeout = 2 * time.Second

// Owe has Run leave the liable key behind at its end: this replica has used what it could
// not report, and the process that reports it from the journal needs the key.
func (m *Members) Owe() { m.owes.Store(true) }

func (m *Members) leftKeys(presence, liable *keptKey) []*keptKey {
	if m.owes.Load() {
		return []*keptKey{presence}
	}
	return []*keptKey{presence, liable}
}

// Dismiss deletes the keys of incarnations whose processes are known to be dead and
// whose use is all reported: nobody need wait until the keys run out. A repeat changes
// nothing.
func Dismiss(ctx context.Context, kv Doer, incarnations ...string) error {
	for _, id := range incarnations {
		ops := []clientv3.Op{clientv3.OpDelete(replicaKey(id)), clientv3.OpDelete(liableKey(id))}
		if _, err := txn(ctx, kv, nil, ops, nil); err != nil {
			return fmt.Errorf("dismiss %s: %w", id, err)
		}
	}
	return nil
}

// leave deletes keys, all at once, then ends their leases.
func (m *Members) leave(ctx context.Context, keys ...*keptKey) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), LeaveTimeout)
	defer cancel()
	ops := make([]clientv3.Op, 0, len(keys))
	for _, k := range keys {
		ops = append(ops, clientv3.OpDelete(k.key))
	}
	_ = m.cluster.repeat(ctx, func(ctx context.Context, c *clientv3.Client) error {
		_, err := txn(ctx, c, nil, ops, nil)
		return err
	})
	for _, k := range keys {
		if k.lease == clientv3.NoLease {
			continue
		}
		_ = m.cluster.repeat(ctx, func(ctx context.Context, c *clientv3.Client) error {
			_, err := c.Revoke(ctx, k.lease)
			return err
		})
	}
}
