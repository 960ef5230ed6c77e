package envoy_test

import (
	"strings"
	"testing"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	logv3 "github.com/envoyproxy/go-control-plane/envoy/data/accesslog/v3"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// What our own answer has left in the metadata of an entry.
const (
	admission = iota // with a reservation
	refused          // without
	nothing
)

// An outcome is how a request went, as Envoy 1.40 logs it, and what is made of it.
type outcome struct {
	name            string
	status          uint32 // 0: the wrapper is absent
	details         string
	flags           string
	trailer, header string // grpc-status
	reached         bool   // upstream_wire_bytes_sent is above 0
	steps           int    // entries before the last one
	meta            int
	unfinished      bool
	early           bool // the status is of no response yet
	followed        bool
}

// outcomes are all rows of envoy-observed.md 1.3.
var outcomes = []outcome{
	{name: "up-200", status: 200, details: "via_upstream", reached: true},
	{name: "up-204", status: 204, details: "via_upstream", reached: true},
	{name: "up-301", status: 301, details: "via_upstream", reached: true},
	{name: "up-304", status: 304, details: "via_upstream", reached: true},
	{name: "up-404", status: 404, details: "via_upstream", reached: true},
	{name: "up-500", status: 500, details: "via_upstream", reached: true},
	{name: "up-503", status: 503, details: "via_upstream", reached: true},
	{name: "post-1000", status: 200, details: "via_upstream", reached: true},
	{name: "post-chunked-1000-rsp777", status: 200, details: "via_upstream", reached: true},
	{name: "head", status: 200, details: "via_upstream", reached: true},
	{name: "h2-post-1000", status: 200, details: "via_upstream", reached: true},
	{name: "up-close-before-headers", status: 503, details: "upstream_reset_before_response_started{connection_termination}", flags: "UC", reached: true},
	{name: "up-rst-before-headers", status: 503, details: "upstream_reset_before_response_started{connection_termination}", flags: "UC", reached: true},
	{name: "up-h2-rststream-before-headers", status: 503, details: "upstream_reset_before_response_started{remote_reset}", flags: "UR", reached: true},
	{name: "up-close-midbody-cl", status: 200, details: "upstream_reset_after_response_started{protocol_error}", flags: "UPE", reached: true, unfinished: true},
	{name: "up-rst-midbody-chunked", status: 200, details: "upstream_reset_after_response_started{protocol_error}", flags: "UPE", reached: true, unfinished: true},
	{name: "up-h2-rststream-midbody", status: 200, details: "upstream_reset_after_response_started{remote_reset}", flags: "UR", reached: true, unfinished: true},
	{name: "up-garbage", status: 502, details: "upstream_reset_before_response_started{protocol_error}", flags: "UPE", reached: true},
	{name: "up-refused", status: 503, details: "upstream_reset_before_response_started{remote_connection_failure|delayed_connect_error:_Connection_refused}", flags: "UF"},
	{name: "up-timeout-504", status: 504, details: "response_timeout", flags: "UT", reached: true},
	{name: "up-timeout-midbody", status: 200, details: "response_timeout", flags: "UT", reached: true, unfinished: true},
	{name: "idle-before-headers", status: 504, details: "stream_idle_timeout", flags: "SI", reached: true},
	{name: "idle-midbody", status: 200, details: "stream_idle_timeout", flags: "SI", reached: true, unfinished: true},
	{name: "idle-request-incomplete", status: 408, details: "stream_idle_timeout", flags: "SI", reached: true},
	{name: "maxdur-midbody", status: 200, details: "max_duration_timeout", reached: true, unfinished: true},
	{name: "cl-abort-h1-before-headers", details: "downstream_remote_disconnect", flags: "DC", reached: true},
	{name: "cl-abort-h1-rst-before-headers", details: "downstream_remote_disconnect", flags: "DC", reached: true},
	{name: "cl-abort-h1-midbody", status: 200, details: "downstream_remote_disconnect", flags: "DC", reached: true, unfinished: true},
	{name: "cl-abort-h1-large-midbody", status: 200, details: "downstream_remote_disconnect", flags: "DC", reached: true, unfinished: true},
	{name: "cl-abort-h1-upload", details: "downstream_remote_disconnect", flags: "DC", reached: true},
	{name: "cl-abort-h1-during-check", details: "downstream_remote_disconnect", flags: "DC", meta: nothing},
	{name: "cl-abort-h2-before-headers", details: "http2.remote_reset", flags: "DR", reached: true},
	{name: "cl-abort-h2-midbody", status: 200, details: "http2.remote_reset", flags: "DR", reached: true, unfinished: true},
	{name: "cl-abort-h2-during-check", details: "http2.remote_reset", flags: "DR", meta: nothing},
	{name: "retry-503-200", status: 200, details: "via_upstream", reached: true},
	{name: "retry-all-503", status: 503, details: "via_upstream", flags: "URX", reached: true},
	{name: "grpc-unary-ok", status: 200, details: "via_upstream", trailer: "0", reached: true},
	{name: "grpc-error-trailers", status: 200, details: "via_upstream", trailer: "5", reached: true},
	{name: "grpc-trailers-only", status: 200, details: "via_upstream", header: "5", reached: true},
	{name: "grpc-unary-client-deadline", details: "http2.remote_reset", flags: "DR", reached: true},
	{name: "grpc-stream-complete", status: 200, details: "via_upstream", trailer: "0", reached: true},
	{name: "grpc-stream-client-cancel", status: 200, details: "http2.remote_reset", flags: "DR", reached: true, unfinished: true},
	{name: "grpc-stream-conn-drop", status: 200, details: "codec_error:The_user_callback_function_failed", flags: "DPE", reached: true, unfinished: true},
	{name: "websocket", status: 101, details: "downstream_remote_disconnect", flags: "DC", reached: true},
	{name: "websocket-periodic", status: 101, details: "downstream_remote_disconnect", flags: "DC", reached: true, steps: 4},
	{name: "websocket-denied", status: 429, details: "ext_authz_denied", flags: "UAEX", meta: refused},
	{name: "slow-stream-periodic", status: 200, details: "via_upstream", reached: true, steps: 4},
	{name: "short-on-periodic", status: 200, details: "via_upstream", reached: true, steps: 1},
	{name: "denied-on-periodic", status: 429, details: "ext_authz_denied", flags: "UAEX", steps: 1, meta: refused},
	{name: "denied-429", status: 429, details: "ext_authz_denied", flags: "UAEX", meta: refused},
	{name: "denied-429-post", status: 429, details: "ext_authz_denied", flags: "UAEX", meta: refused},
	{name: "denied-default", status: 403, details: "ext_authz_denied", flags: "UAEX", meta: refused},
	{name: "denied-grpc", status: 200, details: "ext_authz_denied", flags: "UAEX", header: "14", meta: refused},
	{name: "check-error-closed", status: 503, details: "ext_authz_error", flags: "UAEX", meta: nothing},
	{name: "check-error-open", status: 200, details: "via_upstream", reached: true, meta: nothing},
	{name: "check-timeout-closed", status: 503, details: "ext_authz_error", flags: "UAEX", meta: nothing},
	{name: "check-timeout-open", status: 200, details: "via_upstream", reached: true, meta: nothing},
	{name: "check-internal-closed", status: 503, details: "ext_authz_error", flags: "UAEX", meta: nothing},
	{name: "error_response-closed", status: 502, details: "ext_authz_error", flags: "UAEX", meta: refused},
	{name: "error_response-open", status: 200, details: "via_upstream", reached: true, meta: refused},
	{name: "shadow-denied", status: 200, details: "via_upstream", reached: true, meta: refused},
	{name: "shadow-error", status: 200, details: "via_upstream", reached: true, meta: nothing},
	{name: "shadow-ok", status: 200, details: "via_upstream", reached: true},
	{name: "noroute", status: 404, details: "route_not_found", flags: "NR", meta: nothing},
	{name: "direct_response", status: 200, details: "direct_response"},
	{name: "direct_response-denied", status: 429, details: "ext_authz_denied", flags: "UAEX", meta: refused},
	{name: "redirect-route", status: 301, details: "direct_response"},
	{name: "healthz-disabled", status: 200, details: "direct_response", meta: nothing},
	{name: "ratelimited-429", status: 429, details: "request_rate_limited", flags: "RL"},
	{name: "rl-ok", status: 200, details: "via_upstream", reached: true},
	{name: "retry-check-unavailable", status: 200, details: "via_upstream", reached: true},
	{name: "malformed-request", status: 400, details: "missing_host_header", meta: nothing},
	{name: "h1-pipelined-keepalive-2nd-abort", status: 200, details: "via_upstream", reached: true},
	{name: "noing-ok", status: 200, details: "via_upstream", reached: true, meta: nothing},
}

// More that Envoy's sources name, which were not seen in a run.
var otherOutcomes = []outcome{
	// A gRPC request that is answered by Envoy itself has 200 and a grpc-status.
	{name: "gRPC, timeout before a response", status: 200, details: "response_timeout", flags: "UT", header: "4", reached: true},
	{name: "gRPC, timeout in a stream", status: 200, details: "response_timeout", flags: "UT", reached: true, unfinished: true},
	{name: "gRPC, reset before a response", status: 200, details: "upstream_reset_before_response_started{remote_reset}", flags: "UR", header: "14", reached: true},
	{name: "an upstream's 504 that breaks off", status: 504, details: "response_timeout", flags: "UT", reached: true}, // like Envoy's own
	{name: "an upstream's 503 that breaks off", status: 503, details: "upstream_reset_after_response_started{remote_reset}", flags: "UR", reached: true, unfinished: true},
	{name: "per try timeout before", status: 504, details: "upstream_per_try_timeout", flags: "UT", reached: true},
	{name: "per try idle timeout in the body", status: 200, details: "upstream_per_try_idle_timeout", flags: "SI", reached: true, unfinished: true},
	{name: "route's max duration before", status: 408, details: "upstream_max_stream_duration_reached", flags: "UMSDR", reached: true},
	{name: "route's max duration in the body", status: 200, details: "upstream_max_stream_duration_reached", flags: "UMSDR", reached: true, unfinished: true},
	{name: "request too slow", status: 408, details: "request_overall_timeout"},
	{name: "Envoy closes the connection", status: 200, details: "downstream_local_disconnect(max_connection_duration_reached)", reached: true, unfinished: true},
	{name: "HTTP/3 reset", status: 404, details: "http3.remote_reset", flags: "DR", reached: true, unfinished: true},
	{name: "a request that cannot be read", status: 400, details: "codec_error:The_user_callback_function_failed", flags: "DPE"},
	{name: "response too large, before", status: 500, details: "response_payload_too_large", reached: true},
	{name: "response too large, in the body", status: 200, details: "response_payload_too_large", reached: true, unfinished: true},
	{name: "304 and gone", status: 304, details: "downstream_remote_disconnect", flags: "DC", reached: true},
	{name: "204 and gone", status: 204, details: "http2.remote_reset", flags: "DR", reached: true},
	{name: "tunnel of CONNECT", status: 200, details: "downstream_remote_disconnect", flags: "DC CONNECT", reached: true},
	{name: "details of a filter nobody knows", status: 403, details: "rbac_access_denied_matched_policy[none]", flags: "DC"},
	{name: "100 Continue and gone", status: 100, early: true, details: "downstream_remote_disconnect", flags: "DC", reached: true},
	{name: "103 and gone", status: 103, early: true, details: "http2.remote_reset", flags: "DR"},
	{name: "a redirect that Envoy follows", status: 302, details: "internal_redirect", reached: true, followed: true},
	{name: "no details", status: 200, reached: true},
	{name: "no details, client gone", status: 500, flags: "DR", reached: true, unfinished: true},
	{name: "no details, upstream gone in the body", status: 200, flags: "UC", reached: true, unfinished: true},
	{name: "no details, upstream gone before", status: 503, flags: "UC", reached: true},
	{name: "no details, a retry failed", status: 404, flags: "URX", reached: true},
	{name: "no details, idle request", status: 408, flags: "SI"},
	{name: "no details, no response", flags: "DC"},
}

// The numbers of Envoy's flags among the fields of ResponseFlags.
var flagNumbers = map[string]protoreflect.FieldNumber{
	"UT": 3, "UR": 5, "UF": 6, "UC": 7, "NR": 9, "RL": 12, "UAEX": 13, "DC": 15, "URX": 16, "SI": 17, "DPE": 19, "UMSDR": 20, "UPE": 24, "DR": 28,
}

// entries are what Envoy logs of an outcome.
func (o *outcome) entries(t *testing.T) []*logv3.HTTPAccessLogEntry {
	t.Helper()
	steps := []logv3.AccessLogType{logv3.AccessLogType_DownstreamStart, logv3.AccessLogType_DownstreamTunnelSuccessfullyEstablished, logv3.AccessLogType_DownstreamPeriodic, logv3.AccessLogType_DownstreamPeriodic}
	var out []*logv3.HTTPAccessLogEntry
	for _, kind := range append(steps[:o.steps:o.steps], logv3.AccessLogType_DownstreamEnd) {
		e := &logv3.HTTPAccessLogEntry{
			CommonProperties: &logv3.AccessLogCommon{AccessLogType: kind, ResponseFlags: &logv3.ResponseFlags{}, Metadata: o.metadata()},
			Request:          &logv3.HTTPRequestProperties{RequestMethod: corev3.RequestMethod_GET},
			Response:         &logv3.HTTPResponseProperties{ResponseCodeDetails: o.details},
		}
		if o.status != 0 {
			e.Response.ResponseCode = wrapperspb.UInt32(o.status)
		}
		if o.trailer != "" {
			e.Response.ResponseTrailers = map[string]string{"grpc-status": o.trailer}
		}
		if o.header != "" {
			e.Response.ResponseHeaders = map[string]string{"grpc-status": o.header}
		}
		if o.reached {
			e.CommonProperties.UpstreamWireBytesSent = 281
		}
		for flag := range strings.FieldsSeq(o.flags) {
			if flag == "CONNECT" {
				e.Request.RequestMethod = corev3.RequestMethod_CONNECT
				continue
			}
			m := e.CommonProperties.ResponseFlags.ProtoReflect()
			f := m.Descriptor().Fields().ByNumber(flagNumbers[flag])
			if f.Kind() == protoreflect.BoolKind {
				m.Set(f, protoreflect.ValueOfBool(true))
			} else {
				m.Set(f, m.NewField(f))
			}
		}
		out = append(out, e)
	}
	return out
}

func (o *outcome) metadata() *corev3.Metadata {
	fields := map[string]any{"v": "1", "outcome": "allowed", "reservation": sampleToken, "ext_authz_duration": 1.0}
	switch o.meta {
	case nothing:
		return nil
	case refused:
		fields = map[string]any{"v": "1", "outcome": "quota_exceeded", "limit": "monthly"}
	}
	return filterMetadata("envoy.filters.http.ext_authz", fields)
}

func filterMetadata(namespace string, fields map[string]any) *corev3.Metadata {
	st, err := structpb.NewStruct(fields)
	if err != nil {
		panic(err)
	}
	return &corev3.Metadata{FilterMetadata: map[string]*structpb.Struct{namespace: st}}
}

// Each outcome of a request that Envoy was seen to log: what is settled, and as what.
func TestEnding_A8_A9_A11_A12_C14_C15_C123_EachOutcome(t *testing.T) {
	t.Parallel()
	for _, o := range append(outcomes, otherOutcomes...) {
		t.Run(o.name, func(t *testing.T) {
			t.Parallel()
			set := &settler{}
			s := unserved(t, envoy.Options{Settler: set})
			es := o.entries(t)
			take(t, s, httpLogs(es...))
			got, st := set.settled(), s.Stats().Logs
			if st.Intermediate != uint64(o.steps) || st.Malformed != 0 {
				t.Errorf("%+v, want %d intermediate", st, o.steps)
			}
			if o.meta != admission {
				if len(got) != 0 || st.Unreserved != 1 {
					t.Errorf("settled %+v, %+v", got, st)
				}
				return
			}
			want := authz.Ending{Status: int(o.status), GRPC: o.grpc(t), Unfinished: o.unfinished, Reached: o.reached, Followed: o.followed}
			if o.early {
				want.Status = 0
			}
			if len(got) != 1 || got[0].token != sampleToken || got[0].ending != want {
				t.Fatalf("settled %+v, want %+v", got, want)
			}
			if st.Settled[authz.SettledAsReserved] != 1 || st.Unreserved != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

func (o *outcome) grpc(t *testing.T) int {
	t.Helper()
	switch o.trailer + o.header {
	case "":
		return -1
	case "0", "4", "5":
		return int((o.trailer + o.header)[0] - '0')
	case "14":
		return 14
	}
	t.Fatalf("a new status %s%s", o.trailer, o.header)
	return 0
}

// A status that cannot be read is UNKNOWN, as for gRPC's own clients; the trailers
// are the end, whatever the headers say.
func TestEnding_C123_GRPCStatus(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		header, trailer map[string]string
		want            int
	}{
		{nil, nil, -1},
		{map[string]string{"grpc-message": "0"}, map[string]string{"x": "y"}, -1},
		{map[string]string{"grpc-status": "8"}, nil, 8},
		{map[string]string{"grpc-status": "8"}, map[string]string{"grpc-status": "0"}, 0},
		{nil, map[string]string{"grpc-status": "16"}, 16},
		{nil, map[string]string{"grpc-status": "016"}, 16},
		{nil, map[string]string{"grpc-status": "17"}, 2},
		{nil, map[string]string{"grpc-status": "99999999999999999999"}, 2},
		{nil, map[string]string{"grpc-status": "-1"}, 2},
		{nil, map[string]string{"grpc-status": "OK"}, 2},
		{nil, map[string]string{"grpc-status": ""}, 2},
	} {
		var e envoy.LogEntry
		got, _, _, err := e.Read(mustMarshal(t, &logv3.HTTPAccessLogEntry{Response: &logv3.HTTPResponseProperties{
			ResponseHeaders: tt.header, ResponseTrailers: tt.trailer,
		}}))
		if err != nil || got.GRPC != tt.want {
			t.Errorf("%v %v: %+v, %v, want %d", tt.header, tt.trailer, got, err, tt.want)
		}
	}
}
