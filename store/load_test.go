package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// fill writes n tenants below a few roots.
func fill(tb testing.TB, c *clientv3.Client, n int) {
	tb.Helper()
	ctx := tb.Context()
	must := func(_ any, err error) {
		tb.Helper()
		if err != nil {
			tb.Fatal(err)
		}
	}
	must(c.Put(ctx, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC")))
	must(c.Put(ctx, store.DocumentKey(plan.KindPlan, "free"), planText("free", 5)))
	must(c.Put(ctx, store.DocumentKey(plan.KindTenant, "org:root"), tenantText("org:root", "free", "")))
	for from := 0; from < n; from += 100 {
		ops := make([]clientv3.Op, 0, 100)
		for i := from; i < min(from+100, n); i++ {
			name := fmt.Sprint("user:u", i)
			ops = append(ops, clientv3.OpPut(store.DocumentKey(plan.KindTenant, name), tenantText(name, "free", "org:root")))
		}
		must(c.Txn(ctx).Then(ops...).Commit())
	}
}

// The first read of a hundred thousand tenants takes less than 2 s.
func BenchmarkFirstRead(b *testing.B) {
	c := server.Client()
	fill(b, c, 100_000)
	began := processorTime(b)
	for b.Loop() {
		d := store.NewDocuments(store.ClusterOf(c))
		d.Log = zerolog.Nop()
		ctx, cancel := context.WithCancel(b.Context())
		got := make(chan *plan.Snapshot, 10)
		d.OnSnapshot = func(s *plan.Snapshot) { got <- s }
		done := make(chan struct{})
		go func() { defer close(done); _ = d.Run(ctx) }()
		s := <-got
		if terms := s.Terms(time.Now(), "shop", "user:u99999"); terms.Broken != "" {
			b.Fatal(terms.Broken)
		}
		cancel()
		<-done
	}
	// On a machine that does other things too, this is the better measure.
	b.ReportMetric((processorTime(b)-began).Seconds()/float64(b.N), "cpu-s/op")
}

func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
