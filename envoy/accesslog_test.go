package envoy_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

const logMethod = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"

// logs opens a log stream like Envoy's, which does not want an answer.
func logs(t *testing.T, conn *grpc.ClientConn) grpc.ClientStream {
	t.Helper()
	ss, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, logMethod)
	if err != nil {
		t.Fatal(err)
	}
	return ss
}

func send(t *testing.T, ss grpc.ClientStream, m any) {
	t.Helper()
	if err := ss.SendMsg(m); err != nil {
		t.Fatal(err)
	}
}

// numbered is an entry with a token of its own.
func numbered(t *testing.T, token string) *logv3.HTTPAccessLogEntry {
	t.Helper()
	e := typicalEntry(t)
	e.GetCommonProperties().Metadata = filterMetadata("envoy.filters.http.ext_authz", map[string]any{"outcome": "allowed", "reservation": token})
	return e
}

func (s *settler) tokens() (out []string) {
	for _, g := range s.settled() {
		out = append(out, g.token)
	}
	return out
}

var identifier = &accesslogv3.StreamAccessLogsMessage_Identifier{LogName: "main", Node: &corev3.Node{Id: "edge-1"}}

// C136: the identifier comes once; messages without it, and streams without any, are
// settled like all others, and TCP entries are ignored.
func TestAccessLog_C136_IdentifierOnlyInTheFirstMessage(t *testing.T) {
	t.Parallel()
	set := &settler{}
	s, conn := start(t, envoy.Options{Decider: always(authz.Allowed), Settler: set})
	client := accesslogv3.NewAccessLogServiceClient(conn)
	tcp := &accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_TcpLogs{
		TcpLogs: &accesslogv3.StreamAccessLogsMessage_TCPAccessLogEntries{LogEntry: []*logv3.TCPAccessLogEntry{{}, {}}},
	}}
	for i, first := range []*accesslogv3.StreamAccessLogsMessage_Identifier{identifier, nil} {
		ss, err := client.StreamAccessLogs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for j := range 4 {
			m := httpLogs(numbered(t, fmt.Sprintf("%d.%d", i, j)), &logv3.HTTPAccessLogEntry{})
			if j == 0 {
				m.Identifier = first
			}
			send(t, ss, m)
			send(t, ss, tcp)
		}
		if _, err := ss.CloseAndRecv(); err != nil {
			t.Errorf("a stream that the client ends: %v", err)
		}
	}
	want := []string{"0.0", "0.1", "0.2", "0.3", "1.0", "1.1", "1.2", "1.3"}
	if got := set.tokens(); !slices.Equal(got, want) {
		t.Errorf("settled %q, want %q", got, want)
	}
	wait(t, func() bool { return s.Stats().Logs.Streams == 0 })
	st := s.Stats().Logs
	if st.Settled[authz.SettledAsReserved] != 8 || st.Unreserved != 8 || st.TCP != 16 || st.Batches != 16 || st.Bytes == 0 || st.Malformed != 0 {
		t.Errorf("%+v", st)
	}
}

// C134: what is delivered twice is settled by the Settler, which knows repeats; two
// requests of one x-request-id are two.
func TestAccessLog_C134_RepeatsAreTheSettlersToTell(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	set := &settler{settle: func(token string, _ *authz.Ending) authz.Settled {
		if seen[token] {
			return authz.SettledBefore
		}
		seen[strings.Clone(token)] = true
		return authz.SettledLess
	}}
	s := unserved(t, envoy.Options{Settler: set})
	batch := httpLogs(numbered(t, "a"), numbered(t, "b"), numbered(t, "a"))
	take(t, s, batch)
	take(t, s, batch) // on another stream
	if st := s.Stats().Logs; st.Settled[authz.SettledLess] != 2 || st.Settled[authz.SettledBefore] != 4 {
		t.Errorf("%+v", st)
	}
}

