package envoy

import (
	"net/http"
	"time"

	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"

	"github.com/meteproject/mete/authz"
)

// defaultUnknownHost is the status of a request that no app is for.
const defaultUnknownHost = http.StatusNotFound

// IsRefusal reports whether Envoy can refuse a request with an HTTP status: from 400 to
// 599, and one that Envoy has a name for.
func IsRefusal(status int) bool {
	_, named := typev3.StatusCode_name[int32(min(max(status, 0), 999))] //nolint:gosec // bounded
	return named && status >= 400 && status < 600
}

// maxLoggedHost is how much of a host is logged: as long as a host can be.
const maxLoggedHost = 253

// logUnknownHost counts a request that was answered with NoApp at now, and logs it if
// no other was logged within the last minute: one host of many.
func (s *Server) logUnknownHost(now time.Time, req *authz.Request, why string) {
	seen, log := s.unknown.add(now, 1)
	if !log {
		return
	}
	s.log.Warn().Str("host", req.Host[:min(len(req.Host), maxLoggedHost)]).Str("problem", why).
		Int64("requests", seen).Int("status", s.unknownStatus).
		Msg(`requests were refused because no App is for them; list the host in envoy.hosts of an App, or "*" in one for all other hosts`)
}

// statuses returns the codes of a's refusal.
func (a *answer) statuses() statuses {
	if a.d.Outcome != authz.NoApp {
		return statusOf(a.d.Outcome)
	}
	status := orDefault(a.unknownHost, defaultUnknownHost)
	return statuses{check: 7, http: uint64(status), grpc: grpcOf(status)} //nolint:gosec // three digits
}

// grpcOf is the gRPC status that clients make of an HTTP status.
func grpcOf(status int) uint64 {
	switch status {
	case http.StatusBadRequest:
		return 13 // INTERNAL
	case http.StatusUnauthorized:
		return 16 // UNAUTHENTICATED
	case http.StatusForbidden:
		return 7 // PERMISSION_DENIED
	case http.StatusNotFound:
		return 12 // UNIMPLEMENTED
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return 14 // UNAVAILABLE
	}
	return 2 // UNKNOWN
}
