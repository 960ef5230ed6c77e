package e2e_test

import (
	"net/http"
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
