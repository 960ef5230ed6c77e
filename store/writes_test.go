package store_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// startEtcd starts an etcd at an address, with settings of a test's own, and returns what
// stops it without a word, which may be called more than once.
func startEtcd(t *testing.T, dir string, address url.URL, set func(*embed.Config)) (stop func()) {
	t.Helper()
	c := embed.NewConfig()
	c.Name, c.Dir, c.LogLevel = "m", dir, "fatal"
	peer := freeURLs(t, 1)
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, peer
	c.ListenClientUrls, c.AdvertiseClientUrls = []url.URL{address}, []url.URL{address}
	c.InitialCluster, c.EnableGRPCGateway = c.InitialClusterFromName(c.Name), false
	c.TickMs, c.ElectionMs, c.BcryptCost = 20, 200, 4
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	set(c)
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() { e.Server.HardStop(); e.Close() })
	t.Cleanup(stop)
	<-e.Server.ReadyNotify()
	return stop
}

// dialled returns a client of an etcd for a test's own use.
func dialled(t *testing.T, cfg store.Config) *clientv3.Client {
	t.Helper()
	cfg.Log = zerolog.Nop()
	c, err := store.Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// startWrites finds out several times a second whether an etcd takes writes.
func startWrites(t *testing.T, c *store.Cluster, log zerolog.Logger) *store.Writes {
	t.Helper()
	w := store.NewWrites(c)
	w.Log, w.Every = log, 50*time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { _ = w.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
	return w
}

// says waits until w says what contains text; "": that etcd takes writes.
func says(t *testing.T, w *store.Writes, text string) {
	t.Helper()
	eventually(t, "etcd says "+text, func() bool {
		got := w.Refusal()
		return (got == "") == (text == "") && strings.Contains(got, text)
	})
}

// C158: the database is full. Quotas are decided by on_unavailable, and everything says
// why; once there is space the books are exact, without a restart.
func TestWrites_C158_TheDatabaseIsFull(t *testing.T) {
	t.Parallel()
	address := freeURLs(t, 1)[0]
	startEtcd(t, t.TempDir(), address, func(c *embed.Config) { c.QuotaBackendBytes = 20 << 20 })
	c := dialled(t, store.Config{Endpoints: []string{address.Host}})
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 1000))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:acme"), tenantText("org:acme", "free", ""))
	w := startWhole(t, c)
	w.docs.until("tenant", func(s *plan.Snapshot) bool { return s.Tenant("org:acme") != nil })
	w.admit(5)
	var log syncBuffer
	writes := startWrites(t, store.ClusterOf(c), zerolog.New(&log))
	says(t, writes, "")

	fillUp(t, c)
	says(t, writes, "database space exceeded")
	letOn := w.unavailable(200)
	says(t, writes, "database space exceeded")
	if n := strings.Count(log.String(), "etcd takes no writes"); n != 1 || !strings.Contains(log.String(), "database space exceeded") {
		t.Errorf("%d lines, want one that says why:\n%s", n, log.String())
	}
	empty(t, c)
	says(t, writes, "")
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "etcd takes writes again") {
		t.Errorf("want one line more:\n%s", log.String())
	}
	letOn += w.recovered()
	w.stop() // nothing else may report while Settle does
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := w.keeper.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	list, err := store.NewAccounts(c).List(t.Context(), "org:acme")
	if want := int64(5 + letOn); err != nil || len(list) != 1 || list[0].Account.Used() != want {
		t.Errorf("the books are not exact: %+v, %v, want %d used", list, err, want)
	}
}

// recovered sends requests until one is admitted by a lease, and returns how many were
// served.
func (w *whole) recovered() (served int) {
	w.t.Helper()
	var dec authz.Decision
	eventually(w.t, "a lease is granted", func() bool {
		dec.Reset()
		w.decider.Decide(w.t.Context(), time.Now(), &authz.Request{
			Headers: []authz.Field{{Name: "x-tenant", Value: "org:acme"}},
		}, &dec)
		served++
		return dec.Outcome == authz.Allowed
	})
	return served
}

// unavailable sends requests until n were let on because the store is away, and returns
// how many were served in all.
func (w *whole) unavailable(n int) (served int) {
	w.t.Helper()
	w.decider.SetSnapshot(w.docs.Snapshot())
	var dec authz.Decision
	for letOn := 0; letOn < n; {
		dec.Reset()
		w.decider.Decide(w.t.Context(), time.Now(), &authz.Request{
			Headers: []authz.Field{{Name: "x-tenant", Value: "org:acme"}},
		}, &dec)
		switch dec.Outcome { //nolint:exhaustive // the rest is wrong
		case authz.UnavailableAllowed:
			letOn++
			served++
		case authz.Allowed: // from a lease of before
			served++
		default:
			w.t.Fatalf("request %d: %v", served, dec.Outcome)
		}
	}
	return served
}

