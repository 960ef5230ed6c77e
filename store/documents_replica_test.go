package store_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

func appText(name, zone string) string {
	return fmt.Sprintf("apiVersion: mete/v1\nkind: App\nmetadata: {name: %s}\nspec:\n  time_zone: %s\n  identity:\n    tenant: [{request_header: x-tenant}]\n", name, zone)
}

func planText(name string, amount int) string {
	return fmt.Sprintf("apiVersion: mete/v1\nkind: Plan\nmetadata: {name: %s}\nspec:\n  limits:\n    monthly: {kind: quota, amount: %d, reset: {calendar: month}, cascade: true}\n", name, amount)
}

func tenantText(name, onPlan, parent string) string {
	s := fmt.Sprintf("apiVersion: mete/v1\nkind: Tenant\nmetadata: {name: %q}\nspec:\n  plan: %s\n", name, onPlan)
	if parent != "" {
		s += fmt.Sprintf("  parent: %q\n", parent)
	}
	return s
}

// A replica is a running Documents, and what it handed out.
type replica struct {
	*store.Documents
	t      *testing.T
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	resets int
	snaps  []*plan.Snapshot
}

func startDocuments(t *testing.T, c *clientv3.Client, log zerolog.Logger) *replica {
	t.Helper()
	return startDocumentsOf(t, store.ClusterOf(c), log)
}

func startDocumentsOf(t *testing.T, c *store.Cluster, log zerolog.Logger) *replica {
	t.Helper()
	return startSilent(t, c, log, 2*time.Second)
}

// startSilent is startDocumentsOf of a replica that notices silence after a while.
func startSilent(t *testing.T, c *store.Cluster, log zerolog.Logger, silence time.Duration) *replica {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &replica{Documents: store.NewDocuments(c), t: t, cancel: cancel}
	r.Log, r.Progress, r.Silence = log, 100*time.Millisecond, silence
	r.OnReset = func() { r.mu.Lock(); defer r.mu.Unlock(); r.resets++ }
	r.OnSnapshot = func(s *plan.Snapshot) { r.mu.Lock(); defer r.mu.Unlock(); r.snaps = append(r.snaps, s) }
	r.done.Go(func() { _ = r.Run(ctx) })
	t.Cleanup(r.stop)
	return r
}

func (r *replica) stop() { r.cancel(); r.done.Wait() }

// until waits for a condition on the current snapshot.
func (r *replica) until(what string, ok func(*plan.Snapshot) bool) *plan.Snapshot {
	r.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if s := r.Snapshot(); s != nil && ok(s) {
			return s
		}
	}
	list := r.Rejected()
	r.t.Fatalf("not within %v: %s; %d rejected: %.2000s", patience, what, len(list), fmt.Sprintf("%+v", list))
	return nil
}

func (r *replica) untilRejected(n int) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d rejected documents", n), func(*plan.Snapshot) bool { return len(r.Rejected()) == n })
}

// amount returns what a plan allows, 0 if there is none.
func amount(s *plan.Snapshot, name string) int64 {
	if p := s.Plan(name); p != nil {
		return p.Limits[0].Amount
	}
	return 0
}

func hasAmount(name string, n int64) func(*plan.Snapshot) bool {
	return func(s *plan.Snapshot) bool { return amount(s, name) == n }
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
