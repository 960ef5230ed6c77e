package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// guarded returns the handler of the admin API.
func (m *mete) guarded(next http.Handler) *adminGuard {
	return &adminGuard{hosts: m.cfg.AdminHosts, tokens: m.tokens, proven: m.cfg.TLSClientCA != "", next: next}
}

// startTokens reads the tokens of the admin API, if there is a file of them.
func (m *mete) startTokens(ctx context.Context, _ process) (err error) {
	if m.tokens, err = newTokenFile(m.cfg.AdminTokenFile, m.log); err != nil || m.tokens == nil {
		return err
	}
	hup := m.hangup()
	m.parts.start(ctx, "admin tokens", func(ctx context.Context) error { return m.tokens.Run(ctx, hup) })
	return nil
}

// adminGuard decides who may use the admin API, which tells names of tenants and settles.
type adminGuard struct {
	hosts  []string     // that a request may name beside loopback ones
	tokens *tokenFile   // nil: none is asked for
	proven bool         // callers have shown a certificate of tls-client-ca
	next   http.Handler // what it guards
}

// ServeHTTP implements [http.Handler]. A unix socket is guarded by its mode instead.
func (g *adminGuard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !bySocket(r) {
		if why := g.refuses(r); why != "" {
			http.Error(w, why, http.StatusForbidden)
			return
		}
		if g.tokens != nil && !g.tokens.has(bearer(r)) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="mete admin API"`)
			http.Error(w, "the admin API wants a token of admin-token-file: Authorization: Bearer TOKEN", http.StatusUnauthorized)
			return
		}
	}
	g.next.ServeHTTP(w, r)
}

// refuses says why a request is not answered whatever it proves; "": it may be. Pages in a browser
// come with the name that they were loaded by, which may lead anywhere, and with cookies and
// certificates of a user who does not know.
func (g *adminGuard) refuses(r *http.Request) string {
	switch {
	case !g.named(r):
		return "the admin API answers at a loopback address, at the address that it is called at, or at a host that admin-hosts names"
	case !sameOrigin(r):
		return "the admin API answers no page of another origin"
	case g.tokens == nil && !g.proven && !isLoopback(hostOf(r.RemoteAddr)):
		return "the admin API answers callers on other machines only with a token or a client certificate"
	}
	return ""
}

// named reports whether the host of a request is one that leads here and nowhere else: an
// address does, and a name only if the settings say so.
func (g *adminGuard) named(r *http.Request) bool {
	host := strings.Trim(hostOf(r.Host), "[]")
	if isLoopback(host) || slices.ContainsFunc(g.hosts, func(h string) bool { return strings.EqualFold(h, host) }) {
		return true
	}
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	ip := net.ParseIP(host)
	return ok && ip != nil && ip.Equal(at.IP)
}

// sameOrigin reports whether a request is of no browser, or of a page that came from here.
func sameOrigin(r *http.Request) bool {
	for _, origin := range r.Header.Values("Origin") {
		u, err := url.Parse(origin)
		if err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host) || (u.Scheme == "https") != (r.TLS != nil) {
			return false
		}
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return false
		}
	}
	return true
}

// bearer is the token that a request carries, or "".
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// leastToken is how short a token may be: what is shorter can be guessed.
const leastToken = 16

// A tokenFile holds the tokens of a file, one a line, so that one can replace another. It is
// reread as the TLS files are; a file that cannot be read, or holds none, changes nothing.
type tokenFile struct {
	path   string
	log    zerolog.Logger
	hashes atomic.Pointer[[][sha256.Size]byte]
}

// newTokenFile reads a file. path "": there is none, and nil is returned.
func newTokenFile(path string, log zerolog.Logger) (*tokenFile, error) {
	if path == "" {
		return nil, nil //nolint:nilnil // no token is an answer
	}
	f := &tokenFile{path: path, log: log}
	if err := f.read(); err != nil {
		return nil, fmt.Errorf("read admin-token-file: %w", err)
	}
	return f, nil
}

// read takes the tokens of the file into force. Its errors tell nothing of them.
func (f *tokenFile) read() error {
	text, err := os.ReadFile(f.path)
	if err != nil {
		return err
	}
	var hashes [][sha256.Size]byte
	for line := range bytes.Lines(text) {
		token := bytes.TrimSpace(line)
		switch {
		case len(token) == 0:
			continue
		case len(token) < leastToken:
			return fmt.Errorf("%s: a token has fewer than %d characters and could be guessed", f.path, leastToken)
		}
		hashes = append(hashes, sha256.Sum256(token))
	}
	if len(hashes) == 0 {
		return errors.New(f.path + ": holds no token")
	}
	f.hashes.Store(&hashes)
	return nil
}

// has reports whether token is one of the file's, in a time that tells nothing of them.
func (f *tokenFile) has(token string) bool {
	got, ok := sha256.Sum256([]byte(token)), 0
	for _, h := range *f.hashes.Load() {
		ok |= subtle.ConstantTimeCompare(got[:], h[:])
	}
	return ok == 1
}

// Run rereads the file every 10 s, and at once when hup says so.
func (f *tokenFile) Run(ctx context.Context, hup <-chan os.Signal) error {
	tick := time.NewTicker(reread)
	defer tick.Stop()
	var told string
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
		case <-tick.C:
		}
		var problem string
		if err := f.read(); err != nil {
			problem = err.Error()
		}
		if problem != "" && problem != told {
			f.log.Error().Str("problem", problem).Msg("admin-token-file refused; the old tokens stay in force")
		}
		told = problem
	}
}