// Results that nobody has heard of are counted, too.
func TestAccessLog_UnknownResults(t *testing.T) {
	t.Parallel()
	set := &settler{}
	s := unserved(t, envoy.Options{Settler: set})
	for _, r := range []authz.Settled{-1, 0, authz.SettledDropped + 1, authz.SettledDropped} {
		set.settle = func(string, *authz.Ending) authz.Settled { return r }
		take(t, s, httpLogs(numbered(t, "a")))
	}
	if st := s.Stats().Logs; st.Settled[0] != 3 || st.Settled[authz.SettledDropped] != 1 {
		t.Errorf("%+v", st)
	}
}

// A malformed entry or message takes nothing else along, and the stream goes on.
func TestAccessLog_C135_MalformedTakesNothingAlong(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	set := &settler{}
	s := unserved(t, envoy.Options{Settler: set, Log: zerolog.New(&log)})
	reader := envoy.NewLogReader(s)
	entry := func(token string) []byte { return field(1, mustMarshal(t, numbered(t, token))...) }
	for _, b := range [][]byte{
		mustMarshal(t, &accesslogv3.StreamAccessLogsMessage{Identifier: identifier}),
		field(2, slices.Concat(entry("1"), field(1, 0x0a, 0x09, 1), entry("2"))...),         // an entry that is cut off
		slices.Concat(field(2, entry("3")...), []byte{0x12, 0x7f, 0}),                       // a message that is
		slices.Concat(field(2, slices.Concat(entry("4"), []byte{0x0a, 0x7f})...), field(3)), // a list that is
		{0x10, 1},         // no message at all
		field(2, 0x08, 1), // a number for an entry
		field(3, 0x0a),    // a list of TCP entries that is cut off
		nil,
		bytes.Replace(field(2, entry("5_")...), []byte("5_"), []byte("5\xff"), 1), // not UTF-8
	} {
		reader.Take(mem.SliceBuffer(b))
	}
	if got, want := set.tokens(), []string{"1", "2", "3", "4", "5\xff"}; !slices.Equal(got, want) {
		t.Errorf("settled %q, want %q", got, want)
	}
	if st := s.Stats().Logs; st.Malformed != 6 || st.Batches != 9 || st.Unreserved != 0 {
		t.Errorf("%+v", st)
	}
	if n := strings.Count(log.String(), "cannot be read"); n != 1 || !strings.Contains(log.String(), "main of edge-1") {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}

// A panic over one entry loses that entry.
func TestAccessLog_PanicLosesOneEntry(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	set := &settler{settle: func(token string, _ *authz.Ending) authz.Settled {
		if token == "2" {
			panic("broken plan")
		}
		return authz.SettledFree
	}}
	s := unserved(t, envoy.Options{Settler: set, Log: zerolog.New(&log)})
	take(t, s, httpLogs(numbered(t, "1"), numbered(t, "2"), numbered(t, "3")))
	if st := s.Stats(); st.Logs.Settled[authz.SettledFree] != 2 || st.Logs.Broken != 1 || st.Panics != 1 {
		t.Errorf("%+v", st)
	}
	if !strings.Contains(log.String(), "broken plan") {
		t.Errorf("log %s", log.String())
	}
}

// A message above the bound ends its stream, is counted and told; others go on.
func TestAccessLog_C135_TooLarge(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	set := &settler{}
	s, conn := start(t, envoy.Options{Decider: always(authz.Allowed), Settler: set, MaxMessage: 4 << 10, Log: zerolog.New(&log)})
	ss := logs(t, conn)
	send(t, ss, httpLogs(numbered(t, "a")))
	send(t, ss, httpLogs(numbered(t, strings.Repeat("b", 5<<10))))
	if err := ss.RecvMsg(new(accesslogv3.StreamAccessLogsResponse)); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("%v", err)
	}
	wait(t, func() bool { return s.Stats().Logs.Streams == 0 })
	envoy.Readers(s)
	if st := s.Stats().Logs; st.TooLarge != 1 || st.Settled[authz.SettledAsReserved] != 1 || !strings.Contains(log.String(), "buffer_size_bytes") {
		t.Errorf("%+v, %s", st, log.String())
	}
}

