package envoy_test

import (
	"context"
	"net/url"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"github.com/rs/zerolog"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
)

// A gRPC-Web call of which Envoy's filter has made a gRPC one is refused with headers
// alone and 200: anything else that filter turns into UNAVAILABLE (issue 12, D2).
func TestDeniedGRPCWeb_C123_HeadersAlone(t *testing.T) {
	t.Parallel()
	d := &script{answer: func(_ context.Context, _ *authz.Request, d *authz.Decision) {
		*d = *refusal(authz.QuotaExceeded, app(), 0, monthly(t))
		d.Limits[0].Tenant = "org:größe%"
	}}
	_, conn := start(t, envoy.Options{Decider: d, Log: zerolog.Nop()})
	client := authv3.NewAuthorizationClient(conn)
	for _, tt := range []struct {
		headers map[string]string
		web     bool
	}{
		{map[string]string{"content-type": "application/grpc", "x-grpc-web": "1"}, true},
		{map[string]string{"content-type": "application/grpc+proto", "accept": "application/grpc-web-text"}, true},
		{map[string]string{"content-type": "application/grpc", "accept": "*/*"}, false},
		{map[string]string{"content-type": "application/json", "x-grpc-web": "1"}, false},
		{map[string]string{"content-type": "application/grpc"}, false}, // after a call that was gRPC-Web
	} {
		r, err := client.Check(t.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
			Http: &authv3.AttributeContext_HttpRequest{Host: "api.example.com", Headers: tt.headers},
		}}})
		no := r.GetDeniedResponse()
		if err != nil || r.GetStatus().GetCode() == 0 || (no.GetStatus().GetCode() == 200) != tt.web || (no.GetBody() == "") != tt.web || hasHeader(no.GetHeaders(), "grpc-message") != tt.web {
			t.Errorf("%v: %v, %v", tt.headers, r, err)
			continue
		}
		if !tt.web {
			continue
		}
		const want = "The monthly quota of org:größe% is used up: 1,000 of 1,000 requests. It resets on 1 January 2027 at 00:00 (Europe/Berlin)."
		got, err := url.PathUnescape(headerOf(t, no.GetHeaders(), "grpc-message"))
		if err != nil || got != want || headerOf(t, no.GetHeaders(), "grpc-status") != "8" || !hasHeader(no.GetHeaders(), "grpc-status-details-bin") {
			t.Errorf("%v: %q, %v", tt.headers, got, no)
		}
	}
}
