package rig

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	rpcstatus "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// TestCheck is the request header that has a CheckProxy fail: see the Check
// constants. Envoy must pass it and TestID on.
const TestCheck = "x-test-check"

// How a CheckProxy can fail. Without a TestCheck it passes question and answer on.
const (
	CheckUnavailable      = "unavailable"       // UNAVAILABLE, without asking mete
	CheckUnavailableTwice = "unavailable-twice" // that to the first two questions with this TestID
	CheckInternal         = "internal"          // INTERNAL, without asking mete
	CheckTrouble          = "trouble"           // an error_response of 502, without asking mete
	CheckLost             = "lost"              // no answer, and the question does not reach mete
	CheckLate             = "late"              // mete answers, and the answer does not reach Envoy
)

// A CheckProxy stands between Envoy and a mete and passes on what they say, byte by
// byte: a mete that is down, slow or far away, for the requests that ask for it.
type CheckProxy struct {
	Address string
	// Meetings arrive when mete has been asked as far as it will be: for CheckLost
	// when the question is here, for CheckLate when mete has answered.
	Meetings Meetings

	server *grpc.Server
	mete   *grpc.ClientConn
	mu     sync.Mutex
	asked  map[string]int // by TestID; guarded by mu
}

// StartCheckProxy serves on a free port of the loopback, in front of the mete at
// an address. The caller must Stop it.
func StartCheckProxy(ctx context.Context, mete string) (*CheckProxy, error) {
	conn, err := grpc.NewClient(mete, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	p := &CheckProxy{Address: listener.Addr().String(), mete: conn, asked: map[string]int{}}
	p.server = grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}), grpc.UnknownServiceHandler(p.serve))
	go func() { _ = p.server.Serve(listener) }() // ends with Stop
	return p, nil
}

// Stop ends the proxy and the calls in it.
func (p *CheckProxy) Stop() error {
	p.server.Stop()
	return p.mete.Close()
}

// serve is every method. All that comes here is unary.
func (p *CheckProxy) serve(_ any, stream grpc.ServerStream) error {
	method, _ := grpc.MethodFromServerStream(stream)
	var question, answer []byte
	if err := stream.RecvMsg(&question); err != nil {
		return err
	}
	answer, err := p.answer(stream.Context(), method, question)
	if err != nil {
		return err
	}
	return stream.SendMsg(&answer)
}

func (p *CheckProxy) answer(ctx context.Context, method string, question []byte) ([]byte, error) {
	var check authv3.CheckRequest
	if err := proto.Unmarshal(question, &check); err != nil {
		return nil, status.Error(codes.InvalidArgument, err.Error())
	}
	headers := headersOf(check.GetAttributes().GetRequest().GetHttp())
	id := headers[TestID]
	nth := p.count(id)
	switch headers[TestCheck] {
	case CheckUnavailable:
		return nil, status.Error(codes.Unavailable, "as the test wants it")
	case CheckUnavailableTwice:
		if nth <= 2 {
			return nil, status.Error(codes.Unavailable, "as the test wants it")
		}
	case CheckInternal:
		return nil, status.Error(codes.Internal, "as the test wants it")
	case CheckTrouble:
		return trouble()
	case CheckLost:
		p.Meetings.Arrive(id)
		<-ctx.Done()
		return nil, ctx.Err()
	case CheckLate:
		_, err := p.ask(ctx, method, question)
		p.Meetings.Arrive(id)
		<-ctx.Done()
		return nil, errors.Join(err, ctx.Err())
	}
	return p.ask(ctx, method, question)
}

func (p *CheckProxy) ask(ctx context.Context, method string, question []byte) ([]byte, error) {
	var answer []byte
	err := p.mete.Invoke(ctx, method, &question, &answer, grpc.ForceCodec(bytesCodec{}))
	return answer, err
}

// count tells the how manieth question of a request this is.
func (p *CheckProxy) count(id string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked[id]++
	return p.asked[id]
}

// trouble is what a check answers that could not decide, and says how to answer the
// caller for it.
func trouble() ([]byte, error) {
	return proto.Marshal(&authv3.CheckResponse{
		Status: &rpcstatus.Status{Code: int32(codes.Internal)},
		HttpResponse: &authv3.CheckResponse_ErrorResponse{ErrorResponse: &authv3.DeniedHttpResponse{
			Status:  &typev3.HttpStatus{Code: typev3.StatusCode_BadGateway},
			Headers: []*corev3.HeaderValueOption{},
			Body:    "trouble",
		}},
	})
}

// bytesCodec hands messages over as they are.
type bytesCodec struct{}

func (bytesCodec) Name() string { return "proto" }

func (bytesCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.(*[]byte)
	if !ok {
		return nil, fmt.Errorf("%T is not *[]byte", v)
	}
	return *b, nil
}

func (bytesCodec) Unmarshal(data []byte, v any) error {
	b, ok := v.(*[]byte)
	if !ok {
		return fmt.Errorf("%T is not *[]byte", v)
	}
	*b = append([]byte(nil), data...)
	return nil
}

// headersOf returns the headers of a request in either form that Envoy sends them in.
func headersOf(req *authv3.AttributeContext_HttpRequest) map[string]string {
	all := maps.Clone(req.GetHeaders())
	if all == nil {
		all = map[string]string{}
	}
	for _, h := range req.GetHeaderMap().GetHeaders() {
		all[h.GetKey()] = string(h.GetRawValue())
	}
	return all
}
