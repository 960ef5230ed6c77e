package rig

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/emptypb"
)

// A Stub calls methods of any name with empty messages, as an Upstream's gRPC acts
// want it, over a connection of its own.
type Stub struct{ *grpc.ClientConn }

// NewStub prepares to call address in the name of host. The caller must Close it.
func NewStub(address, host string) (Stub, error) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(host))
	return Stub{conn}, err
}

// Call calls a method, "/service/method". Headers are name, value, name, value...
func (s Stub) Call(ctx context.Context, method string, headers ...string) error {
	return s.Invoke(metadata.AppendToOutgoingContext(ctx, headers...), method, &emptypb.Empty{}, &emptypb.Empty{})
}

// Stream begins a call that is answered by any number of messages.
func (s Stub) Stream(ctx context.Context, method string, headers ...string) (Messages, error) {
	stream, err := s.NewStream(metadata.AppendToOutgoingContext(ctx, headers...), &grpc.StreamDesc{ServerStreams: true}, method)
	if err != nil {
		return Messages{}, err
	}
	if err := stream.SendMsg(&emptypb.Empty{}); err != nil {
		return Messages{}, err
	}
	return Messages{stream}, stream.CloseSend()
}

// Messages are what a call is answered by.
type Messages struct{ stream grpc.ClientStream }

// Next waits for a message; at the end it returns io.EOF or the call's status.
func (m Messages) Next() error { return m.stream.RecvMsg(&emptypb.Empty{}) }