// A stop ends each stream after its next batch, with nothing lost, and GracefulStop
// returns by itself.
func TestAccessLog_C135_GracefulStop(t *testing.T) {
	t.Parallel()
	closing := make(chan struct{})
	set := &settler{}
	s, conn := start(t, envoy.Options{Decider: always(authz.Allowed), Settler: set, Closing: closing, LogStreamGrace: time.Hour})
	ss := logs(t, conn)
	send(t, ss, httpLogs(numbered(t, "1")))
	wait(t, func() bool { return len(set.settled()) == 1 })
	close(closing)
	stopped := make(chan struct{})
	go func() { defer close(stopped); s.GracefulStop() }()
	send(t, ss, httpLogs(numbered(t, "2"), numbered(t, "3")))
	if err := ss.RecvMsg(new(accesslogv3.StreamAccessLogsResponse)); !errors.Is(err, io.EOF) {
		t.Errorf("ended with %v, want OK", err)
	}
	<-stopped
	if got := set.tokens(); !slices.Equal(got, []string{"1", "2", "3"}) {
		t.Errorf("settled %q", got)
	}
	if st := s.Stats().Logs; st.Streams != 0 {
		t.Errorf("%+v", st)
	}
}

// A fakeStream is the server's side of a log stream, with fake time.
type fakeStream struct {
	grpc.ServerStream
	s     *envoy.Server
	in    chan []byte
	ended chan struct{} // as gRPC does once the handler has returned
}

func (f *fakeStream) RecvMsg(m any) error {
	select {
	case b, ok := <-f.in:
		if !ok {
			return io.EOF
		}
		return envoy.NewCodec(f.s).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
	default:
	}
	select {
	case b, ok := <-f.in:
		if !ok {
			return io.EOF
		}
		return envoy.NewCodec(f.s).Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, m)
	case <-f.ended:
		return status.Error(codes.Canceled, "the stream is over")
	}
}

func (*fakeStream) SendMsg(any) error        { return nil }
func (*fakeStream) Context() context.Context { return context.Background() }

// A bench is one log stream on a server in a bubble of fake time.
type bench struct {
	t       *testing.T
	set     *settler
	s       *envoy.Server
	closing chan struct{}
	stream  *fakeStream
	done    chan error
	begin   time.Time
}

func newBench(t *testing.T, o envoy.Options) *bench {
	t.Helper()
	b := &bench{t: t, set: &settler{}, closing: make(chan struct{}), done: make(chan error, 1), begin: time.Now()}
	o.Decider, o.Settler, o.Now, o.Closing = always(authz.Allowed), b.set, time.Now, b.closing
	b.s = unserved(t, o)
	return b
}

func (b *bench) open() {
	b.stream = &fakeStream{s: b.s, in: make(chan []byte, 100), ended: make(chan struct{})}
	go func() {
		err := envoy.LogHandler(b.s)(b.stream)
		close(b.stream.ended)
		b.done <- err
	}()
	synctest.Wait()
}

func (b *bench) send(tokens ...string) {
	for _, token := range tokens {
		b.stream.in <- mustMarshal(b.t, httpLogs(numbered(b.t, token)))
	}
}

// over waits for the end of the stream and tells when that was.
func (b *bench) over() time.Duration {
	b.t.Helper()
	if err := <-b.done; err != nil {
		b.t.Errorf("ended with %v", err)
	}
	at := time.Since(b.begin)
	envoy.Readers(b.s)
	return at
}

func (b *bench) goesOn() {
	b.t.Helper()
	synctest.Wait()
	select {
	case err := <-b.done:
		b.t.Fatalf("ended after %v: %v", time.Since(b.begin), err)
	default:
	}
}

