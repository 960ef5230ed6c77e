package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

const (
	app = `apiVersion: mete/v1
kind: App
metadata: {name: shop}
spec:
  time_zone: UTC
  identity:
    tenant: [{request_header: x-tenant}]
`
	free = `apiVersion: mete/v1
kind: Plan
metadata: {name: free}
spec:
  limits:
    monthly: {kind: quota, amount: 1000, reset: {calendar: month}}
`
	tenant = `# A customer on that plan.
apiVersion: mete/v1
kind: Tenant
metadata: {name: %q}
spec: {plan: free}
`
	credential = `apiVersion: mete/v1
kind: Credential
metadata: {name: %q}
spec: {tenant: %q}
`
)

func tenantName(i int) string { return fmt.Sprintf("org:customer%06d", i) }

// fillTenants writes an app, a plan and n tenants on it.
func fillTenants(ctx context.Context, data string, n int) error {
	return fill(ctx, data, n, func(i int) []clientv3.Op {
		ops := []clientv3.Op{clientv3.OpPut(store.DocumentKey(plan.KindTenant, tenantName(i)), fmt.Sprintf(tenant, tenantName(i)))}
		if i == 0 {
			ops = append(ops, clientv3.OpPut(store.DocumentKey(plan.KindApp, "shop"), app),
				clientv3.OpPut(store.DocumentKey(plan.KindPlan, "free"), free))
		}
		return ops
	})
}

// fillCredentials writes an API key of each of n tenants.
func fillCredentials(ctx context.Context, data string, n int) error {
	return fill(ctx, data, n, func(i int) []clientv3.Op {
		sum := sha256.Sum256([]byte(tenantName(i)))
		hash := hex.EncodeToString(sum[:])
		return []clientv3.Op{clientv3.OpPut(store.DocumentKey(plan.KindCredential, hash), fmt.Sprintf(credential, hash, tenantName(i)))}
	})
}

// fill runs the etcd of a data directory while it makes n documents.
func fill(ctx context.Context, data string, n int, make func(i int) []clientv3.Op) error {
	s, err := embedded.Start(ctx, embedded.Config{Dir: data, ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		return err
	}
	defer s.Close()
	const batch = 100 // etcd takes 128 operations in a transaction
	var ops []clientv3.Op
	for i := range n {
		ops = append(ops, make(i)...)
		if len(ops) < batch && i < n-1 {
			continue
		}
		if _, err := s.Client().Txn(ctx).Then(ops...).Commit(); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Base(data), err)
		}
		ops = ops[:0]
	}
	return nil
}
