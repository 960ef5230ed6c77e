package differential_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/test/bufconn"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A desk is one replica of mete that answers over gRPC, with a store in memory. It is made in a synctest bubble, so that time is
// the test's.
type desk struct {
	t       *testing.T
	decider *authz.Decider
	memory  *storetest.Memory
	away    atomic.Bool // the store fails
	catalog *plan.Catalog
	rev     int64
	conn    *grpc.ClientConn
	client  rls.RateLimitServiceClient
}

// newDesk returns a replica with files in force. They are separate documents.
func newDesk(t *testing.T, files ...string) *desk {
	t.Helper()
	return newReplica(t, &storetest.Memory{}, "r1", files...)
}

// newReplica returns one of several replicas on a store.
func newReplica(t *testing.T, memory *storetest.Memory, holder string, files ...string) *desk {
	t.Helper()
	k := &desk{t: t, memory: memory, catalog: plan.NewCatalog()}
	keeper := quota.NewKeeper(quota.KeeperConfig{Store: k, Now: time.Now}, holder)
	k.decider = authz.New(authz.Config{Keeper: keeper, Now: time.Now, Process: 1})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = keeper.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	for _, f := range files {
		k.put(f)
	}
	k.publish()
	k.serve()
	return k
}

func (k *desk) publish() { k.decider.SetSnapshot(k.catalog.Snapshot()) }

// Apply implements [quota.Store].
func (k *desk) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	if k.away.Load() {
		return quota.Result{}, errors.New("the store is away")
	}
	return k.memory.Apply(ctx, op)
}

// put takes in the documents of a file, as the service does.
func (k *desk) put(file string) {
	k.t.Helper()
	docs, problems := plan.Decode("test.yaml", []byte(file))
	if plan.Refused(problems) {
		k.t.Fatalf("%v\n%s", problems, file)
	}
	for _, doc := range docs {
		if p := k.catalog.Check(doc); plan.Refused(p) {
			k.t.Fatalf("%v\n%s", p, file)
		}
		k.rev++
		k.catalog.Put(doc, k.rev)
		k.memory.SetGuard(quota.Guard{Kind: string(doc.Kind), Name: doc.Name, Revision: k.rev})
	}
}

// serve lets mete speak with clients.
func (k *desk) serve() {
	k.t.Helper()
	listener := bufconn.Listen(1 << 16)
	s := envoy.NewServer(envoy.Options{
		Decider: k.decider, Settler: nobody{}, Now: time.Now, MaxConnectionAge: -1,
		// The clock may leap a year: no pings on the way.
		Extra: []grpc.ServerOption{grpc.KeepaliveParams(keepalive.ServerParameters{Time: 100 * 365 * 24 * time.Hour})},
	})
	s.SetServing(true)
	served := make(chan struct{})
	go func() { defer close(served); _ = s.Serve(listener) }()
	conn, err := grpc.NewClient(
		"passthrough:mete", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithIdleTimeout(0),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { _ = conn.Close(); s.Stop(); <-served })
	k.conn, k.client = conn, rls.NewRateLimitServiceClient(conn)
}

// ask sends a request over the wire.
func (k *desk) ask(r request) (answer, error) { return ask(k.t.Context(), k.client, r) }

// nobody settles nothing: no request of these tests reserves.
type nobody struct{ envoy.Settler }
