package e2e_test

import (
	"net/http"
	"sync"
	"testing"
)

// burst sends n requests through w at once and returns how many were let on. Each
// of them must be let on or be refused by the quota.
func (a *app) burst(t *testing.T, w *world, n int) int {
	t.Helper()
	var (
		wg      sync.WaitGroup
		replies = make([]*reply, n)
	)
	sent := a.sent
	a.sent += n
	for i := range n {
		b := *a
		b.world, b.sent = w, sent+i
		wg.Go(func() { replies[i] = b.send(t, b.key) })
	}
	wg.Wait()
	admitted := 0
	for _, r := range replies {
		switch {
		case r == nil: // its send has failed the test
		case r.status == http.StatusOK && len(r.seen) == 1:
			admitted++
		case r.status != http.StatusTooManyRequests || len(r.seen) != 0:
			t.Errorf("got %d %s, the API saw %d; want 200 and 1, or 429 and 0", r.status, r.body, len(r.seen))
		}
	}
	return admitted
}

// However many ask at once, a quota gives what it has, and all of it (A34).
func TestConcurrent_A34(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 30, reset: {calendar: month}}")
	if got := a.burst(t, a.world, 60); got != 30 {
		t.Errorf("%d of 60 requests at once were let on, want 30", got)
	}
}

// Two replicas on one etcd never give out the same units (A34).
func TestTwoReplicas_A34(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, nil)
	second := newWorld(t, []string{"--etcd-endpoints", "http://" + first.mete.Etcd}, nil)
	a := newApp(t, first, "monthly: {kind: quota, amount: 40, reset: {calendar: month}}")
	b := *a
	b.world = second
	b.await(t)

	admitted := 0
	for range 8 {
		admitted += a.burst(t, first, 5) + a.burst(t, second, 5)
	}
	if admitted > 40 || admitted < 36 {
		t.Errorf("two replicas let on %d of 80 requests, want the 40 of the quota and never more", admitted)
	}
}

// What was used stays used over a restart, and so do the documents (P68).
func TestRestart_P68(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, nil)
	a := newApp(t, w, "monthly: {kind: quota, amount: 5, reset: {calendar: month}}", "headers: {x_quota: true}")
	a.admit(t, 3)
	w.restart(t)
	a.await(t)
	wantHeader(t, a.admit(t, 1), "X-Quota-Used", "4")
	a.admit(t, 1)
	a.refuse(t, http.StatusTooManyRequests)
}

// restart stops mete in order and starts it again where it was.
func (w *world) restart(t *testing.T) {
	t.Helper()
	if err := w.mete.Stop(); err != nil {
		t.Fatal(err)
	}
	old := w.mete
	if err := w.startMete(t.Context(), old.DataDir, "--grpc-listen", old.GRPC, "--etcd-listen", old.Etcd); err != nil {
		t.Fatal(err)
	}
}
