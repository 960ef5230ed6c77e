package envoy_test

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// httpLogs is a message without identifier, as all but the first one of a stream.
func httpLogs(es ...*logv3.HTTPAccessLogEntry) *accesslogv3.StreamAccessLogsMessage {
	return &accesslogv3.StreamAccessLogsMessage{LogEntries: &accesslogv3.StreamAccessLogsMessage_HttpLogs{
		HttpLogs: &accesslogv3.StreamAccessLogsMessage_HTTPAccessLogEntries{LogEntry: es},
	}}
}

func take(tb testing.TB, s *envoy.Server, m proto.Message) {
	tb.Helper()
	envoy.NewLogReader(s).Take(mem.SliceBuffer(mustMarshal(tb, m)))
}

// typicalEntry is what Envoy logs of a request that was admitted.
func typicalEntry(tb testing.TB) *logv3.HTTPAccessLogEntry {
	tb.Helper()
	address := func(a string, port uint32) *corev3.Address {
		return &corev3.Address{Address: &corev3.Address_SocketAddress{SocketAddress: &corev3.SocketAddress{
			Address: a, PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: port},
		}}}
	}
	span := func(d time.Duration) *durationpb.Duration { return durationpb.New(d) }
	return &logv3.HTTPAccessLogEntry{
		CommonProperties: &logv3.AccessLogCommon{
			DownstreamRemoteAddress: address("203.0.113.7", 51234), DownstreamLocalAddress: address("10.0.0.1", 443),
			DownstreamDirectRemoteAddress: address("203.0.113.7", 51234),
			UpstreamRemoteAddress:         address("10.0.3.17", 8080), UpstreamLocalAddress: address("10.0.0.1", 40000),
			UpstreamCluster: "api", RouteName: "upload", StreamId: "c52f5a27-3a4b-4d2c-9c66-0f1d2f3a4b5c",
			StartTime: timestamppb.New(noon), Duration: span(23 * time.Millisecond),
			TimeToLastRxByte: span(1000), TimeToFirstUpstreamTxByte: span(2000), TimeToLastUpstreamTxByte: span(3000),
			TimeToFirstUpstreamRxByte: span(4000), TimeToLastUpstreamRxByte: span(5000), TimeToFirstDownstreamTxByte: span(6000), TimeToLastDownstreamTxByte: span(7000),
			ResponseFlags: &logv3.ResponseFlags{}, UpstreamRequestAttemptCount: 1, AccessLogType: logv3.AccessLogType_DownstreamEnd,
			DownstreamWireBytesSent: 412, DownstreamWireBytesReceived: 281, UpstreamWireBytesSent: 300, UpstreamWireBytesReceived: 211,
			Metadata: filterMetadata("envoy.filters.http.ext_authz", map[string]any{
				"v": "1", "decision": decisionID.String(), "outcome": "allowed", "app": "shop", "tenant": "org:acme",
				"class": "people", "route": "upload", "reservation": sampleToken, "ext_authz_duration": 1.0,
			}),
		},
		ProtocolVersion: logv3.HTTPAccessLogEntry_HTTP11,
		Request: &logv3.HTTPRequestProperties{
			RequestMethod: corev3.RequestMethod_POST, Scheme: "https", Authority: "api.example.com", Path: "/v1/things",
			RequestId: "c52f5a27-3a4b-4d2c-9c66-0f1d2f3a4b5c", RequestHeadersBytes: 254, RequestBodyBytes: 12,
		},
		Response: &logv3.HTTPResponseProperties{
			ResponseCode: wrapperspb.UInt32(200), ResponseHeadersBytes: 150, ResponseBodyBytes: 1000, ResponseCodeDetails: "via_upstream",
			ResponseHeaders: map[string]string{"x-usage-tokens": "731", "content-type": "application/json"},
		},
	}
}

