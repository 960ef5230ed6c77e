package envoy_test

import (
	"bytes"
	"encoding/binary"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/rs/zerolog"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// listening runs a server on a port and returns its address and a way to end it.
func listening(t *testing.T, o envoy.Options) (*envoy.Server, string) {
	t.Helper()
	o.Settler, o.Now = &settler{}, time.Now
	if o.Decider == nil {
		o.Decider = always(authz.Allowed)
	}
	s := envoy.NewServer(o)
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		if err := s.Serve(l); err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	t.Cleanup(func() {
		s.Stop()
		served.Wait()
	})
	return s, l.Addr().String()
}

// A rawClient is the client's side of a connection, frame by frame.
type rawClient struct {
	net.Conn
	*http2.Framer

	t       *testing.T
	headers bytes.Buffer
	encoder *hpack.Encoder
	ended   chan struct{} // the server has closed the connection
	streams uint32
}

func dial(t *testing.T, address string) *rawClient {
	t.Helper()
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	c := speaking(t, conn)
	t.Cleanup(func() {
		_ = conn.Close()
		<-c.ended
	})
	return c
}

// write ignores errors: the server may close the connection at any time.
func (c *rawClient) write(do func() error) { _ = do() }

// call begins a call and returns its stream.
func (c *rawClient) call(method string) uint32 {
	id := 2*c.streams + 1
	c.streams++
	c.headers.Reset()
	for _, h := range [][2]string{
		{":method", "POST"},
		{":scheme", "http"},
		{":path", method},
		{":authority", "mete"},
		{"content-type", "application/grpc"},
		{"te", "trailers"},
	} {
		if err := c.encoder.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]}); err != nil {
			c.t.Fatal(err)
		}
	}
	c.write(func() error {
		return c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: c.headers.Bytes(), EndHeaders: true})
	})
	return id
}

// begin begins a message of length bytes on a stream and sends some of it.
func (c *rawClient) begin(id uint32, length, some int) {
	head := binary.BigEndian.AppendUint32([]byte{0}, uint32(length)) //nolint:gosec // small
	c.write(func() error { return c.WriteData(id, false, head) })
	for some > 0 {
		n := min(some, 16<<10)
		c.write(func() error { return c.WriteData(id, false, make([]byte, n)) })
		some -= n
	}
}

func (c *rawClient) waitEnd() {
	c.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(30 * time.Second):
		c.t.Fatal("the connection stays open")
	}
}

// A connection whose unfinished messages take more than its share is closed, and others are
// answered (issue 12, F4).
func TestIntake_F4_OneConnection(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	s, address := listening(t, envoy.Options{MaxUnfinished: 4 << 20, Log: zerolog.New(&log)})
	c := dial(t, address)
	for range 60 { // 60 kB each fit into the window
		c.begin(c.call(logMethod), 1<<20, 48<<10)
	}
	c.waitEnd()
	st := s.Stats().Intake
	if st.Evicted != 1 || !strings.Contains(log.String(), "max-unfinished-bytes") {
		t.Errorf("stats %+v, log %s", st, log.String())
	}
	if _, err := checks(t, address).Check(t.Context(), fullCheck(t)); err != nil {
		t.Errorf("another connection: %v", err)
	}
	wait(t, func() bool { return s.Stats().Intake.Unfinished == 0 })
}

// What all take together is bounded: the one that takes most is closed.
func TestIntake_F4_AllConnections(t *testing.T) {
	t.Parallel()
	s, address := listening(t, envoy.Options{MaxUnfinished: 4 << 20})
	some := func(streams int) *rawClient {
		c := dial(t, address)
		before := s.Stats().Intake.Unfinished
		for range streams {
			c.begin(c.call(checkMethod), 1<<20, 48<<10)
		}
		wait(t, func() bool { return s.Stats().Intake.Unfinished >= before+int64(streams)*48<<10 })
		return c
	}
	small, large := some(20), some(35)
	last := dial(t, address)
	for range 38 {
		last.begin(last.call(checkMethod), 1<<20, 48<<10)
	}
	wait(t, func() bool { return s.Stats().Intake.Evicted == 1 })
	large.waitEnd()
	for _, c := range []*rawClient{small, last} {
		select {
		case <-c.ended:
			t.Error("one that takes less was closed")
		default:
		}
	}
}

