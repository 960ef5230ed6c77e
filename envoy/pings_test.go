package envoy_test

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/test/bufconn"

	"github.com/meteproject/mete/envoy"
)

// C181: a connection that pings as often as five times a second stays, with a stream of the
// log that says nothing, and without any. One that pings without end does not.
func TestPings_C181_OfAnIdleConnection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		stream bool // of the log
		gap    time.Duration
		pings  int
		stays  bool
	}{
		{"a second, a stream", true, time.Second, 60, true},
		{"a fifth, a stream", true, 200 * time.Millisecond, 300, true},
		{"a fifth, no stream", false, 200 * time.Millisecond, 300, true},
		{"a tenth, a stream", true, 100 * time.Millisecond, 600, true},
		{"a flood", true, time.Millisecond, 100, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := idle(t)
				if tt.stream {
					c.call(logMethod)
				}
				var b [8]byte
				for i := range tt.pings {
					binary.BigEndian.PutUint64(b[:], uint64(i)) //nolint:gosec // small
					c.write(func() error { return c.WritePing(false, b) })
					time.Sleep(tt.gap)
				}
				time.Sleep(2 * time.Second) // a connection is told why before it is closed
				synctest.Wait()
				select {
				case <-c.ended:
					if tt.stays {
						t.Error("the connection was closed")
					}
				default:
					if !tt.stays {
						t.Error("the connection is still there")
					}
				}
			})
		})
	}
}

// idle is a connection to a server, both in the bubble of the test, on which nothing is sent.
func idle(t *testing.T) *rawClient {
	t.Helper()
	s, l := unserved(t, envoy.Options{Settler: &settler{}, Log: zerolog.Nop()}), bufconn.Listen(1<<20)
	var served sync.WaitGroup
	served.Go(func() { _ = s.Serve(l) })
	conn, err := l.DialContext(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		s.Stop()
		served.Wait()
	})
	return speaking(t, conn)
}

// speaking is a connection that begins with the preface of HTTP/2, and reads nothing of what
// is said.
func speaking(t *testing.T, conn net.Conn) *rawClient {
	t.Helper()
	c := &rawClient{Conn: conn, Framer: http2.NewFramer(conn, conn), t: t, ended: make(chan struct{})}
	c.encoder = hpack.NewEncoder(&c.headers)
	c.write(func() error { _, err := io.WriteString(conn, http2.ClientPreface); return err })
	c.write(func() error { return c.WriteSettings() })
	go func() {
		defer close(c.ended)
		_, _ = io.Copy(io.Discard, conn)
	}()
	return c
}