// P64: what an upstream says of itself is found in headers, trailers and metadata.
func TestLogEntry_P64_P65_WhereUnitsAre(t *testing.T) {
	t.Parallel()
	m := typicalEntry(t)
	m.GetResponse().ResponseTrailers = map[string]string{"x-usage-bytes": "99"}
	m.GetCommonProperties().GetMetadata().GetFilterMetadata()["envoy.filters.http.ai"] = &structpb.Struct{Fields: map[string]*structpb.Value{
		"usage": structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"total": structpb.NewNumberValue(1731)}}),
	}}
	var e envoy.LogEntry
	got, token, final, err := e.Read(mustMarshal(t, m))
	if err != nil || token != sampleToken || !final {
		t.Fatalf("%q, %v, %v", token, final, err)
	}
	if want := (authz.Ending{Status: 200, GRPC: -1, Reached: true, Duration: 23 * time.Millisecond, Response: got.Response}); *got != want {
		t.Errorf("%+v, want %+v", *got, want)
	}
	for name, find := range map[string]func(string) (string, bool){"x-usage-tokens": got.Response.Header, "x-usage-bytes": got.Response.Trailer} {
		if v, ok := find(name); !ok || v != map[string]string{"x-usage-tokens": "731", "x-usage-bytes": "99"}[name] {
			t.Errorf("%s = %q, %v", name, v, ok)
		}
	}
	if v, ok := got.Response.Header("x-usage-bytes"); ok {
		t.Errorf("a trailer among the headers: %q", v)
	}
	if v, ok := got.Response.Lookup("envoy.filters.http.ai", []string{"usage", "total"}); !ok || v != "1731" {
		t.Errorf("metadata %q, %v", v, ok)
	}
	// Nothing of it is left for the next one.
	got, token, final, err = e.Read(nil)
	if err != nil || token != "" || !final {
		t.Errorf("%q, %v, %v", token, final, err)
	}
	if _, ok := got.Response.Header("x-usage-tokens"); ok || got.Status != 0 || got.Reached || got.Duration != 0 {
		t.Errorf("an empty entry: %+v", got)
	}
}

// P15: the reservations of ext_authz and of the rate limit filter: who asks both has both
// to settle.
func TestLogEntry_P15_WhereTheReservationIs(t *testing.T) {
	t.Parallel()
	const authzNS, limitNS = "envoy.filters.http.ext_authz", "envoy.filters.http.ratelimit"
	type fields = map[string]any
	for name, tt := range map[string]struct {
		in   map[string]fields
		want string
	}{
		"ext_authz":             {map[string]fields{authzNS: {"outcome": "allowed", "reservation": "A"}}, "A"},
		"ratelimit":             {map[string]fields{limitNS: {"outcome": "grace", "reservation": "B"}}, "B"},
		"both":                  {map[string]fields{authzNS: {"outcome": "exempt", "reservation": "A"}, limitNS: {"outcome": "allowed", "reservation": "B"}}, "A+B"},
		"ext_authz has none":    {map[string]fields{authzNS: {"outcome": "allowed"}, limitNS: {"outcome": "counted_over", "reservation": "B"}}, "B"},
		"ext_authz's is empty":  {map[string]fields{authzNS: {"outcome": "allowed", "reservation": ""}, limitNS: {"outcome": "unavailable_allow", "reservation": "B"}}, "B"},
		"ext_authz has refused": {map[string]fields{authzNS: {"outcome": "rate_limited"}, limitNS: {"outcome": "allowed", "reservation": "B"}}, "B"},
		"beside a refusal":      {map[string]fields{authzNS: {"outcome": "rate_limited", "reservation": "A"}}, ""},
		"without an outcome":    {map[string]fields{authzNS: {"reservation": "A"}}, ""},
		"not a text":            {map[string]fields{authzNS: {"outcome": "allowed", "reservation": []any{"A"}}}, ""},
		"somebody else's":       {map[string]fields{"other": {"outcome": "allowed", "reservation": "A"}}, ""},
		"none":                  {nil, ""},
	} {
		m := typicalEntry(t)
		m.GetCommonProperties().Metadata = &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{}}
		for ns, f := range tt.in {
			m.GetCommonProperties().GetMetadata().GetFilterMetadata()[ns] = filterMetadata(ns, f).GetFilterMetadata()[ns]
		}
		var e envoy.LogEntry
		if _, token, _, err := e.Read(mustMarshal(t, m)); err != nil || token != tt.want {
			t.Errorf("%s: %q, %v, want %q", name, token, err, tt.want)
		}
	}
}

// Only the end of a request settles; older Envoys say so in another field.
func TestLogEntry_C136_Final(t *testing.T) {
	t.Parallel()
	for kind := range logv3.AccessLogType_name {
		for _, partial := range []bool{false, true} {
			m := &logv3.HTTPAccessLogEntry{CommonProperties: &logv3.AccessLogCommon{AccessLogType: logv3.AccessLogType(kind), IntermediateLogEntry: partial}} //nolint:staticcheck // deprecated, but older Envoys have nothing else
			var e envoy.LogEntry
			_, _, final, err := e.Read(mustMarshal(t, m))
			if want := kind == 6 || kind == 0 && !partial; err != nil || final != want {
				t.Errorf("%v, intermediate %v: %v, %v", logv3.AccessLogType(kind), partial, final, err)
			}
		}
	}
}

