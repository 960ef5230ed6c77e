package admin

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"connectrpc.com/connect"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/api/mete/v1/metev1connect"
)

// Handler returns the path under which s is to be mounted, and what answers there:
// JSON and protobuf by the Connect protocol, gRPC-Web, and gRPC where the server speaks
// HTTP/2.
func Handler(s *Service) (path string, h http.Handler) {
	return metev1connect.NewQuotaServiceHandler(overHTTP{s},
		connect.WithReadMaxBytes(maxRequest),
		connect.WithCodec(strictJSON{"json"}),
		connect.WithCodec(strictJSON{"json; charset=utf-8"}),
	)
}

// overHTTP answers with errors of Connect's.
type overHTTP struct{ s *Service }

// Settle implements [metev1connect.QuotaServiceHandler].
func (h overHTTP) Settle(ctx context.Context, req *metev1.SettleRequest) (*metev1.SettleResponse, error) {
	answer, err := h.s.Settle(ctx, req)
	return answer, connectError(err)
}

// Extend implements [metev1connect.QuotaServiceHandler].
func (h overHTTP) Extend(ctx context.Context, req *metev1.ExtendRequest) (*metev1.ExtendResponse, error) {
	answer, err := h.s.Extend(ctx, req)
	return answer, connectError(err)
}

// connectError returns a gRPC status as an error of Connect's, whose codes are the
// same.
func connectError(err error) error {
	if err == nil {
		return nil
	}
	s := status.Convert(err)
	out := connect.NewError(connect.Code(s.Code()), errors.New(s.Message()))
	for _, any := range s.Proto().GetDetails() {
		if detail, err := connect.NewErrorDetail(any); err == nil {
			out.AddDetail(detail)
		}
	}
	return out
}

// strictJSON is Connect's JSON but refuses fields that are not known: where units are
// told, a misspelled field must not go unnoticed.
type strictJSON struct{ name string }

// Name implements [connect.Codec].
func (c strictJSON) Name() string { return c.name }

// Marshal implements [connect.Codec].
func (c strictJSON) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("%T is no message", v)
	}
	return protojson.Marshal(m)
}

// Unmarshal implements [connect.Codec].
func (c strictJSON) Unmarshal(data []byte, v any) error {
	m, ok := v.(proto.Message)
	switch {
	case !ok:
		return fmt.Errorf("%T is no message", v)
	case len(data) == 0:
		return errors.New("the body is empty: want a JSON object")
	}
	return protojson.Unmarshal(data, m)
}
