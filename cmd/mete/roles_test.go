package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
	"github.com/meteproject/mete/store/storetest"
)

// A replica with the role of docs/etcd-access.md and no other publishes an edit, writes every
// key that replicas write, and leaves in order; a document it cannot write.
func TestServe_TheRoleOfAReplicaIsEnough(t *testing.T) {
	t.Parallel()
	etcd, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(etcd.Close)
	as := func(user string) *clientv3.Client {
		cfg := store.Config{Endpoints: []string{etcd.Endpoint()}, Log: zerolog.Nop()}
		if user != "" {
			cfg.User, cfg.Password = user, storetest.Password
		}
		c, err := store.Connect(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := storetest.Roles(ctx, as(""), filepath.Join("..", "..", "docs", "etcd-access.md")); err != nil {
		t.Fatal(err)
	}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte(storetest.Password+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := start(t, "--etcd-endpoints=http://"+etcd.Endpoint(), "--etcd-user=replica", "--etcd-password-file="+password, "--drain-delay=0")
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", r.log)
		}
	})
	a := r.addresses(t)
	root := as("root")
	const text = "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: free}\nspec: {limits: {a: {kind: rate, amount: 1, window: 1s}}}\n"
	if _, err := root.Put(ctx, store.DocumentKey(plan.KindPlan, "free"), text); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the plan in force, and a seal", func() bool {
		plans, err := root.Get(ctx, store.EffectiveKey(plan.KindPlan, "free"), clientv3.WithCountOnly())
		seals, err2 := root.Get(ctx, store.SealsPrefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && err2 == nil && plans.Count == 1 && seals.Count > 0
	})
	eventually(t, "etcd takes its writes", func() bool {
		_, body := get(t, "http://"+a.Metrics+"/readyz?verbose")
		return strings.Contains(body, "[ok] etcd takes writes\n")
	})
	if err := store.CheckWrites(ctx, store.ClusterOf(as("replica"))); err != nil {
		t.Errorf("a key that replicas write: %v", err)
	}
	if _, err := as("replica").Put(ctx, store.DocumentKey(plan.KindPlan, "free"), text); !store.Denied(err) {
		t.Errorf("a replica writes a document: %v", err)
	}
	if err := r.stop(t); err != nil || strings.Contains(r.log.String(), "permission denied") {
		t.Errorf("stop: %v\n%s", err, r.log)
	}
}
