package e2e_test

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
)

func TestBadKey_401(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 100, window: 1h}")
	for name, headers := range map[string][]string{
		"unknown key": {"X-Api-Key: mk_nobody_made_this"},
		"empty key":   {"X-Api-Key: "},
		"no key":      nil,
		"two keys":    {"X-Api-Key: mk_nobody_made_this", "X-Api-Key: " + a.key},
		"tenant's id": {"X-Api-Key: " + a.tenant},
		"hash":        {"X-Api-Key: " + hash(a.key)},
	} {
		r := a.sendTo(t, a.ingress.Listener("ingress"), headers...)
		refused := r.status == http.StatusUnauthorized || len(headers) == 0 && r.status == http.StatusForbidden
		if !refused || len(r.seen) != 0 {
			t.Errorf("%s: got %d, the API saw %d; want 401 and 0", name, r.status, len(r.seen))
		}
		if strings.Contains(r.body, a.tenant) || r.header.Get("RateLimit") != "" {
			t.Errorf("%s: the refusal tells of a tenant to somebody unverified: %s", name, r.body)
		}
	}
}

// What the API reads about the caller comes from mete alone (C35).
func TestForgedIdentity_C35(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 100, window: 1h}")
	r := a.send(t, a.key, "X-Mete-Tenant: org:victim", "X-Mete-Tenant: org:other", "X-Mete-Principal: user:root",
		"X-Mete-Class: service", "X-Quota-Decision: forged")
	if r.status != http.StatusOK || len(r.seen) != 1 {
		t.Fatalf("got %d %s, the API saw %d; want 200 and 1", r.status, r.body, len(r.seen))
	}
	got := r.seen[0].Header
	for name, want := range map[string]string{"X-Mete-Tenant": a.tenant, "X-Mete-Principal": "user:alice"} {
		if values := got.Values(name); len(values) != 1 || values[0] != want {
			t.Errorf("the API read %s: %q, want %q", name, values, want)
		}
	}
	if values := got.Values("X-Mete-Class"); len(values) != 0 {
		t.Errorf("the API read X-Mete-Class: %q, want none: the app has no classes", values)
	}
	for name, values := range got {
		if joined := strings.Join(values, " "); joined == "forged" || strings.Contains(joined, "org:victim") || joined == "user:root" {
			t.Errorf("the API read a forged %s: %q", name, values)
		}
	}
}

// The same without Envoy's early header mutation: mete itself overwrites or removes.
func TestForgedIdentity_C35_WithoutEarlyMutation(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(config string) string {
		before, rest, _ := strings.Cut(config, "                early_header_mutation_extensions:\n")
		_, after, _ := strings.Cut(rest, "                route_config:\n")
		return before + "                route_config:\n" + after
	})
	a := newApp(t, w, "hourly: {kind: rate, amount: 100, window: 1h}")
	r := a.send(t, a.key, "X-Mete-Tenant: org:victim", "X-Mete-Class: service", "X-Quota-Decision: forged")
	if r.status != http.StatusOK || len(r.seen) != 1 {
		t.Fatalf("got %d %s, the API saw %d; want 200 and 1", r.status, r.body, len(r.seen))
	}
	got := r.seen[0].Header
	if values := got.Values("X-Mete-Tenant"); len(values) != 1 || values[0] != a.tenant {
		t.Errorf("the API read X-Mete-Tenant: %q, want %q", values, a.tenant)
	}
	if values := got.Values("X-Mete-Class"); len(values) != 0 {
		t.Errorf("the API read a forged X-Mete-Class: %q", values)
	}
	if strings.Contains(strings.Join(got.Values("X-Quota-Decision"), " "), "forged") {
		t.Errorf("the API read a forged X-Quota-Decision")
	}
}

// Bytes that are not UTF-8 are decided like any others: stock grpc-go refuses the
// message that carries them, and Envoy's failure mode would decide instead.
func TestNonUTF8_DoesNotBypass(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 2, window: 1h}")
	bad := string([]byte{'a', 0xff, 0xfe, 0xc3, 0x28})

	r := a.sendTo(t, a.ingress.Listener("ingress"), "X-Api-Key: "+bad)
	if r.status != http.StatusUnauthorized || len(r.seen) != 0 {
		t.Errorf("such a key: got %d, the API saw %d; want 401 and 0", r.status, len(r.seen))
	}
	for range 2 {
		r := a.send(t, a.key, "Accept: "+bad)
		if r.status != http.StatusOK || r.header.Get("RateLimit") == "" {
			t.Errorf("such an Accept: got %d %s, want 200 with RateLimit: decided, not passed over", r.status, r.body)
		}
	}
	a.refuse(t, http.StatusTooManyRequests, "Accept: "+bad)
}

// A path that Envoy was told not to ask for goes on without a key.
func TestHealthPath_AsksNobody(t *testing.T) {
	t.Parallel()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+shared(t).ingress.Listener("ingress")+"/healthz", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("got %d %s, %v; want 200", resp.StatusCode, body.String(), err)
	}
}
