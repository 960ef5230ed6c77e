package envoy

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Serves reports whether a gRPC service, by its full name, is one that Envoy calls:
// who may ask may be told a reservation, and who may log may settle it.
func Serves(name string) bool {
	return name == checkService || name == limitService || name == logService
}

// permitted is what is known of a connection whose peer has shown a certificate.
type permitted struct {
	credentials.AuthInfo
	may func(service string) bool
}

// permit adds to info what the peer may call.
func (n *intake) permit(info credentials.AuthInfo) credentials.AuthInfo {
	secure, ok := info.(credentials.TLSInfo)
	if n.permits == nil || !ok {
		return info
	}
	return permitted{info, n.permits(secure.State)}
}

// tapped refuses a call of a service that the peer may not call, before anything of the call
// is read.
func (n *intake) tapped(ctx context.Context, call *tap.Info) (context.Context, error) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil, status.Error(codes.Internal, "the peer of the connection is not known")
	}
	service, _, _ := strings.Cut(strings.TrimPrefix(call.FullMethodName, "/"), "/")
	if who, ok := p.AuthInfo.(permitted); !ok || !who.may(service) {
		if n.forbidden.add(n.now()) {
			n.log.Warn().Stringer("from", p.Addr).Str("service", service[:min(len(service), maxLoggedHost)]).Uint64("refused", n.forbidden.total.Load()).
				Msg("a call was refused because no name of the client's certificate may call this service: see tls-envoy-san, tls-app-san and tls-replica-san")
		}
		return nil, status.Errorf(codes.PermissionDenied, "call %s: no name of the client's certificate is among those that may", service)
	}
	return ctx, nil
}
