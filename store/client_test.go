package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// A user and password change nothing in that an etcd that is away is no error and
// is not waited for.
func TestConnect_DoesNotWaitForALogin(t *testing.T) {
	t.Parallel()
	done := make(chan error, 1)
	go func() {
		c, err := store.Connect(store.Config{Endpoints: []string{"127.0.0.1:1"}, User: "mete", Password: "secret", Log: zerolog.Nop()})
		if err == nil {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			if _, getErr := c.Get(ctx, "/x"); getErr == nil {
				err = errors.New("nobody answered, and that is no error")
			}
			_ = c.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still waiting for an etcd that is away")
	}
}

func TestConnect_LogsInWithThePassword(t *testing.T) {
	t.Parallel()
	endpoint := startWithUsers(t)
	connect := func(password string) *clientv3.Client {
		c, err := store.Connect(store.Config{Endpoints: []string{endpoint}, User: "root", Password: password, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	if _, err := connect("wrong").Get(t.Context(), "/x"); !errors.Is(err, rpctypes.ErrAuthFailed) {
		t.Errorf("with a wrong password: %v", err)
	}
	c := connect("secret")
	r := startDocuments(t, c, zerolog.Nop())
	defer r.stop()
	put(t, c, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r.until("plan", hasAmount("pro", 1))
	if _, err := store.CheckBatching(t.Context(), zerolog.Nop(), c); err != nil {
		t.Error(err)
	}
}

// startWithUsers starts an etcd that wants a user and password: root and secret.
func startWithUsers(t *testing.T) (endpoint string) {
	t.Helper()
	urls := freeURLs(t, 2)
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.ZapLoggerBuilder = t.TempDir(), "fatal", embed.NewZapLoggerBuilder(zap.NewNop())
	c.ListenPeerUrls, c.AdvertisePeerUrls = urls[:1], urls[:1]
	c.ListenClientUrls, c.AdvertiseClientUrls = urls[1:], urls[1:]
	c.InitialCluster, c.EnableGRPCGateway = c.InitialClusterFromName(c.Name), false
	c.TickMs, c.ElectionMs = 20, 200
	c.BcryptCost = 4 // the least: many seconds with the race detector otherwise
	e, err := embed.StartEtcd(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	<-e.Server.ReadyNotify()
	admin := v3client.New(e.Server)
	for _, step := range []func() error{
		func() error { _, err := admin.UserAdd(t.Context(), "root", "secret"); return err },
		func() error { _, err := admin.RoleAdd(t.Context(), "root"); return err },
		func() error { _, err := admin.UserGrantRole(t.Context(), "root", "root"); return err },
		func() error { _, err := admin.AuthEnable(t.Context()); return err },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	return urls[1].Host
}
