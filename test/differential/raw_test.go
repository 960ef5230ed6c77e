package differential_test

import (
	"context"
	"testing"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// rawCodec sends bytes as they are: the generated types refuse to make what Envoy does send.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) ([]byte, error) {
	b, ok := v.([]byte)
	if !ok {
		return proto.Marshal(v.(proto.Message))
	}
	return b, nil
}

func (rawCodec) Unmarshal(b []byte, v any) error { return proto.Unmarshal(b, v.(proto.Message)) }

// askRaw sends a message of any bytes.
func askRaw(ctx context.Context, conn *grpc.ClientConn, message []byte) (answer, error) {
	out := new(rls.RateLimitResponse)
	err := conn.Invoke(ctx, "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", message, out, grpc.ForceCodec(rawCodec{}))
	if err != nil {
		return answer{}, err
	}
	return readAnswer(out)
}

// raw is the message of a request, whatever bytes its keys and values hold.
func (r request) raw(t *testing.T) []byte {
	t.Helper()
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := marshal(&rls.RateLimitRequest{Domain: r.domain, HitsAddend: r.hits})
	for _, d := range r.descriptors {
		bare := d
		bare.entries = nil
		in := marshal(bare.wire())
		for _, e := range d.entries {
			var pair []byte
			pair = protowire.AppendTag(pair, 1, protowire.BytesType)
			pair = protowire.AppendString(pair, e.key)
			pair = protowire.AppendTag(pair, 2, protowire.BytesType)
			pair = protowire.AppendString(pair, e.value)
			in = protowire.AppendTag(in, 1, protowire.BytesType)
			in = protowire.AppendBytes(in, pair)
		}
		b = protowire.AppendTag(b, 2, protowire.BytesType)
		b = protowire.AppendBytes(b, in)
	}
	return b
}