// What has been counted is let go of when a stream ends, from either side, and when the
// connection does.
func TestIntake_F4_StreamsEnd(t *testing.T) {
	t.Parallel()
	s, address := listening(t, envoy.Options{MaxUnfinished: 8 << 20, MaxMessage: 1 << 20})
	held := func(want bool) {
		t.Helper()
		wait(t, func() bool { return s.Stats().Intake.Unfinished > 0 == want })
	}
	c := dial(t, address)
	reset := c.call(checkMethod)
	c.begin(reset, 1<<20, 40<<10)
	held(true)
	c.write(func() error { return c.WriteRSTStream(reset, http2.ErrCodeCancel) })
	held(false)
	ended := c.call(checkMethod)
	c.begin(ended, 1<<20, 40<<10)
	held(true)
	c.write(func() error { return c.WriteData(ended, true, nil) })
	held(false)
	c.begin(c.call(checkMethod), 3<<20, 40<<10) // the server ends it: it is too large
	wait(t, func() bool { return s.Stats().Intake.TooLarge == 1 })
	held(false)
	c.begin(c.call(logMethod), 1<<20, 40<<10)
	held(true)
	_ = c.Close()
	held(false)
	wait(t, func() bool { return s.Stats().Intake.Open == 0 })
}

// Connections beyond the bound are refused, and places become free again.
func TestIntake_F4_Connections(t *testing.T) {
	t.Parallel()
	var log lockedBuffer
	s, address := listening(t, envoy.Options{MaxConnections: 2, Log: zerolog.New(&log)})
	first, second := dial(t, address), dial(t, address)
	wait(t, func() bool { return s.Stats().Intake.Open == 2 })
	for range 3 {
		dial(t, address).waitEnd()
	}
	if st := s.Stats().Intake; st.Refused != 3 || strings.Count(log.String(), "max-connections") != 1 {
		t.Errorf("stats %+v, log %s", st, log.String())
	}
	_ = first.Close()
	wait(t, func() bool { return s.Stats().Intake.Open == 1 })
	if _, err := checks(t, address).Check(t.Context(), fullCheck(t)); err != nil {
		t.Errorf("a place is free: %v", err)
	}
	_ = second.Close()
}

// Messages up to 64 MiB are decided and settled (issue 12, C3).
func TestIntake_C3_LargeMessages(t *testing.T) {
	t.Parallel()
	set := &settler{}
	s, conn := start(t, envoy.Options{Decider: always(authz.Allowed), Settler: set})
	m := fullCheck(t)
	m.Attributes.Request.Http.RawBody = make([]byte, 33<<20)
	if r, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), m); err != nil || r.GetOkResponse() == nil {
		t.Errorf("a body of 33 MiB: %v, %v", r, err)
	}
	ss := logs(t, conn)
	batch := httpLogs(numbered(t, strings.Repeat("n", 40<<20)))
	send(t, ss, batch)
	wait(t, func() bool { return len(set.settled()) == 1 })
	if st := s.Stats(); st.Logs.TooLarge != 0 || st.Intake.TooLarge != 0 || st.Intake.Unfinished != 0 {
		t.Errorf("stats %+v, %+v", st.Logs, st.Intake)
	}
}

// What is compressed is bounded by what it becomes.
func TestIntake_F4_Compressed(t *testing.T) {
	t.Parallel()
	_, conn := start(t, envoy.Options{Decider: always(authz.Allowed)})
	client := authv3.NewAuthorizationClient(conn)
	for size, want := range map[int]bool{1 << 20: true, 5 << 20: false} {
		m := fullCheck(t)
		m.Attributes.Request.Http.RawBody = make([]byte, size)
		if _, err := client.Check(t.Context(), m, grpc.UseCompressor(gzip.Name)); (err == nil) != want {
			t.Errorf("%d bytes: got %v, want decided: %v", size, err, want)
		}
	}
}

func checks(t *testing.T, address string) authv3.AuthorizationClient {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return authv3.NewAuthorizationClient(conn)
}

// A lockedBuffer is a log that is read while it is written.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// What is no message of Envoy's is read into structures, and so bounded more tightly.
func TestIntake_F4_OtherServices(t *testing.T) {
	t.Parallel()
	_, conn := start(t, envoy.Options{Decider: always(authz.Allowed)})
	_, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: strings.Repeat("s", 5<<20)})
	if err == nil || !strings.Contains(err.Error(), "which is the most for this service") {
		t.Errorf("a message of 5 MiB: %v", err)
	}
}
