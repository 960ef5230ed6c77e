package rig

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// TestID is the request header that tells an Upstream whose request it is.
const TestID = "x-test-id"

// TestRespond is the request header that gives the answer a header, "Name: value".
const TestRespond = "x-test-respond"

// An Upstream is the API behind Envoy. To every request it answers what it got,
// as a Seen in JSON; a request for /status/404 gets that status, and one with a
// TestAct what that says. It speaks HTTP/1.1, HTTP/2 without TLS and gRPC
// (grpc.health.v1, always SERVING), all on one port.
type Upstream struct {
	Address  string
	Meetings Meetings // of requests with a TestAct

	server *http.Server
	mu     sync.Mutex
	seen   map[string][]Seen // by TestID; guarded by mu
}

// A Seen is one request as it reached the upstream.
type Seen struct {
	Method string      `json:"method"`
	Host   string      `json:"host"`
	Path   string      `json:"path"`
	Header http.Header `json:"header"`
}

// StartUpstream serves on a free port of the loopback. The caller must Stop it.
func StartUpstream(ctx context.Context) (*Upstream, error) {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	u := &Upstream{Address: listener.Addr().String(), seen: map[string][]Seen{}}
	calls := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(calls, health.NewServer())

	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	u.server = &http.Server{
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			seen := u.note(r)
			if u.act(w, r) {
				return
			}
			if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				calls.ServeHTTP(w, r)
				return
			}
			answer(w, r, seen)
		}),
	}
	go func() { _ = u.server.Serve(listener) }() // ends with Stop
	return u, nil
}

// Stop ends the upstream.
func (u *Upstream) Stop() error {
	if err := u.server.Close(); err != nil && !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Seen returns the requests with this TestID that reached the upstream.
func (u *Upstream) Seen(id string) []Seen {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]Seen(nil), u.seen[id]...)
}

func (u *Upstream) note(r *http.Request) Seen {
	seen := Seen{Method: r.Method, Host: r.Host, Path: r.URL.Path, Header: r.Header.Clone()}
	if id := r.Header.Get(TestID); id != "" {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.seen[id] = append(u.seen[id], seen)
	}
	return seen
}

func answer(w http.ResponseWriter, r *http.Request, seen Seen) {
	status := http.StatusOK
	if text, ok := strings.CutPrefix(r.URL.Path, "/status/"); ok {
		if code, err := strconv.Atoi(text); err == nil && code >= 200 && code <= 599 {
			status = code
		}
	}
	w.Header().Set("Content-Type", "application/json")
	for _, line := range r.Header.Values(TestRespond) {
		name, value, _ := strings.Cut(line, ": ")
		w.Header().Set(name, value)
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(seen) // the caller has gone: nobody to tell
}
