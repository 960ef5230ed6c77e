package bench_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// BenchmarkRenewals renews leases over an embedded etcd. A renewal reports use, gives
// back what is left of a lease and takes another one, under the guards of a plan and a
// tenant. Renewals come at the rate in the benchmark's name whether or not the last
// ones are done; the percentiles are of the time from when one was due to its answer.
//
// "one replica" is mete serve as it comes: one replica in the process of its etcd, with
// 100,000 accounts. "ten replicas" have a connection each to an etcd on the same
// processors, and 10,000 accounts that all of them use.
func BenchmarkRenewals(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // as mete serve does
	for _, c := range []struct {
		name               string
		replicas, accounts int
		inProcess          bool
		rates              []int
	}{
		{"one replica", 1, 100_000, true, []int{10_000, 20_000, 30_000}},
		{"ten replicas", 10, 10_000, false, []int{5_000, 10_000, 20_000}},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := startFleet(b, c.replicas, c.accounts, c.inProcess)
			for _, mode := range []store.Batching{store.Nested, store.Single} {
				for _, rate := range c.rates {
					b.Run(fmt.Sprintf("%s/offered=%d", mode, rate), func(b *testing.B) { f.renewals(b, mode, rate) })
				}
			}
		})
	}
}

// A fleet is replicas without anything but their accounts.
type fleet struct {
	replicas []*store.Accounts
	keys     []quota.Key     // of each account
	guards   [][]quota.Guard // of each account
	holders  []string        // of each replica
	purses   []renewing      // of each replica and account
	order    []int           // in which they are renewed, over and over
}

// A renewing is one replica's side of one account.
type renewing struct {
	mu   sync.Mutex // one operation is under way at a time
	seq  uint64
	used int64
}

func startFleet(b *testing.B, replicas, accounts int, inProcess bool) *fleet {
	b.Helper()
	server, err := embedded.Start(context.Background(), embedded.Config{Dir: b.TempDir(), ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(server.Close)
	pairs := replicas * accounts
	f := &fleet{purses: make([]renewing, pairs), order: rand.New(rand.NewPCG(1, 2)).Perm(pairs)}
	for i := range f.purses {
		f.purses[i].seq = 1
	}
	for range replicas {
		c := server.Client()
		if !inProcess {
			if c, err = store.Connect(store.Config{Endpoints: []string{server.Endpoint()}, Log: zerolog.Nop()}); err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { _ = c.Close() })
		}
		one := store.NewAccounts(c)
		one.Liable, one.Alone = func(string) bool { return true }, func() bool { return replicas == 1 }
		f.replicas = append(f.replicas, one)
		f.holders = append(f.holders, holderOf(len(f.holders)))
	}
	f.fill(b, server.Client(), accounts)
	return f
}

func tenantOf(account int) string { return fmt.Sprintf("org:%06d", account) }

func keyOf(account int) quota.Key {
	return quota.Key{Root: tenantOf(account), Tenant: tenantOf(account), Limit: "monthly", Window: "2026-11"}
}

func holderOf(replica int) string { return fmt.Sprintf("mete-%d-6b2f01", replica) }

// fill writes documents, liable keys, and accounts that every replica has a lease of.
func (f *fleet) fill(b *testing.B, c *clientv3.Client, accounts int) {
	b.Helper()
	put := func(ops ...clientv3.Op) int64 {
		r, err := c.Txn(context.Background()).Then(ops...).Commit()
		if err != nil {
			b.Fatal(err)
		}
		return r.Header.Revision
	}
	pro := put(clientv3.OpPut(store.EffectiveKey(plan.KindPlan, "pro"), "x"))
	var account metev1.Account
	for r := range f.replicas {
		put(clientv3.OpPut(store.LiablePrefix+holderOf(r), ""))
		account.Holders = append(account.Holders, &metev1.Holder{
			Id: holderOf(r), Seq: 1, Leases: []*metev1.Lease{{Id: 1, Units: 10, Version: pro}},
		})
	}
	text, err := proto.Marshal(&account)
	if err != nil {
		b.Fatal(err)
	}
	for i := range accounts {
		revision := put(
			clientv3.OpPut(store.DocumentKey(plan.KindTenant, tenantOf(i)), "x"),
			clientv3.OpPut(store.AccountKey(keyOf(i)), string(text)),
		)
		f.keys = append(f.keys, keyOf(i))
		f.guards = append(f.guards, []quota.Guard{
			{Kind: string(plan.KindPlan), Name: "pro", Revision: pro},
			{Kind: string(plan.KindTenant), Name: tenantOf(i), Revision: revision},
		})
	}
}

// renew does the nth renewal.
func (f *fleet) renew(n int) error {
	pair := f.order[n%len(f.order)]
	replica, account := pair%len(f.replicas), pair/len(f.replicas)
	p := &f.purses[pair]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seq++
	p.used += 7
	_, err := f.replicas[replica].Apply(context.Background(), quota.Operation{
		Key: f.keys[account], App: "api", Holder: f.holders[replica], Seq: p.seq, Used: p.used,
		Want: 10, Min: 1, Ceiling: quota.MaxUnits, Replicas: len(f.replicas), Guards: f.guards[account],
	})
	return err
}

// renewals does b.N renewals, rate of them becoming due in each second.
func (f *fleet) renewals(b *testing.B, mode store.Batching, rate int) {
	b.Helper()
	before := f.stats()
	for _, accounts := range f.replicas {
		accounts.SetBatching(mode)
	}
	took := make([]time.Duration, b.N)
	var running sync.WaitGroup
	b.ResetTimer()
	began, busy := time.Now(), processorTime(b)
	for n := range b.N {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(rate))
		if ahead := time.Until(due); ahead > time.Millisecond {
			time.Sleep(ahead)
		}
		running.Go(func() {
			if err := f.renew(n); err != nil {
				b.Error(err)
			}
			took[n] = time.Since(due)
		})
	}
	running.Wait()
	elapsed := time.Since(began)
	busy = processorTime(b) - busy
	b.StopTimer()
	slices.Sort(took)
	after := f.stats()
	b.ReportMetric(float64(b.N)/elapsed.Seconds(), "op/s")
	b.ReportMetric(took[b.N/2].Seconds()*1000, "p50-ms")
	b.ReportMetric(took[b.N*99/100].Seconds()*1000, "p99-ms")
	b.ReportMetric(float64(busy.Microseconds())/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(b.N)/float64(after.Writes-before.Writes), "op/write")
	b.ReportMetric(100*float64(after.Lost-before.Lost)/float64(b.N), "lost-%")
	b.ReportMetric(100*float64(after.Unknown-before.Unknown)/float64(b.N), "unknown-%")
}

// processorTime returns what this process has used: of replicas and etcd together.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (f *fleet) stats() store.AccountStats {
	var sum store.AccountStats
	for _, accounts := range f.replicas {
		s := accounts.Stats()
		sum.Writes += s.Writes
		sum.Lost += s.Lost
		sum.Unknown += s.Unknown
	}
	return sum
}
