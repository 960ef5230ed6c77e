package main

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/envoy"
)

// A listener closes what is beyond its places, and takes the next once one is free.
func TestBounded_E6_Places(t *testing.T) {
	t.Parallel()
	inner, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := bounded(inner, 1)
	accepted := make(chan net.Conn)
	go func() {
		defer close(accepted)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	call := func() net.Conn {
		t.Helper()
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		return conn
	}
	first := call()
	held := <-accepted
	if _, err := io.ReadAll(call()); err != nil {
		t.Errorf("a second connection was not closed in order: %v", err)
	}
	for range 2 {
		_ = held.Close() // twice is once
	}
	third := call()
	_ = (<-accepted).Close()
	for _, conn := range []net.Conn{first, third} {
		_ = conn.Close()
	}
	_ = l.Close()
	<-accepted
}

// gRPC's connections leave room for the other files of the process.
func TestConnections_E6_FollowOpenFiles(t *testing.T) {
	t.Parallel()
	m := newMete(settings{}, zerolog.Nop(), nil)
	m.cfg.MaxConnections = 1 << 30
	if n := m.connections(); n > openFiles()/2 || n < 1 {
		t.Errorf("%d connections of %d files", n, openFiles())
	}
	m.cfg.MaxConnections = 7
	if n := m.connections(); n != min(7, openFiles()/2) {
		t.Errorf("got %d connections, want 7", n)
	}
}

// One scrape tells what connections take.
func TestMetrics_F4_Intake(t *testing.T) {
	t.Parallel()
	st := envoy.Stats{
		Intake:          envoy.IntakeStats{Open: 2, Unfinished: 3, Refused: 4, Evicted: 5, TooLarge: 6},
		LeftOutDecision: 7, LeftOutState: 8,
	}
	m := newMetrics()
	m.registry.MustRegister(newIntakeCollector(func() envoy.Stats { return st }))
	code, body := ask(m.handler(), there, "GET", "/metrics", "")
	for _, want := range []string{
		"mete_grpc_connections 2", "mete_grpc_unfinished_bytes 3", `mete_grpc_closed_connections_total{reason="connections"} 4`,
		`mete_grpc_closed_connections_total{reason="unfinished"} 5`, "mete_grpc_too_large_messages_total 6", "mete_header_refusals_total 0",
		`mete_omitted_request_headers_total{header="x-quota-decision"} 7`, `mete_omitted_request_headers_total{header="x-quota-state"} 8`,
	} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("%d, no %s", code, want)
		}
	}
}

// As many connections come as can: probes are answered, and what is beyond is counted.
func TestProbes_E6_UnderAFloodOfConnections(t *testing.T) {
	t.Parallel()
	r := start(t, "--etcd-listen=127.0.0.1:0", "--max-connections=3", "--drain-delay=0s")
	at := r.addresses(t)
	for range 30 {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", at.GRPC)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	eventually(t, "27 connections are refused", func() bool {
		_, body := get(t, "http://"+at.Metrics+"/metrics")
		return strings.Contains(body, `mete_grpc_closed_connections_total{reason="connections"} 27`)
	})
	for _, path := range []string{"/livez", "/readyz"} {
		if code, body := get(t, "http://"+at.Metrics+path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}
