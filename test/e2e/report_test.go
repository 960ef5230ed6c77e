package e2e_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// call calls QuotaService over HTTP with JSON, as curl would.
func (a *app) call(t *testing.T, method, body string) (status int, answer string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+a.mete.Admin+"/mete.v1.QuotaService/"+method, bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// The API reports what it used with the id that it got in a header, and asks for more
// while it works (P64, A37, A40, A25).
func TestReport_P64_A25_A37_A40_TheAPISaysItself(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "tokens: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: month}}",
		"units: {tokens: {title: tokens}}", "headers: {x_quota: true}")
	a.put(t, map[string]string{"routes/" + a.name: document("Routes", a.name, `  app: `+a.name+`
  rules:
    - {name: job, match: {path: /job}, units: {tokens: {reserve: 100, use: [{report: true}]}}}`)})
	a.awaitRoutes(t)
	r := a.get(t, "/job")
	wantHeader(t, r, "X-Quota-Used", "100")
	id := r.seen[0].Header.Get("X-Quota-Decision")

	for _, step := range []struct {
		method, units string
		status        int
		want          string
	}{
		{"Extend", `{"tokens":300}`, http.StatusOK, `{"units":{"tokens":"400"}}`},
		{"Extend", `{"tokens":900}`, http.StatusTooManyRequests, "resource_exhausted"},
		{"Settle", `{"gpus":1}`, http.StatusBadRequest, `no reports of \"gpus\"`},
		{"Settle", `{"tokens":250}`, http.StatusOK, `{"units":{"tokens":"250"}}`},
		{"Settle", `{"tokens":250}`, http.StatusOK, `{"units":{"tokens":"250"}}`},
		{"Settle", `{"tokens":251}`, http.StatusBadRequest, "reported before: 250 tokens"},
		{"Extend", `{"tokens":1}`, http.StatusBadRequest, "reported before: 250 tokens"},
	} {
		status, answer := a.call(t, step.method, fmt.Sprintf(`{"decision":%q,"units":%s}`, id, step.units))
		if status != step.status || !strings.Contains(answer, step.want) {
			t.Errorf("%s %s: %d %s, want %d %s", step.method, step.units, status, answer, step.status, step.want)
		}
	}
	if status, answer := a.call(t, "Settle", `{"decision":"01ARZ3NDEKTSV4RRFFQ69G5FAV","units":{"tokens":1}}`); status != http.StatusNotFound {
		t.Errorf("a decision that nobody made: %d %s", status, answer)
	}
	wantHeader(t, a.get(t, "/job"), "X-Quota-Used", "350")
}

// The upstream is told how a request stands, so that it or an Envoy route can do less
// instead of refusing; a caller cannot say so itself (P66).
func TestState_P66_TheUpstreamKnows(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 2, when_used_up: {grace: 50%}, reset: {calendar: month}}")
	for i, want := range []string{"ok", "ok", "grace"} {
		r := a.send(t, a.key, "X-Quota-State: forged")
		if r.status != http.StatusOK || len(r.seen) != 1 || fmt.Sprint(r.seen[0].Header["X-Quota-State"]) != "["+want+"]" {
			t.Errorf("request %d: %d, the API saw %v, want %s", i+1, r.status, r.seen, want)
		}
	}
	a.refuse(t, http.StatusTooManyRequests)
}

// A service that calls on behalf of a user is free with its own signed word, and one who
// makes such a word up pays (C8, C9, C10).
func TestOnBehalf_C8_C9_C10_SignedHops(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(t, shared(t), "monthly: {kind: quota, amount: 1, reset: {calendar: month}}")
	a.put(t, map[string]string{"apps/" + a.name: document("App", a.name, `  time_zone: Europe/Berlin
  envoy: {hosts: [`+a.host+`]}
  identity:
    tenant: [{api_key: x-api-key}]
    signed_headers: {x-on-behalf: {callers: {ask: {keys: ["ed25519:`+base64.StdEncoding.EncodeToString(public)+`"]}}}}
    classes: [{name: on_behalf, when: {signed_header: x-on-behalf}, meter: false, check: false, reason: the first call already paid}, {name: people}]`)})
	a.awaitRoutes(t) // a document that was written later is in force
	sign := func(key ed25519.PrivateKey, tenant string) string {
		part := func(v map[string]any) string {
			text, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			return base64.RawURLEncoding.EncodeToString(text)
		}
		now := time.Now().Unix()
		text := part(map[string]any{"alg": "EdDSA", "typ": "mete-on-behalf+jwt"}) + "." +
			part(map[string]any{"iss": "ask", "sub": "user:alice", "tenant": tenant, "iat": now, "exp": now + 100})
		return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
	}
	_, other, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	good := "X-On-Behalf: " + sign(private, a.tenant)
	for range 3 {
		if r := a.send(t, a.key, good); r.status != http.StatusOK || r.seen[0].Header.Get("X-Mete-Class") != "on_behalf" {
			t.Fatalf("a signed hop: %d %s", r.status, r.body)
		}
	}
	if r := a.send(t, a.key, "X-On-Behalf: "+sign(other, a.tenant)); r.status != http.StatusOK || r.seen[0].Header.Get("X-Mete-Class") != "people" {
		t.Errorf("a forged word: %d %s, the API saw %v", r.status, r.body, r.seen)
	}
	a.refuse(t, http.StatusTooManyRequests, "X-On-Behalf: "+sign(private, a.tenant+"-probe"))
	if r := a.send(t, a.key, good); r.status != http.StatusOK {
		t.Errorf("a signed hop of an exhausted tenant: %d %s", r.status, r.body)
	}
	_, page := a.page(t, "/metrics")
	for _, reason := range []string{"wrong_signature", "wrong_user"} {
		if want := fmt.Sprintf(`mete_on_behalf_rejected_total{app=%q,header="x-on-behalf",reason=%q} 1`, a.name, reason); !strings.Contains(page, want) {
			t.Errorf("no metric %s", want)
		}
	}
}

// Reports that cannot be counted change and claim nothing: the right one after them does.
func TestReport_C175_AReportThatFailedThenTheRightOne(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "tokens: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: month}}",
		"units: {tokens: {title: tokens}}", "headers: {x_quota: true}")
	a.put(t, map[string]string{"routes/" + a.name: document("Routes", a.name, `  app: `+a.name+`
  rules:
    - {name: job, match: {path: /job}, units: {tokens: {reserve: 100, use: [{report: true}]}}}`)})
	a.awaitRoutes(t)
	id := a.get(t, "/job").seen[0].Header.Get("X-Quota-Decision")
	for _, step := range []struct {
		units  string
		status int
		want   string
	}{
		{`{"gpus":1}`, http.StatusBadRequest, `no reports of \"gpus\"`},
		{`{"tokens":-3}`, http.StatusBadRequest, "tokens"},
		{`{"tokens":1.5}`, http.StatusBadRequest, "1.5"},
		{`{"tokens":33}`, http.StatusOK, `{"units":{"tokens":"33"}}`},
		{`{"tokens":33}`, http.StatusOK, `{"units":{"tokens":"33"}}`},
		{`{"tokens":44}`, http.StatusBadRequest, "reported before: 33 tokens"},
	} {
		status, answer := a.call(t, "Settle", fmt.Sprintf(`{"decision":%q,"units":%s}`, id, step.units))
		if status != step.status || !strings.Contains(answer, step.want) {
			t.Errorf("%s: %d %s, want %d %s", step.units, status, answer, step.status, step.want)
		}
	}
	wantHeader(t, a.get(t, "/job"), "X-Quota-Used", "133")
}
