package store_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// A member hangs while the first batch is handled: that its watch is to be doubted is
// known when it is followed at last.
func TestCluster_A56_AMemberHangsWhileAllIsRead(t *testing.T) {
	t.Parallel()
	p := startProxied(t)
	put(t, p.direct, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	handling, handled := make(chan struct{}), make(chan struct{})
	docs := store.NewDocuments(p.Cluster)
	r := &replica{Documents: docs, t: t, cancel: func() {}}
	var first sync.Once
	r.OnSnapshot = func(*plan.Snapshot) {
		first.Do(func() {
			close(handling)
			<-handled
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	r.done.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(r.stop)
	<-handling
	p.inUse().set(hangs)
	for failovers := p.Health().Failovers; p.Health().Failovers == failovers; {
		try, end := context.WithTimeout(t.Context(), time.Second)
		_, _ = store.NewAccounts(p.Cluster).List(try, "nobody")
		end()
	}
	close(handled)
	put(t, p.direct, store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 2))
	r.until("the edit", hasAmount("pro", 2)) // silence alone is noticed after 13 s
}
