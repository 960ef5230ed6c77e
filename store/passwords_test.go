package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// C180: an etcd with passwords, whose tokens run out while nobody uses them, and are all
// void once it was started again. Edits come into force and leases go on all the same.
func TestCluster_C180_TokensRunOut(t *testing.T) {
	t.Parallel()
	const life = time.Second
	address, dir := freeURLs(t, 1)[0], t.TempDir()
	set := func(c *embed.Config) { c.AuthTokenTTL = uint(life / time.Second) }
	stop := startEtcd(t, dir, address, set)
	enableAuth(t, dialled(t, store.Config{Endpoints: []string{address.Host}}))

	var log syncBuffer
	cluster, err := store.NewCluster(store.Config{Endpoints: []string{address.Host}, User: "mete", Password: "pw", Log: zerolog.New(&log)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	editor := dialled(t, store.Config{Endpoints: []string{address.Host}, User: "mete", Password: "pw"})
	docs := startDocumentsOf(t, cluster, zerolog.New(&log))
	members := startMemberOf(t, cluster, "a", time.Minute)
	accounts, me := store.NewAccounts(cluster), ""
	eventually(t, "registered", func() bool {
		me = members.Incarnation()
		r, err := editor.Get(t.Context(), store.LiableKey(me))
		return err == nil && len(r.Kvs) == 1 && len(members.Replicas()) == 1
	})

	g := &going{t: t, editor: editor, docs: docs, accounts: accounts, holder: me}
	g.on("at first")
	for range 2 {
		time.Sleep(2 * life)
		g.on("after the tokens' end")
	}
	stop()
	time.Sleep(life)
	startEtcd(t, dir, address, set)
	g.on("after etcd was started again")
	time.Sleep(2 * life)
	g.on("after the end of the tokens from then")
	if members.Incarnation() != me || len(members.incarnations()) != 1 {
		t.Errorf("incarnations %v: its liable key was never gone", members.incarnations())
	}
}

// A going writes an edit and takes a lease, one after the other.
type going struct {
	t        *testing.T
	editor   *clientv3.Client
	docs     *replica
	accounts *store.Accounts
	holder   string
	edits    int
}

func (g *going) on(when string) {
	g.t.Helper()
	g.edits++
	putPatiently(g.t, g.editor, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", g.edits))
	g.docs.until(when, hasAmount("pro", int64(g.edits)))
	ctx, cancel := context.WithTimeout(g.t.Context(), patience)
	defer cancel()
	n := int64(g.edits)
	op := quota.Operation{
		Key: quota.Key{Tenant: "org:a"}, Holder: g.holder, Seq: uint64(g.edits), Used: n, Want: 5, Min: 1, Ceiling: 100,
	}
	if r, err := g.accounts.Apply(ctx, op); err != nil || r.Used != n || r.Seq != op.Seq || r.Granted != 5 {
		g.t.Errorf("%s: a lease: %+v, %v", when, r, err)
	}
}

// putPatiently puts a key as soon as etcd takes it.
func putPatiently(t *testing.T, c *clientv3.Client, key, value string) {
	t.Helper()
	eventually(t, "put", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Put(ctx, key, value)
		return err == nil
	})
}
