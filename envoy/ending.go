package envoy

import (
	"net/http"
	"strings"

	"github.com/meteproject/mete/authz"
)

// grpcNone stands for a response without a gRPC status.
const grpcNone = -1

// grpcStatus returns the gRPC status of the response: from its trailers, or from its
// headers where they are all that it has; -1: none.
func (e *logEntry) grpcStatus() int {
	text, ok := e.Trailer("grpc-status")
	if !ok {
		text, ok = e.Header("grpc-status")
	}
	if !ok {
		return grpcNone
	}
	return authz.GRPCStatus(text)
}

// The flags of a response that broke off, by their field numbers.
const (
	flagsBroken = 1<<3 | // upstream_request_timeout
		1<<5 | // upstream_remote_reset
		1<<7 | // upstream_connection_termination
		1<<15 | // downstream_connection_termination
		1<<17 | // stream_idle_timeout
		1<<19 | // downstream_protocol_error
		1<<20 | // upstream_max_stream_duration_reached
		1<<23 | // duration_timeout
		1<<24 | // upstream_protocol_error
		1<<28 // downstream_remote_reset
	// flagsLeft are those of a client that went away.
	flagsLeft = 1<<15 | 1<<19 | 1<<28
)

// followedDetails is what Envoy logs of a response that it has followed itself, by a
// route's internal_redirect_policy.
const followedDetails = "internal_redirect"

// brokeOff reports whether a response began and broke off. Its status stays what it
// was, so the reason in response_code_details decides (envoy-observed.md 1.3 has all
// that were seen). Whatever is not known to be a break is an end: a local reply of a
// filter, for instance, of which there are too many to list.
func (e *logEntry) brokeOff() bool {
	code := e.ending.Status
	switch {
	case code == 0:
		return false // no response began
	case code == http.StatusSwitchingProtocols, e.tunnel:
		return false // a tunnel has no other end than that somebody hangs up
	case code == http.StatusNoContent, code == http.StatusNotModified:
		return false // there is nothing after the headers
	case e.ending.GRPC >= 0:
		return false // the status is the last thing of a gRPC response, a local one's too
	}
	switch reason := e.reason(); reason {
	case "upstream_reset_after_response_started",
		"downstream_remote_disconnect", "downstream_local_disconnect",
		"http1.remote_reset", "http2.remote_reset", "http3.remote_reset",
		"http2.remote_refuse", "http3.remote_refuse":
		return true
	case "response_timeout", "stream_idle_timeout", "max_duration_timeout", "request_overall_timeout",
		"upstream_per_try_timeout", "upstream_per_try_idle_timeout", "upstream_max_stream_duration_reached":
		// The status is Envoy's own where the time ran out before a response: an
		// upstream's 504 that broke off cannot be told from that.
		return code != http.StatusGatewayTimeout && code != http.StatusRequestTimeout
	case "codec_error":
		// So it is here: a request that cannot be read is answered with 4xx.
		return code < 400 || code > 499
	case "response_payload_too_large", "filter_added_invalid_response_data":
		return code != http.StatusInternalServerError // likewise
	case "":
		return e.flagged()
	default:
		return false
	}
}

// flagged decides by the flags, for entries without details. Flags of the upstream's
// side come with local replies too, which are 5xx or 408.
func (e *logEntry) flagged() bool {
	if e.flags&flagsLeft != 0 {
		return true
	}
	code := e.ending.Status
	return e.flags&flagsBroken != 0 && code < 500 && code != http.StatusRequestTimeout
}

// reason is response_code_details without what some of them have in brackets or after
// a colon.
func (e *logEntry) reason() string {
	if i := strings.IndexAny(e.details, "{(:"); i >= 0 {
		return e.details[:i]
	}
	return e.details
}
