package envoy_test

import (
	"testing"

	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// FuzzAccessLog: nothing makes us fail, hang or take much memory, and what the
// generated types can read means the same to us.
func FuzzAccessLog(f *testing.F) {
	f.Add(mustMarshal(f, httpLogs(typicalEntry(f), &logv3.HTTPAccessLogEntry{}, typicalEntry(f))))
	f.Add(mustMarshal(f, &accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_TcpLogs{TcpLogs: &accesslogv3.StreamAccessLogsMessage_TCPAccessLogEntries{LogEntry: []*logv3.TCPAccessLogEntry{{}}}}}))
	f.Add([]byte{})
	f.Add([]byte{0x12, 0x02, 0x0a, 0x00})
	f.Add([]byte{0x12, 0x02, 0x08, 0x00, 0x12, 0x02, 0x0a, 0x00})
	settled := 0
	set := &settler{settle: func(_ string, e *authz.Ending) authz.Settled {
		settled++
		_, _ = e.Response.Header("x-usage-tokens")
		_, _ = e.Response.Lookup("envoy.filters.http.ext_authz", []string{"reservation"})
		return authz.SettledLess
	}}
	s := unserved(f, envoy.Options{Settler: set})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := s.Stats().Logs
		settled, set.got = 0, nil
		envoy.NewLogReader(s).Take(mem.SliceBuffer(b))
		st := s.Stats().Logs
		if st.Broken != 0 || st.Batches != before.Batches+1 || st.Bytes != before.Bytes+uint64(len(b)) || int(st.Settled[authz.SettledLess]-before.Settled[authz.SettledLess]) != settled {
			t.Fatalf("%+v, then %+v, of %x", before, st, b)
		}
		var m accesslogv3.StreamAccessLogsMessage
		if proto.Unmarshal(b, &m) != nil {
			return
		}
		var e envoy.LogEntry
		for _, m := range m.GetHttpLogs().GetLogEntry() {
			if comparable(m) {
				compareEntry(t, &e, m)
			}
		}
	})
}

// comparable reports whether an entry has nothing that ours refuses, or reads otherwise
// on purpose.
func comparable(m *logv3.HTTPAccessLogEntry) bool {
	c, r := m.GetCommonProperties(), m.GetResponse()
	for _, p := range []proto.Message{m, c, c.GetResponseFlags(), c.GetDuration(), c.GetMetadata(), m.GetRequest(), r, r.GetResponseCode()} {
		if len(p.ProtoReflect().GetUnknown()) > 0 {
			return false
		}
	}
	if d := c.GetDuration(); d != nil && !d.IsValid() {
		return false
	}
	return max(len(r.GetResponseHeaders()), len(r.GetResponseTrailers())) <= envoy.MaxLogged
}
