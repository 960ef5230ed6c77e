package rig_test

import (
	"context"
	"net"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/meteproject/mete/test/rig"
)

// decides answers every check with its path.
type decides struct {
	authv3.UnimplementedAuthorizationServer
}

func (decides) Check(_ context.Context, r *authv3.CheckRequest) (*authv3.CheckResponse, error) {
	path := structpb.NewStringValue(r.GetAttributes().GetRequest().GetHttp().GetPath())
	return &authv3.CheckResponse{DynamicMetadata: &structpb.Struct{Fields: map[string]*structpb.Value{"path": path}}}, nil
}

// proxied starts a server of checks and a proxy before it.
func proxied(t *testing.T) (*rig.CheckProxy, authv3.AuthorizationClient) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	authv3.RegisterAuthorizationServer(server, decides{})
	go func() { _ = server.Serve(listener) }()
	p, err := rig.StartCheckProxy(context.Background(), listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := grpc.NewClient(p.Address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
		server.Stop()
	})
	return p, authv3.NewAuthorizationClient(conn)
}

func question(check, id string) *authv3.CheckRequest {
	return &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{
		Http: &authv3.AttributeContext_HttpRequest{Path: "/asked", Headers: map[string]string{rig.TestCheck: check, rig.TestID: id}},
	}}}
}

// A CheckProxy passes questions and answers on, and fails those that ask for it.
func TestCheckProxy(t *testing.T) {
	t.Parallel()
	_, client := proxied(t)
	for _, row := range []struct {
		check string
		want  []codes.Code // of one question after another
	}{
		{"", []codes.Code{codes.OK}},
		{rig.CheckUnavailable, []codes.Code{codes.Unavailable}},
		{rig.CheckUnavailableTwice, []codes.Code{codes.Unavailable, codes.Unavailable, codes.OK}},
		{rig.CheckInternal, []codes.Code{codes.Internal}},
	} {
		for i, want := range row.want {
			r, err := client.Check(within(t), question(row.check, row.check))
			if status.Code(err) != want {
				t.Errorf("%q, question %d: %v, want %v", row.check, i, err, want)
			}
			if path := r.GetDynamicMetadata().GetFields()["path"].GetStringValue(); want == codes.OK && path != "/asked" {
				t.Errorf("%q: the answer tells of %q, want what was asked", row.check, path)
			}
		}
	}
	if r, err := client.Check(within(t), question(rig.CheckTrouble, "trouble")); err != nil || r.GetErrorResponse() == nil {
		t.Errorf("%q: %v, %v; want an error_response", rig.CheckTrouble, r, err)
	}
}

// An answer that is held back is held until the caller gives up, and the test knows
// when it is.
func TestCheckProxy_HoldsBack(t *testing.T) {
	t.Parallel()
	p, client := proxied(t)
	for _, check := range []string{rig.CheckLost, rig.CheckLate} {
		ctx, leave := context.WithCancel(within(t))
		go func() {
			if err := p.Meetings.Arrived(ctx, check); err != nil {
				t.Error(err)
			}
			leave()
		}()
		if _, err := client.Check(ctx, question(check, check)); status.Code(err) != codes.Canceled {
			t.Errorf("%q: %v, want that the caller gave up", check, err)
		}
	}
}
