package main

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"
)

const goodToken = "0123456789abcdef"

// askAdmin asks a guard; what is "Name: value" a line, and "remote", "at" and "tls" of the
// connection.
func askAdmin(g *adminGuard, what string) int {
	r := httptest.NewRequest(http.MethodPost, "/mete.v1.QuotaService/Settle", http.NoBody)
	r.RemoteAddr, r.Host = here, "127.0.0.1:9002"
	for line := range strings.Lines(what) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch name {
		case "":
		case "remote":
			r.RemoteAddr = value
		case "at":
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.ParseIP(value), Port: 9002}))
		case "socket":
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, &net.UnixAddr{Name: value, Net: "unix"}))
		case "tls":
			r.TLS = &tls.ConnectionState{}
		case "Host":
			r.Host = value
		default:
			r.Header.Add(name, value)
		}
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	return w.Code
}

// Who may use the admin API: no page in a browser, nobody by a foreign name, and nobody from
// elsewhere who proves nothing (issue 12, F2).
func TestAdminGuard_F2_WhoIsAnswered(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	write(t, path, []byte("  "+goodToken+"\n\nanother-token-of-it\n"))
	tokens, err := newTokenFile(path, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	next := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok") })
	open := &adminGuard{hosts: []string{"Mete.internal"}, next: next}
	byToken := &adminGuard{hosts: open.hosts, tokens: tokens, next: next}
	byCert := &adminGuard{hosts: open.hosts, proven: true, next: next}
	for _, tt := range []struct {
		guard *adminGuard
		what  string
		want  int
	}{
		{open, "", 200},
		{open, "Host: localhost", 200},
		{open, "Host: [::1]:9002", 200},
		{open, "Host: mete.INTERNAL:9002", 200},
		{open, "Host: evil.example", 403},
		{open, "Host: evil.example:9002", 403},
		{open, "Host: localhost.evil.example", 403},
		{open, "Host: ", 403},
		{open, "Host: 0x7f.1", 403},
		{open, "Origin: http://evil.example", 403},
		{open, "Origin: null", 403},
		{open, "Origin: http://127.0.0.1:9002", 200},
		{open, "Origin: https://127.0.0.1:9002", 403},
		{open, "Origin: http://127.0.0.1:8000", 403},
		{open, "Origin: http://127.0.0.1:9002\nOrigin: http://evil.example", 403},
		{open, "tls: 1\nOrigin: https://127.0.0.1:9002\nSec-Fetch-Site: same-origin", 200},
		{open, "Sec-Fetch-Site: cross-site", 403},
		{open, "Sec-Fetch-Site: same-site", 403},
		{open, "Sec-Fetch-Site: none", 200},
		{open, "Host: evil.example\nsocket: /run/mete.sock", 200},
		{open, "remote: " + there, 403},
		{byToken, "", 401},
		{byToken, "Authorization: Bearer 0123456789abcdeg", 401},
		{byToken, "Authorization: Basic " + goodToken, 401},
		{byToken, "Authorization: Bearer " + goodToken, 200},
		{byToken, "Authorization: bearer another-token-of-it\nremote: " + there, 200},
		{byToken, "Authorization: Bearer " + goodToken + "\nHost: evil.example", 403},
		{byToken, "Authorization: Bearer " + goodToken + "\nOrigin: http://evil.example", 403},
		{byToken, "Authorization: Bearer " + goodToken + "\nremote: " + there + "\nat: 10.1.2.9\nHost: 10.1.2.9:9002", 200},
		{byToken, "Authorization: Bearer " + goodToken + "\nremote: " + there + "\nat: 10.1.2.9\nHost: 10.1.2.8:9002", 403},
		{byToken, "socket: /run/mete.sock", 200},
		{byCert, "remote: " + there + "\nHost: mete.internal:9002", 200},
		{byCert, "remote: " + there + "\nHost: evil.example", 403},
		{byCert, "remote: " + there + "\nHost: mete.internal:9002\nOrigin: https://evil.example", 403},
	} {
		if got := askAdmin(tt.guard, tt.what); got != tt.want {
			t.Errorf("%q: got %d, want %d", tt.what, got, tt.want)
		}
	}
}

// Tokens are read again without a gap, and a file that is none changes nothing.
func TestTokenFile_F2_Reread(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "tokens")
	for text, want := range map[string]string{"": "holds no token", "short\n": "fewer than 16 characters"} {
		write(t, path, []byte(text))
		if _, err := newTokenFile(path, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short\n") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	write(t, path, []byte(goodToken))
	var log buffer
	f, err := newTokenFile(path, zerolog.New(&log))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	hup, done := make(chan os.Signal), make(chan error, 1)
	go func() { done <- f.Run(ctx, hup) }()
	const next = "fedcba9876543210"
	write(t, path, []byte(next))
	hup <- os.Interrupt
	hup <- os.Interrupt // is taken only after the first was dealt with
	if f.has(goodToken) || !f.has(next) {
		t.Error("the file was not reread")
	}
	write(t, path, nil)
	hup <- os.Interrupt
	hup <- os.Interrupt
	hup <- os.Interrupt
	if !f.has(next) || strings.Count(log.String(), "old tokens stay in force") != 1 || strings.Contains(log.String(), next) {
		t.Errorf("a file without tokens: has %v, log %s", f.has(next), log.String())
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A mete that runs guards its admin API.
func TestAdminGuard_F2_Running(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "token")
	write(t, path, []byte(goodToken))
	r := start(t, "--etcd-listen=127.0.0.1:0", "--admin-token-file="+path, "--drain-delay=0s")
	at := r.addresses(t)
	for _, tt := range []struct {
		host, token string
		want        int
	}{{"", "", 401}, {"", goodToken, 200}, {"evil.example", goodToken, 403}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+at.Admin+"/v1/status", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+tt.token)
		req.Host = tt.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != tt.want {
			t.Errorf("%+v: got %d", tt, resp.StatusCode)
		}
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
	if strings.Contains(r.log.String(), goodToken) {
		t.Error("the token is in the log")
	}
}
