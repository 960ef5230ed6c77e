package e2e_test

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a stopped mete has written of usage adds up to what was used, by tenant and
// pipeline, and no line is there twice (Q49, C59).
func TestEvents_Q49_C59_TheFileIsTheBill(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "usage.ndjson")
	w := newWorld(t, []string{"--usage-events", file}, func(config string) string { return config })
	a := newApp(t, w, "monthly: {kind: quota, amount: 1000, reset: {calendar: month}}",
		"headers: {x_quota: true}", "attribution: {request_header: x-pipeline-id}")
	a.put(t, map[string]string{"routes/" + a.name: document("Routes", a.name, `  app: `+a.name+`
  rules: [{name: export, match: {path: /export}, weight: 5}]`)})
	a.awaitRoutes(t)
	for _, pipeline := range []string{"p1", "p2", "p1"} {
		if r := a.sendTo(t, w.ingress.Listener("ingress")+"/export", "X-Api-Key: "+a.key, "X-Pipeline-Id: "+pipeline); r.status != http.StatusOK {
			t.Fatalf("got %d %s", r.status, r.body)
		}
	}
	a.sendTo(t, w.ingress.Listener("ingress")+"/status/500", "X-Api-Key: "+a.key, "X-Pipeline-Id: p2")
	settled := func() bool {
		_, page := w.page(t, "/metrics")
		return strings.Contains(page, "\nmete_reservations_unsettled 0\n")
	}
	eventually(t, "the failed request is settled", settled)
	if got := a.sendTo(t, w.ingress.Listener("ingress")+"/status/503", "X-Api-Key: "+a.key).header.Get("X-Quota-Used"); got != "16" {
		t.Errorf("%s are used with one more, want 16: the failed request is not given back", got)
	}
	eventually(t, "all is settled", settled)
	if err := w.mete.Stop(); err != nil {
		t.Fatal(err)
	}
	used, ids := map[string]int64{}, map[string]bool{}
	for _, e := range events(t, file) {
		if ids[e.Source+e.ID] || e.Type != "mete.usage.v1" || e.Specversion != "1.0" {
			t.Errorf("event %+v", e)
		}
		ids[e.Source+e.ID] = true
		sign := map[string]int64{"counted": 1, "refunded": -1}[e.Data.Outcome]
		used[e.Subject+" "+e.Data.Limit+" "+e.Data.Attribution] += sign * e.Data.Quantity
	}
	for key, want := range map[string]int64{
		a.tenant + " monthly p1": 10, a.tenant + " monthly p2": 5, a.tenant + " monthly ": 0,
	} {
		if used[key] != want {
			t.Errorf("%s: %d, want %d; all: %v", key, used[key], want, used)
		}
	}
}

// A usageEvent is a line of the file.
type usageEvent struct {
	Specversion, Type, Source, ID, Subject string
	Data                                   struct {
		Limit, Outcome, Attribution string
		Quantity                    int64
	}
}

func events(t *testing.T, file string) (all []usageEvent) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var e usageEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		all = append(all, e)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
