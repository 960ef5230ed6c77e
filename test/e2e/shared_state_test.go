package e2e_test

import (
	"io"
	"net/http"
	"strings"
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

// outcomes are mete's own counts of its answers for the app.
func (a *app) outcomes(t *testing.T) []string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.mete.Metrics+"/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "mete_decisions_total") && strings.Contains(line, `"`+a.name+`"`) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// However many ask at once, a quota gives what it has, and all of it (A34).
func TestConcurrent_A34(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 30, on_unavailable: deny, reset: {calendar: month}}")
	if got := a.burst(t, a.world, 60); got != 30 {
		t.Errorf("%d of 60 requests at once were let on, want 30; mete counted %q", got, a.outcomes(t))
	}
}

// Two replicas on one etcd never give out the same units (A34).
func TestTwoReplicas_A34(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, nil)
	second := newWorld(t, []string{"--etcd-endpoints", "http://" + first.mete.Etcd}, nil)
	a := newApp(t, first, "monthly: {kind: quota, amount: 40, on_unavailable: deny, reset: {calendar: month}}")
	b := *a
	b.world = second
	b.await(t)

	admitted := 0
	for range 8 {
		admitted += a.burst(t, first, 5) + a.burst(t, second, 5)
	}
	t.Logf("%d of 80 let on", admitted)
	if admitted > 40 || admitted < 36 {
		t.Errorf("two replicas let on %d of 80 requests, want the 40 of the quota and never more", admitted)
	}
}

// With etcd away a limit's on_unavailable decides (A57, A60), the default being
// allow; rate limits go on as ever.
func TestEtcdAway_A57_A60(t *testing.T) {
	t.Parallel()
	store := newWorld(t, nil, nil)
	w := newWorld(t, []string{"--etcd-endpoints", "http://" + store.mete.Etcd, "--lease-wait", "300ms"}, nil)
	w.etcd = store.etcd // to write documents through
	defer func() { w.etcd = nil }()
	rules := map[string]*app{}
	t.Run("deny", func(t *testing.T) {
		rules["deny"] = newApp(t, w, "monthly: {kind: quota, amount: 100, on_unavailable: deny, reset: {calendar: month}}")
	})
	t.Run("allow", func(t *testing.T) {
		rules["allow"] = newApp(t, w, "monthly: {kind: quota, amount: 100, reset: {calendar: month}}\nhourly: {kind: rate, amount: 2, window: 1h}")
	})
	if t.Failed() {
		return
	}
	if err := store.mete.Stop(); err != nil {
		t.Fatal(err)
	}
	body := rules["deny"].refuse(t, http.StatusServiceUnavailable).refusal(t)
	if body.Error != "quota_unavailable" {
		t.Errorf("deny: got %+v, want quota_unavailable", body)
	}
	rules["allow"].admit(t, 2)
	if got := rules["allow"].refuse(t, http.StatusTooManyRequests).refusal(t).Error; got != "rate_limited" {
		t.Errorf("allow: the rate limit says %q, want rate_limited", got)
	}

	// What was used can be reported to nobody, and mete says so as it ends.
	err := w.mete.Stop()
	w.mete = nil
	if err != nil && !strings.Contains(err.Error(), "settle") {
		t.Error(err)
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
