package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	leftAnswer = `{"reservations": [{"decision": "01K9VQX0F5T8QK3M5B7ZJ4R2HN", "process": "00000000000000a1", "made": "2026-01-02T03:04:05Z", "app": "api",
		"charges": [{"tenant": "org:acme", "limit": "pool", "unit": "requests", "window": "w", "units": 1}, {"tenant": "org:b", "limit": "tokens", "unit": "tokens", "units": 1200}]}],
		"matching": 3, "outstanding": 9, "unknown": 4}`
	forgivenAnswer = `{"forgiven": 2, "already_settled": 1, "units": {"requests": 2}}`
)

// An adminCounter answers as mete's admin API, and notes what it was asked.
type adminCounter struct {
	asked  []string
	answer string // to forgive
}

func (c *adminCounter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	c.asked = append(c.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body)))
	switch {
	case r.Header.Get("Authorization") != "Bearer a-token":
		http.Error(w, "the admin API wants a token", http.StatusUnauthorized)
	case r.Method == http.MethodGet:
		_, _ = io.WriteString(w, leftAnswer)
	case c.answer == "":
		http.Error(w, "forgive reservations: ask replica 3: no answer", http.StatusServiceUnavailable)
	default:
		_, _ = io.WriteString(w, c.answer)
	}
}

// What metectl asks of the admin API, and what it says of the answers (issue 12, D4).
func TestReservations_A26_AsksTheAdminAPI(t *testing.T) {
	t.Parallel()
	const one = "01K9VQX0F5T8QK3M5B7ZJ4R2HN"
	for name, c := range map[string]struct {
		args         []string
		answer       string
		code         int
		asked        string
		stdout, said string
	}{
		"list":             {[]string{"list"}, "", 0, "GET /v1/reservations?older_than=10m0s", one + "  org:b   api", "of 4 that are not settled nothing but their number is known"},
		"all charges":      {[]string{"ls"}, "", 0, "GET /v1/reservations?older_than=10m0s", "1 requests of pool, 1,200 tokens of tokens", "and 2 more"},
		"names":            {[]string{"ls", "--tenant", "org:b", "-o", "name"}, "", 0, "GET /v1/reservations?older_than=10m0s&tenant=org%3Ab", one + "\n", ""},
		"JSON":             {[]string{"ls", "--older-than", "1h", "-o", "json"}, "", 0, "GET /v1/reservations?older_than=1h0m0s", `"outstanding": 9`, ""},
		"unconfirmed":      {[]string{"forgive", one}, forgivenAnswer, 2, "", "", "forgiving 1 reservation wants a yes"},
		"by id":            {[]string{"forgive", one, "--yes"}, forgivenAnswer, 0, `POST /v1/reservations/forgive {"decisions":["` + one + `"],"older_than":"10m0s"}`, "2                1", ""},
		"of a tenant":      {[]string{"forgive", "--tenant", "org:b", "-y"}, forgivenAnswer, 0, `GET /v1/reservations?older_than=10m0s&tenant=org%3Ab|POST /v1/reservations/forgive {"tenant":"org:b","older_than":"10m0s"}`, "FORGIVEN", ""},
		"all, unconfirmed": {[]string{"forgive", "--all"}, forgivenAnswer, 2, "GET /v1/reservations?older_than=10m0s", "", "forgiving 3 reservations wants a yes"},
		"too young":        {[]string{"forgive", one, "-y"}, `{"too_young": ["` + one + `"], "units": {}}`, 8, `POST /v1/reservations/forgive {"decisions":["` + one + `"],"older_than":"10m0s"}`, "0", "is too young"},
		"not known":        {[]string{"forgive", one, "-y"}, `{"unknown": ["` + one + `"], "units": {}}`, 5, `POST /v1/reservations/forgive {"decisions":["` + one + `"],"older_than":"10m0s"}`, "0", "is not known here"},
		"a peer is away":   {[]string{"forgive", one, "-y"}, "", 7, `POST /v1/reservations/forgive {"decisions":["` + one + `"],"older_than":"10m0s"}`, "", "stays charged"},
		"nothing named":    {[]string{"forgive"}, "", 2, "", "", "what is to be forgiven is not clear"},
		"two ways":         {[]string{"forgive", "--all", "--tenant", "org:b"}, "", 2, "", "", "what is to be forgiven is not clear"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &adminCounter{answer: c.answer}
			srv := httptest.NewServer(api)
			defer srv.Close()
			env := map[string]string{"METECTL_ADMIN": strings.TrimPrefix(srv.URL, "http://"), "METECTL_ADMIN_TOKEN": "a-token"}
			var stdout, stderr bytes.Buffer
			code := run(t.Context(), append([]string{"reservations"}, c.args...), strings.NewReader(""), &stdout, &stderr, func(n string) string { return env[n] })
			if code != c.code || strings.Join(api.asked, "|") != c.asked || !strings.Contains(stdout.String(), c.stdout) || !strings.Contains(stderr.String(), c.said) {
				t.Errorf("exit code %d, asked %q\n%s%s", code, api.asked, &stdout, &stderr)
			}
		})
	}
}

// Where the admin API is found, and what it means that it is not, or refuses.
func TestReservations_A26_FindsTheAdminAPI(t *testing.T) {
	t.Parallel()
	srv := httptest.NewServer(&adminCounter{})
	defer srv.Close()
	dir := t.TempDir()
	text := `{"admin": "` + strings.TrimPrefix(srv.URL, "http://") + `"}`
	if err := os.WriteFile(filepath.Join(dir, "addresses.json"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		env  map[string]string
		code int
		said string
	}{
		"by data folder": {[]string{"--data-dir", dir}, map[string]string{"METECTL_ADMIN_TOKEN": "a-token"}, 0, ""},
		"no token":       {[]string{"--admin", srv.URL}, nil, 6, "wants a token"},
		"no folder":      {[]string{"--data-dir", filepath.Join(dir, "none")}, nil, 5, "addresses.json"},
		"nobody there":   {[]string{"--admin", "unix://" + filepath.Join(dir, "none.sock")}, nil, 7, "none.sock"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), append([]string{"reservations", "list"}, c.args...), strings.NewReader(""), &stdout, &stderr, func(n string) string { return c.env[n] })
		if code != c.code || !strings.Contains(stderr.String(), c.said) {
			t.Errorf("%s: exit code %d, %s", name, code, &stderr)
		}
	}
	c := &cli{stdout: io.Discard, stderr: io.Discard, now: time.Now, output: "table"}
	if err := c.tellForgiven(forgiveReport{Forgiven: 1, Failed: 1}); err == nil || err.Error() != answer(exitPartly).Error() {
		t.Errorf("one of two could not be settled: %v", err)
	}
}
