package e2e_test

import (
	"net/http"
	"strings"
	"testing"
)

// An Envoy that lets requests on while mete does not answer, and Apps that come and go: no
// host makes mete silent, and a second App takes nothing from the first (issue 12, C1).
func TestHosts_C117_NoHostIsUnanswered(t *testing.T) {
	t.Parallel()
	open := func(config string) string {
		if !strings.Contains(config, "failure_mode_allow: false") {
			t.Fatal("the example says nothing of failure_mode_allow")
		}
		return strings.ReplaceAll(config, "failure_mode_allow: false", "failure_mode_allow: true")
	}
	w := newWorld(t, nil, open)
	a := newApp(t, w, "hourly: {kind: rate, amount: 100, window: 1h}")
	to := func(host, key string) *reply {
		t.Helper()
		other := *a
		other.host = host
		return other.send(t, key)
	}
	for _, host := range []string{"nobody.example", "x..", "[::1]:99"} {
		if r := to(host, a.key); r.status != http.StatusNotFound || len(r.seen) != 0 || !strings.Contains(r.body, `"app_unknown"`) {
			t.Errorf("host %s, which no App lists: got %d %s, the API saw %d", host, r.status, r.body, len(r.seen))
		}
	}
	first := document("App", "first", "  time_zone: UTC\n  identity: {tenant: [{api_key: x-api-key}]}")
	a.put(t, map[string]string{"apps/first": first})
	eventually(t, "the App without hosts is in force", func() bool { return to("nobody.example", "").status == http.StatusUnauthorized })
	if r := to("nobody.example", a.key); r.status != http.StatusOK || len(r.seen) != 1 {
		t.Errorf("the App without hosts: got %d %s", r.status, r.body)
	}
	if r := a.send(t, ""); r.status != http.StatusUnauthorized {
		t.Errorf("the App with hosts: got %d %s", r.status, r.body)
	}
}