func TestLogEntry_Durations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		in   *durationpb.Duration
		want time.Duration
	}{
		{nil, 0},
		{&durationpb.Duration{Nanos: 1}, 1},
		{&durationpb.Duration{Seconds: 2, Nanos: 3}, 2*time.Second + 3},
		{&durationpb.Duration{Seconds: -1}, 0},
		{&durationpb.Duration{Nanos: -1}, 0},
		{&durationpb.Duration{Seconds: 1, Nanos: -1}, time.Second - 1},
		{&durationpb.Duration{Seconds: math.MaxInt64}, math.MaxInt64},
		{&durationpb.Duration{Seconds: 9223372036, Nanos: 854775807}, math.MaxInt64},
		{&durationpb.Duration{Seconds: 9223372036, Nanos: 999999999}, math.MaxInt64},
		{&durationpb.Duration{Seconds: math.MinInt64}, 0},
	} {
		var e envoy.LogEntry
		got, _, _, err := e.Read(mustMarshal(t, &logv3.HTTPAccessLogEntry{CommonProperties: &logv3.AccessLogCommon{Duration: tt.in}}))
		if err != nil || got.Duration != tt.want {
			t.Errorf("%v: %v, %v, want %v", tt.in, got.Duration, err, tt.want)
		}
	}
}

// The entries of maps in all forms that a protobuf may have, not only the usual one.
func TestLogEntry_ReadsEveryFormOfAMap(t *testing.T) {
	t.Parallel()
	key, other, value, again := field(1, 'k'), field(1, 'o'), field(2, []byte("value")...), field(2, []byte("again")...)
	long := field(1, bytes.Repeat([]byte{'k'}, 300)...)
	for i, pair := range [][]byte{
		slices.Concat(key, value),
		slices.Concat(value, key),
		slices.Concat(key, value, again),
		slices.Concat(key, value, other),
		slices.Concat(other, key, value),
		slices.Concat(key, value, field(7, 'x')),
		slices.Concat(field(7, 'x'), key, value),
		slices.Concat(long, value),
		slices.Concat(key, field(2, bytes.Repeat([]byte{'v'}, 300)...)),
		key,
		value,
		{},
	} {
		b := field(4, slices.Concat(field(4, slices.Concat(other, again)...), field(4, pair...))...)
		var m logv3.HTTPAccessLogEntry
		if err := proto.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		var e envoy.LogEntry
		got, _, _, err := e.Read(b)
		if err != nil {
			t.Errorf("form %d: %v", i, err)
			continue
		}
		for k, v := range m.GetResponse().GetResponseHeaders() {
			if h, ok := got.Response.Header(k); !ok || h != v {
				t.Errorf("form %d: header %q = %q, %v, want %q", i, k, h, ok, v)
			}
		}
		st := field(1, slices.Concat(field(1, []byte("ns")...), field(2, field(1, pair...)...))...)
		var s corev3.Metadata
		if err := proto.Unmarshal(st, &s); err == nil {
			compareMetadata(t, envoy.NewMetadata(st), &s)
		}
	}
}

