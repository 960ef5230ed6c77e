package bench_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// BenchmarkTenantMemory measures what a tenant without a document takes that has asked once:
// its node, its buckets and its purse with the first lease. With shared it has no room.
func BenchmarkTenantMemory(b *testing.B) {
	for name, limits := range map[string]string{
		"rates": "per_second: {kind: rate, amount: 10, window: 1s}, per_minute: {kind: rate, amount: 300, window: 1m}",
		"quota": "per_second: {kind: rate, amount: 10, window: 1s}, per_minute: {kind: rate, amount: 300, window: 1m}, monthly: {kind: quota, amount: 10000, reset: {calendar: month}}",
	} {
		b.Run(name, func(b *testing.B) { benchmarkTenantMemory(b, limits, 1<<20) })
	}
	b.Run("shared", func(b *testing.B) {
		benchmarkTenantMemory(b, "per_minute: {kind: rate, amount: 400000000, window: 1m}, monthly: {kind: quota, amount: 400000000, reset: {calendar: month}}", 1)
	})
}

func benchmarkTenantMemory(b *testing.B, limits string, most int) {
	b.Helper()
	keeper := runKeeper(b, nil)
	d := authz.New(authz.Config{Keeper: keeper, Now: time.Now, MaxTenants: most})
	docs, problems := plan.Decode("plan.yaml", []byte(`
{apiVersion: mete/v1, kind: App, metadata: {name: api}, spec: {time_zone: UTC, identity: {tenant: [{request_header: x-tenant}]}, defaults: {plan: free}}}
---
{apiVersion: mete/v1, kind: Plan, metadata: {name: free}, spec: {limits: {`+limits+`}}}
`))
	if plan.Refused(problems) {
		b.Fatal(problems)
	}
	c := plan.NewCatalog()
	for i, doc := range docs {
		c.Put(doc, int64(i+1))
	}
	d.SetSnapshot(c.Snapshot())
	var dec authz.Decision
	before := heapInUse()
	b.ReportAllocs()
	n := 0
	for ; b.Loop(); n++ {
		dec.Reset()
		d.Decide(b.Context(), time.Now(), &authz.Request{
			Method: "GET", Path: "/", Headers: []authz.Field{{Name: "x-tenant", Value: fmt.Sprint("made-up:", n)}},
		}, &dec)
	}
	b.StopTimer()
	b.ReportMetric(float64(heapInUse()-before)/float64(n), "B/tenant")
	runtime.KeepAlive(d)
}
