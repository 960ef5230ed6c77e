package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
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

// Two replicas on one etcd, wherever they are, share one budget and never give out
// the same units (A34, Q5).
func TestTwoReplicas_A34_Q5(t *testing.T) {
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

// strictAndLenient are routes that decide for themselves for when etcd is away.
func strictAndLenient(config string) string {
	const all = "                        - match: {prefix: /}\n"
	const route = `                        - match: {prefix: /%s}
                          route: {cluster: api}
                          typed_per_filter_config:
                            envoy.filters.http.ext_authz:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute
                              check_settings: {context_extensions: {mete-on-unavailable: %s}}
`
	return strings.Replace(config, all, fmt.Sprintf(route, "strict", "deny")+fmt.Sprintf(route, "lenient", "allow")+all, 1)
}

// With etcd away a limit's on_unavailable decides (A57, A60), the default being
// allow, or an Envoy route by a context extension (A62); rate limits go on as ever.
// All this with the timing that a mete and an Envoy have by default: mete answers
// before Envoy gives up (A56), and then without waiting again (A61).
func TestEtcdAway_A56_A57_A60_A61_A62(t *testing.T) {
	t.Parallel()
	store := newWorld(t, nil, nil)
	w := newWorld(t, append([]string{"--etcd-endpoints", "http://" + store.mete.Etcd}, defaultWaits()...), func(config string) string {
		return strictAndLenient(defaultTimeout(config))
	})
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
	began := time.Now()
	first := rules["deny"].refuse(t, http.StatusServiceUnavailable)
	if took := time.Since(began); took < 300*time.Millisecond || took < 400*time.Millisecond && !strings.Contains(first.body, "quota_unavailable") {
		t.Errorf("the first request got %q after %v, want mete's own answer after 300 ms", first.body, took)
	}
	unavailable := func(r *reply) {
		t.Helper()
		body := r.refusal(t)
		if r.status != http.StatusServiceUnavailable || len(r.seen) != 0 || body.Error != "quota_unavailable" || body.Code != "QUOTA_UNAVAILABLE" ||
			body.RetryAfter < 1 || body.RetryAfter > 5 || body.Type != "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity" {
			t.Errorf("got %d %s, the API saw %d; want a 503 quota_unavailable for up to 5 s", r.status, r.body, len(r.seen))
		}
	}
	unavailable(rules["deny"].get(t, "/hello"))
	unavailable(rules["allow"].get(t, "/strict"))
	if r := rules["deny"].get(t, "/lenient"); r.status != http.StatusOK || len(r.seen) != 1 {
		t.Errorf("a route that allows: got %d %s", r.status, r.body)
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