func (b *bench) want(tokens ...string) {
	b.t.Helper()
	if got := b.set.tokens(); !slices.Equal(got, tokens) {
		b.t.Errorf("settled %q, want %q", got, tokens)
	}
}

func TestLogStream_C135_EndsRightAfterABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{MaxConnectionAge: -1})
		b.open()
		b.send("1")
		time.Sleep(time.Hour)
		b.goesOn()
		close(b.closing)
		time.Sleep(2900 * time.Millisecond)
		b.goesOn() // nothing has come since
		b.send("2")
		if at, want := b.over(), time.Hour+2900*time.Millisecond+envoy.LogLinger; at != want {
			t.Errorf("ended after %v, want %v", at, want)
		}
		b.want("1", "2")
	})
}

// Batches that have arrived already are not left behind.
func TestLogStream_C135_TakesAllThatHasArrived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{MaxConnectionAge: -1})
		slow := make(chan struct{})
		b.set.settle = func(string, *authz.Ending) authz.Settled { <-slow; return authz.SettledMore }
		b.open()
		close(b.closing)
		b.send("1", "2", "3")
		for range 3 {
			time.Sleep(10 * envoy.LogLinger) // the reader is behind
			b.goesOn()
			slow <- struct{}{}
		}
		b.over()
		b.want("1", "2", "3")
	})
}

func TestLogStream_C135_SilentStreamEndsAfterItsGrace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ set, want time.Duration }{{0, 3 * time.Second}, {time.Minute, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, envoy.Options{LogStreamGrace: tt.set})
			b.open()
			close(b.closing)
			if at := b.over(); at != tt.want {
				t.Errorf("ended after %v, want %v", at, tt.want)
			}
		})
	}
}

// A stream that begins while the server stops gives its first batch.
func TestLogStream_C135_NewStreamWhileStopping(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{})
		close(b.closing)
		b.open()
		b.goesOn()
		b.send("1")
		if at := b.over(); at != envoy.LogLinger {
			t.Errorf("ended after %v", at)
		}
		b.want("1")
	})
}

// A connection is cut off some time after its age: streams end by themselves before,
// after a batch.
func TestLogStream_C135_EndsBeforeItsConnectionIsCutOff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		o    envoy.Options
		want time.Duration
	}{
		{envoy.Options{}, 30 * time.Second},
		{envoy.Options{MaxConnectionAge: time.Hour, MaxConnectionGrace: 10 * time.Second}, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, tt.o)
			b.open()
			b.send("1")
			time.Sleep(tt.want - 1)
			b.goesOn()
			time.Sleep(time.Minute)
			b.goesOn() // there was no batch to end after
			b.send("2")
			if at, want := b.over(), tt.want-1+time.Minute+envoy.LogLinger; at != want {
				t.Errorf("ended after %v, want %v", at, want)
			}
			b.want("1", "2")
		})
	}
}

// What was received is settled before the process may end, even if its stream is over.
func TestLogStream_C135_GracefulStopWaitsForSettlements(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{})
		slow := make(chan struct{})
		b.set.settle = func(string, *authz.Ending) authz.Settled { <-slow; return authz.SettledMore }
		b.open()
		b.send("1")
		close(b.closing)
		if err := <-b.done; err != nil {
			t.Error(err)
		}
		stopped := make(chan struct{})
		go func() { defer close(stopped); b.s.GracefulStop() }()
		synctest.Wait()
		select {
		case <-stopped:
			t.Error("stopped with an entry that is not settled")
		default:
		}
		close(slow)
		<-stopped
		b.want("1")
	})
}

func TestLogStream_EndsWithItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, envoy.Options{})
		b.open()
		b.send("1")
		close(b.stream.in)
		b.over()
		b.want("1")
		if n := b.s.Stats().Logs.Streams; n != 0 {
			t.Errorf("%d streams are open", n)
		}
	})
}
