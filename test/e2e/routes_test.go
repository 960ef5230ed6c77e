package e2e_test

import (
	"net/http"
	"strings"
	"testing"
)

// A route says what its requests cost, and whether they cost anything or are
// refused at all (A7, A36, A39, C41, C42).
func TestRoutes_A7_A39_C41_C42(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 6, reset: {calendar: month}}", "headers: {x_quota: true}")
	a.put(t, map[string]string{"routes/" + a.name: document("Routes", a.name, `  app: `+a.name+`
  rules:
    - {name: export, match: {methods: [GET], path_prefix: /export}, weight: 3}
    - {name: usage, match: {path: /usage}, meter: false, check: false, reason: reading your own quota is always free}
    - {name: ingest, match: {path: /ingest}, check: false, reason: telemetry can not be sent again}`)})
	a.awaitRoutes(t)

	wantHeader(t, a.get(t, "/hello"), "X-Quota-Used", "1")
	wantHeader(t, a.get(t, "/export/1"), "X-Quota-Used", "4")
	if r := a.get(t, "/export/2"); r.status != http.StatusTooManyRequests || len(r.seen) != 0 {
		t.Errorf("3 units with 2 left: got %d, the API saw %d; want 429 and 0", r.status, len(r.seen))
	}
	wantHeader(t, a.get(t, "/hello"), "X-Quota-Used", "5")
	wantHeader(t, a.get(t, "/exporter"), "X-Quota-Used", "6") // another path
	a.refuse(t, http.StatusTooManyRequests)
	for _, path := range []string{"/usage", "/ingest"} {
		if r := a.get(t, path); r.status != http.StatusOK || len(r.seen) != 1 {
			t.Errorf("%s with nothing left: got %d %s; want 200", path, r.status, r.body)
		}
	}
}

// What is left can be seen without using any: a route with meter: false takes nothing, and
// its answers say what is left as long as anything is. One with check: false as well is
// served to everybody, and says nothing of limits.
func TestRoutes_C169_ALookThatCostsNothing(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 10, reset: {calendar: month}}")
	a.put(t, map[string]string{"routes/" + a.name: document("Routes", a.name, `  app: `+a.name+`
  rules:
    - {name: limits, match: {methods: [HEAD], path: /limits}, meter: false, check: false, reason: a look takes nothing}
    - {name: left, match: {methods: [HEAD], path: /left}, meter: false, reason: a look takes nothing}`)})
	a.awaitRoutes(t)
	look := func(path string, status int, left string) {
		t.Helper()
		for range 2 {
			r := a.sendAs(t, http.MethodHead, a.ingress.Listener("ingress")+path, "X-Api-Key: "+a.key)
			if r.status != status {
				t.Errorf("HEAD %s: got %d, want %d", path, r.status, status)
			}
			if state := r.header.Get("RateLimit"); left == "" && state != "" || !strings.HasPrefix(state, left) {
				t.Errorf("HEAD %s: RateLimit %q, want it to begin with %q", path, state, left)
			}
		}
	}
	a.admit(t, 5)
	look("/limits", http.StatusOK, "")
	look("/left", http.StatusOK, `"monthly";r=5;t=`)
	a.admit(t, 5)
	a.refuse(t, http.StatusTooManyRequests)
	look("/limits", http.StatusOK, "")
	look("/left", http.StatusTooManyRequests, `"monthly";r=0;t=`)
	eventually(t, "ten are used", func() bool { used := a.account(t); return used.Used() == 10 })
}
