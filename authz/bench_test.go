package authz_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// unguarded is a store that knows of no documents: what is measured is not there.
type unguarded struct{ quota.Store }

func (u unguarded) Apply(ctx context.Context, op quota.Operation) (quota.Result, error) {
	op.Guards = nil
	return u.Store.Apply(ctx, op)
}

// benchDecider is a Decider over n tenants on a plan with two rates and a quota,
// each tenant with an API key.
func benchDecider(b *testing.B, n int) (*authz.Decider, []string) {
	b.Helper()
	keeper := quota.NewKeeper(quota.KeeperConfig{Store: unguarded{&storetest.Memory{}}, Now: time.Now}, "r1")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = keeper.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	catalog := plan.NewCatalog()
	docs, problems := plan.Decode("bench.yaml", []byte(`
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec: {time_zone: Europe/Berlin, identity: {tenant: [{api_key: x-api-key}]}}
`+planDoc("free", `per_second: {kind: rate, amount: 1000000, window: 1s}
per_minute: {kind: rate, amount: 60000000, window: 1m}
monthly: {kind: quota, amount: 900000000000000, reset: {calendar: month}}`)))
	if plan.Refused(problems) {
		b.Fatal(problems)
	}
	for _, doc := range docs {
		catalog.Put(doc, 1)
	}
	keys := make([]string, n)
	for i := range n {
		keys[i] = fmt.Sprintf("mk_%032d", i)
		tenant, _ := plan.Decode("", []byte(tenantDoc(fmt.Sprint("org:t", i), "{plan: free}")+credentialDoc(keys[i], fmt.Sprintf("{tenant: \"org:t%d\"}", i))))
		for _, doc := range tenant {
			catalog.Put(doc, 1)
		}
	}
	d := authz.New(authz.Config{Keeper: keeper, Now: time.Now, MaxTenants: 2 * n})
	d.SetSnapshot(catalog.Snapshot())
	return d, keys
}

func BenchmarkDecide(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprintf("tenants=%d", n), func(b *testing.B) {
			d, keys := benchDecider(b, n)
			dec := new(authz.Decision)
			req := &authz.Request{Method: "GET", Path: "/v1/items/7", Headers: []authz.Field{
				{Name: ":method", Value: "GET"}, {Name: ":path", Value: "/v1/items/7"}, {Name: "x-api-key"},
			}}
			ask := func(i int) {
				req.Headers[2].Value = keys[i%n]
				dec.Reset()
				d.Decide(context.Background(), time.Now(), req, dec)
				if !dec.Outcome.Admits() {
					b.Fatal(dec.Outcome.Word(), dec.Why)
				}
			}
			for i := range n {
				ask(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ask(i)
			}
		})
	}
}