// fillUp writes until etcd takes no more.
func fillUp(t *testing.T, c *clientv3.Client) {
	t.Helper()
	value := strings.Repeat("x", 1<<20)
	for range 100 {
		if _, err := c.Put(t.Context(), "/other", value); err != nil {
			if !strings.Contains(err.Error(), "space exceeded") {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("etcd takes 100 MiB")
}

// empty makes space and ends the alarm, as an operator does.
func empty(t *testing.T, c *clientv3.Client) {
	t.Helper()
	r, err := c.Delete(t.Context(), "/other")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), r.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Defragment(t.Context(), c.Endpoints()[0]); err != nil {
		t.Fatal(err)
	}
	all := clientv3.AlarmMember(etcdserverpb.AlarmMember{})
	if _, err := c.AlarmDisarm(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
}

// A permission that is taken away stops writes of one kind, while reads go on: the keys
// are named.
func TestWrites_C158_APermissionIsTakenAway(t *testing.T) {
	t.Parallel()
	address := freeURLs(t, 1)[0]
	startEtcd(t, t.TempDir(), address, func(*embed.Config) {})
	root := dialled(t, store.Config{Endpoints: []string{address.Host}})
	enableAuth(t, root)
	root = dialled(t, store.Config{Endpoints: []string{address.Host}, User: "root", Password: "pw"})
	cluster, err := store.NewCluster(store.Config{Endpoints: []string{address.Host}, User: "mete", Password: "pw", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cluster.Close() })
	var log syncBuffer
	writes := startWrites(t, cluster, zerolog.New(&log))
	says(t, writes, "")
	if _, err := root.RoleRevokePermission(t.Context(), "mete", store.Prefix, clientv3.GetPrefixRangeEnd(store.Prefix)); err != nil {
		t.Fatal(err)
	}
	for _, all := range []string{"epoch", "effective/", "status/", "state/j", "state/l", "state/m", "state/r", "state/s", "state/t", "state/u"} {
		grant(t, root, store.Prefix+all) // but state/accounts/
	}
	says(t, writes, store.AccountsPrefix)
	if got := writes.Refusal(); !strings.Contains(got, "permission denied") || strings.Contains(log.String(), "does not answer") {
		t.Errorf("got %q, logged:\n%s", got, log.String())
	}
	grant(t, root, store.Prefix)
	says(t, writes, "")
	if before := get(t, root, store.AccountsPrefix+"check"); before != "" {
		t.Error("asking wrote something")
	}
}

// enableAuth makes users root and mete, with the password pw, and a role for mete.
func enableAuth(t *testing.T, c *clientv3.Client) {
	t.Helper()
	ctx := t.Context()
	_, err := c.RoleAdd(ctx, "root")
	for _, user := range []string{"root", "mete"} {
		if err == nil {
			_, err = c.UserAdd(ctx, user, "pw")
		}
	}
	if err == nil {
		_, err = c.RoleAdd(ctx, "mete")
	}
	for _, user := range []string{"root", "mete"} {
		if err == nil {
			_, err = c.UserGrantRole(ctx, user, user)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	grant(t, c, store.Prefix)
	if _, err := c.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
}

// grant lets mete read and write what begins with prefix.
func grant(t *testing.T, c *clientv3.Client, prefix string) {
	t.Helper()
	_, err := c.RoleGrantPermission(t.Context(), "mete", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
	if err != nil {
		t.Fatal(err)
	}
}

// A store that answers reads and hangs on writes is not one that is away.
func TestWrites_C158_WritesThatHang(t *testing.T) {
	t.Parallel()
	kv := newWire(func(_ int, op clientv3.Op) fault {
		if puts(op) {
			return fault{reply: context.DeadlineExceeded}
		}
		return fault{}
	})
	c := clientv3.NewCtxClient(t.Context())
	c.KV = wireKV{wire: kv}
	writes := startWrites(t, store.ClusterOf(c), zerolog.Nop())
	says(t, writes, "reads are answered, a write is not")
}

// wireKV is a wire in the place of a client's KV.
type wireKV struct {
	clientv3.KV
	wire *wire
}

func (k wireKV) Do(ctx context.Context, op clientv3.Op) (clientv3.OpResponse, error) {
	return k.wire.Do(ctx, op)
}
