package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/meteproject/mete/test/rig"
)

const thousandDocuments = `
apiVersion: mete/v1
kind: App
metadata: {name: thousand}
spec: {time_zone: UTC, identity: {tenant: [{request_header: x-tenant}]}}
`

// thousandWeights: requests of 1, 2, 3 and 7 units.
const thousandWeights = `{apiVersion: mete/v1, kind: Routes, metadata: {name: thousand}, spec: {app: thousand, rules: [` +
	`{name: two, match: {path: /2}, weight: 2}, {name: three, match: {path: /3}, weight: 3}, {name: seven, match: {path: /7}, weight: 7}]}}`

// Two processes on one etcd, 1,000 units, random load from many callers: never one
// unit over, and all of them of use (A34).
func TestTwoProcesses_A34_ThousandUnitsNoneOver(t *testing.T) {
	t.Parallel()
	first := startReplica(t)
	second := startReplica(t, "--etcd-endpoints", "http://"+first.Etcd)
	etcd, err := clientv3.New(clientv3.Config{Endpoints: []string{first.Etcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = etcd.Close() }()
	var puts []clientv3.Op // in one transaction: they come into force together
	for key, text := range map[string]string{
		"apps/thousand":       thousandDocuments,
		"plans/thousand":      "{apiVersion: mete/v1, kind: Plan, metadata: {name: thousand}, spec: {limits: {monthly: {kind: quota, amount: 1000, on_unavailable: deny, reset: {calendar: year}}}}}",
		"routes/thousand":     thousandWeights,
		"tenants/org:t":       "{apiVersion: mete/v1, kind: Tenant, metadata: {name: \"org:t\"}, spec: {plan: thousand}}",
		"tenants/org:warm-up": "{apiVersion: mete/v1, kind: Tenant, metadata: {name: \"org:warm-up\"}, spec: {plan: thousand}}",
	} {
		puts = append(puts, clientv3.OpPut("/mete/v1/"+key, text))
	}
	if _, err := etcd.Txn(t.Context()).Then(puts...).Commit(); err != nil {
		t.Fatal(err)
	}
	replicas := []authv3.AuthorizationClient{dialReplica(t, first), dialReplica(t, second)}
	for _, r := range replicas {
		awaitTenant(t, r, "org:warm-up")
	}

	var admitted, refused atomic.Int64
	var callers sync.WaitGroup
	for i := range 12 {
		rng := rand.New(rand.NewPCG(uint64(i), 1000))
		callers.Go(func() {
			for range 150 {
				units := []int64{1, 2, 3, 7}[rng.IntN(4)]
				switch answer, _ := ask(t, replicas[rng.IntN(2)], "org:t", fmt.Sprint("/", units)); answer {
				case http.StatusOK:
					admitted.Add(units)
				case http.StatusTooManyRequests:
					refused.Add(1)
				default:
					t.Errorf("answer %d, want 200 or 429", answer)
				}
			}
		})
	}
	callers.Wait()
	if n := admitted.Load(); n > 1000 || n < 950 || refused.Load() == 0 {
		t.Errorf("%d of 1,000 units admitted and %d requests refused, want at most 1,000 and close to it", n, refused.Load())
	}
}

func startReplica(t *testing.T, args ...string) *rig.Mete {
	t.Helper()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	m, err := rig.StartMete(context.Background(), filepath.Join(dir, "mete"), t.TempDir(), append(patience(), args...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func dialReplica(t *testing.T, m *rig.Mete) authv3.AuthorizationClient {
	t.Helper()
	conn, err := grpc.NewClient(m.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return authv3.NewAuthorizationClient(conn)
}

// ask sends a check and returns the HTTP status that Envoy would answer with, and
// the name of the rule that the request was measured by.
func ask(t *testing.T, c authv3.AuthorizationClient, tenant, path string) (status int, route string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	r, err := c.Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		ContextExtensions: map[string]string{"mete-app": "thousand"},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{
			Method: http.MethodGet, Path: path, Headers: map[string]string{"x-tenant": tenant},
		}},
	}})
	route = r.GetDynamicMetadata().GetFields()["route"].GetStringValue()
	switch {
	case err != nil:
		return http.StatusServiceUnavailable, ""
	case r.GetDeniedResponse() != nil:
		return int(r.GetDeniedResponse().GetStatus().GetCode()), route
	}
	return http.StatusOK, route
}

// awaitTenant returns once a replica knows a tenant and what its requests cost.
func awaitTenant(t *testing.T, c authv3.AuthorizationClient, tenant string) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		status, route := ask(t, c, tenant, "/7")
		if status == http.StatusOK && route == "seven" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("documents are not in force: %d by route %q", status, route)
		}
	}
}
