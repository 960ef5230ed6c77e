package e2e_test

import (
	"net/http"
	"strings"
	"testing"
)

// The source client_address is the address of the connection as Envoy sees it, which no
// header changes (issue 12, B5).
func TestClientAddress_C022_NoHeaderChangesIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(config string) string { return config })
	a := newApp(t, w, "hourly: {kind: rate, amount: 4, window: 1h}")
	a.put(t, map[string]string{"apps/" + a.name: document("App", a.name,
		"  time_zone: UTC\n  envoy: {hosts: ["+a.host+"]}\n  identity: {tenant: [{api_key: x-api-key}, {client_address: {v4: 24}}]}\n  defaults: {plan: "+a.name+"}")})
	a.awaitRoutes(t)
	to := a.ingress.Listener("ingress")
	for i := range 6 {
		r := a.sendTo(t, to, "X-Forwarded-For: 203.0.113."+string(rune('1'+i)))
		switch {
		case i >= 4 && r.status != http.StatusTooManyRequests:
			t.Errorf("request %d: got %d, want 429", i, r.status)
		case i < 4 && (r.status != http.StatusOK || len(r.seen) != 1):
			t.Fatalf("request %d: got %d %s", i, r.status, r.body)
		case i < 4:
			if got := r.seen[0].Header.Values("X-Mete-Tenant"); strings.Join(got, "|") != "ip:127.0.0.0/24" {
				t.Errorf("request %d: the API read tenant %q", i, got)
			}
		}
	}
	if r := a.sendTo(t, to, "X-Api-Key: mk_bad"); r.status != http.StatusUnauthorized || !strings.Contains(r.body, "The API key in x-api-key is not known.") {
		t.Errorf("a bad key: got %d %s", r.status, r.body)
	}
}