func TestLogEntry_Wrong(t *testing.T) {
	t.Parallel()
	number := func(num protowire.Number) []byte {
		return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), 5)
	}
	for want, in := range map[string][]byte{
		"log_entry.common_properties: wrong wire type":                                  number(1),
		"log_entry.common_properties.metadata: wrong wire type":                         field(1, number(17)...),
		"log_entry.common_properties.metadata: more than 1000 parts":                    field(1, bytes.Repeat(field(17), envoy.MaxLogged+1)...),
		"log_entry.common_properties.duration.seconds: wrong wire type":                 field(1, field(23, field(1)...)...),
		"log_entry.common_properties.access_log_type: wrong wire type":                  field(1, field(33)...),
		"log_entry.common_properties.response_flags: the message is cut off":            field(1, field(16, 0x08)...),
		"log_entry.request.request_method: wrong wire type":                             field(3, field(1)...),
		"log_entry.response.response_code.value: wrong wire type":                       field(4, field(1, field(1)...)...),
		"log_entry.response.response_headers.value: wrong wire type":                    field(4, field(4, number(2)...)...),
		"log_entry.response.response_headers: more than 1000 entries":                   field(4, bytes.Repeat(field(4), envoy.MaxLogged+1)...),
		"log_entry.response.response_trailers: more than 1000 entries":                  field(4, bytes.Repeat(field(5), envoy.MaxLogged+1)...),
		"log_entry.response.response_code_details: wrong wire type":                     field(4, number(6)...),
		"log_entry: the message is cut off":                                             {0x0a, 0x05, 1},
		"log_entry.common_properties.upstream_wire_bytes_sent: wrong wire type, want a": field(1, field(31)...),
	} {
		var e envoy.LogEntry
		if _, _, _, err := e.Read(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// wanted is what the generated types make of an entry.
func wanted(m *logv3.HTTPAccessLogEntry) authz.Ending {
	c, r := m.GetCommonProperties(), m.GetResponse()
	want := authz.Ending{Status: int(r.GetResponseCode().GetValue()), GRPC: -1, Reached: c.GetUpstreamWireBytesSent() > 0}
	if want.Status < 200 && want.Status != 101 {
		want.Status = 0 // no response yet
	}
	if d := c.GetDuration(); d.GetSeconds() > 0 || d.GetSeconds() == 0 && d.GetNanos() > 0 {
		want.Duration = d.AsDuration()
	}
	return want
}

// compareEntry checks an entry against its message, but for what follows from several
// fields, which has tests of its own.
func compareEntry(t *testing.T, e *envoy.LogEntry, m *logv3.HTTPAccessLogEntry) {
	t.Helper()
	got, token, final, err := e.Read(mustMarshal(t, m))
	if err != nil {
		t.Fatalf("%v of %v", err, m)
	}
	want := wanted(m)
	if got.Status != want.Status || got.Reached != want.Reached || got.Duration != want.Duration {
		t.Errorf("%+v, want %+v", *got, want)
	}
	kind := m.GetCommonProperties().GetAccessLogType()
	if final != (kind == 6 || kind == 0 && !m.GetCommonProperties().GetIntermediateLogEntry()) { //nolint:staticcheck // deprecated, but older Envoys have nothing else
		t.Errorf("final %v of %v", final, kind)
	}
	for k, v := range m.GetResponse().GetResponseHeaders() {
		if h, ok := got.Response.Header(k); !ok || h != v {
			t.Errorf("header %q = %q, want %q", k, h, v)
		}
	}
	for k, v := range m.GetResponse().GetResponseTrailers() {
		if h, ok := got.Response.Trailer(k); !ok || h != v {
			t.Errorf("trailer %q = %q, want %q", k, h, v)
		}
	}
	if ours := m.GetCommonProperties().GetMetadata().GetFilterMetadata()["envoy.filters.http.ext_authz"].GetFields(); token != "" && ours["outcome"].GetStringValue() == "allowed" {
		if want := ours["reservation"].GetStringValue(); want != "" && token != want {
			t.Errorf("token %q, want %q", token, want)
		}
	}
	compareMetadata(t, got.Response, m.GetCommonProperties().GetMetadata())
}

// Whatever is in an entry, it means to us what it means to the generated types.
func TestLogEntry_ReadsLikeTheGeneratedTypes(t *testing.T) {
	t.Parallel()
	var e envoy.LogEntry
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same entries each time
	for range 1000 {
		m := typicalEntry(t)
		randomly(r, m.ProtoReflect(), 0)
		if d := m.GetCommonProperties().GetDuration(); d != nil {
			d.Seconds, d.Nanos = r.Int64N(4e10)-1e9, r.Int32N(1e9)
			if d.GetSeconds() < 0 {
				d.Nanos = -d.GetNanos()
			}
		}
		compareEntry(t, &e, m)
	}
}

// randomly changes about a third of the fields of a message, and of those below.
func randomly(r *rand.Rand, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap() || f.IsList():
			if f.IsMap() && f.MapValue().Kind() == protoreflect.StringKind && r.IntN(3) == 0 {
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(word(r)).MapKey(), protoreflect.ValueOfString(word(r)))
			}
		case r.IntN(3) > 0 || f.ContainingOneof() != nil:
		case f.Kind() == protoreflect.MessageKind:
			if r.IntN(4) == 0 {
				m.Clear(f)
			} else if depth < 3 {
				randomly(r, m.Mutable(f).Message(), depth+1)
			}
		default:
			if v := randomScalar(r, f); v.IsValid() {
				m.Set(f, v)
			}
		}
	}
}

func randomScalar(r *rand.Rand, f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() { //nolint:exhaustive // no others are in entries
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(r.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(r.Int32N(20)))
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(word(r))
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(r.Uint32() >> r.IntN(32))
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(r.Uint64() >> r.IntN(64))
	}
	return protoreflect.Value{}
}

func word(r *rand.Rand) string {
	words := [...]string{"", "grpc-status", "0", "7", "via_upstream", "x", "größer", strings.Repeat("y", 200)}
	return words[r.IntN(len(words))]
}
