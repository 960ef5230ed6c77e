package bench_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/journal"
	"github.com/meteproject/mete/store/storetest"
)

const documents = `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec: {time_zone: Europe/Berlin, identity: {tenant: [{api_key: x-api-key}]}}
---
apiVersion: mete/v1
kind: Plan
metadata: {name: free}
spec:
  limits:
    per_second: {kind: rate, amount: 1000000, window: 1s}
    per_minute: {kind: rate, amount: 60000000, window: 1m}
    monthly: {kind: quota, amount: 900000000000000, reset: {calendar: month}}
`

func runKeeper(b *testing.B, j quota.Journal) *quota.Keeper {
	b.Helper()
	k := quota.NewKeeper(quota.KeeperConfig{Store: storetest.Unguarded(&storetest.Memory{}), Now: time.Now, Journal: j}, "r1")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = k.Run(ctx) }()
	b.Cleanup(func() { cancel(); <-done })
	return k
}

func key(i int) string { return fmt.Sprintf("mk_%032d", i) }

// catalog holds n tenants, each with an API key.
func catalog(b *testing.B, n int) *plan.Catalog {
	b.Helper()
	c := plan.NewCatalog()
	docs, problems := plan.Decode("bench.yaml", []byte(documents))
	if plan.Refused(problems) {
		b.Fatal(problems)
	}
	for _, doc := range docs {
		c.Put(doc, 1)
	}
	for i := range n {
		name, hash := fmt.Sprint("org:t", i), sha256.Sum256([]byte(key(i)))
		c.Put(&plan.Document{Kind: plan.KindTenant, Name: name, Tenant: &plan.Tenant{Name: name, Plan: "free"}}, 1)
		c.Put(&plan.Document{
			Kind: plan.KindCredential, Name: hex.EncodeToString(hash[:]),
			Credential: &plan.Credential{Hash: hash, Tenant: name},
		}, 1)
	}
	return c
}

// BenchmarkSnapshot looks up API key, tenant and route among a million tenants.
func BenchmarkSnapshot(b *testing.B) {
	const n = 1_000_000
	s := catalog(b, n).Snapshot()
	hashes := make([]plan.Hash, 1<<16)
	for i := range hashes {
		hashes[i] = sha256.Sum256([]byte(key(i * 15)))
	}
	b.Run("credential+tenant", func(b *testing.B) {
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c := s.Credential(hashes[i&(len(hashes)-1)])
			if c == nil || s.Tenant(c.Tenant) == nil {
				b.Fatal("not found")
			}
		}
	})
	b.Run("terms", func(b *testing.B) {
		now := time.Now()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			c := s.Credential(hashes[i&(len(hashes)-1)])
			if t := s.Terms(now, "api", c.Tenant); t.Broken != "" {
				b.Fatal(t.Broken)
			}
		}
	})
}

// BenchmarkDecide decides requests with an API key, two buckets and a purse each.
// "active" tenants take turns in a pseudo-random order, out of a million.
func BenchmarkDecide(b *testing.B) {
	const n = 1_000_000
	snapshot := catalog(b, n).Snapshot()
	for _, active := range []int{1, 10_000, 100_000} {
		b.Run(fmt.Sprint("active=", active), func(b *testing.B) {
			keeper := runKeeper(b, nil)
			d := authz.New(authz.Config{Keeper: keeper, Now: time.Now, MaxTenants: 2 * active})
			d.SetSnapshot(snapshot)
			keys := make([]string, active)
			for i := range keys {
				keys[i] = key(i * (n / active))
			}
			req := &authz.Request{Method: "GET", Path: "/v1/items/7", Headers: make([]authz.Field, 17)}
			req.Headers[16].Name = "x-api-key"
			dec := new(authz.Decision)
			ask := func(i int) {
				req.Headers[16].Value = keys[i%active]
				dec.Reset()
				d.Decide(context.Background(), time.Now(), req, dec)
				if !dec.Outcome.Admits() {
					b.Fatal(dec.Outcome.Word(), dec.Why)
				}
			}
			for i := range active {
				ask(i)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ask(i * 7919)
			}
		})
	}
}

// BenchmarkPurse charges one purse.
func BenchmarkPurse(b *testing.B) {
	b.Run("without a journal", func(b *testing.B) { benchmarkPurse(b, nil) })
	b.Run("with a journal", func(b *testing.B) {
		j, _, err := journal.Open(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		defer func() { _ = j.Close() }()
		benchmarkPurse(b, j)
	})
}

func benchmarkPurse(b *testing.B, j quota.Journal) {
	b.Helper()
	keeper := runKeeper(b, j)
	var lock sync.Mutex
	terms := &quota.Terms{
		App: "api", Amount: 900_000_000_000_000, Ceiling: 900_000_000_000_000,
		Rule: quota.DefaultLeaseRule(),
	}
	lock.Lock()
	purse := keeper.Open(quota.Key{Root: "t", Tenant: "t", Limit: "l", Window: "w"}, quota.Window{ID: "w"}, terms, &lock)
	ready := purse.Await(1_000_000_000)
	lock.Unlock()
	<-ready
	b.ReportAllocs()
	for b.Loop() {
		at := keeper.Instant(time.Now())
		lock.Lock()
		if purse.Room(at, 1) == quota.Fits {
			purse.Charge(at, 1)
		}
		lock.Unlock()
	}
}
