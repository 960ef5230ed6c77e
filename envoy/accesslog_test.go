package envoy_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
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
