package envoy

import (
	"compress/gzip"
	"fmt"
	"io"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // the codec for all messages that are not ours
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
)

// A message is one of ours: it reads itself from the wire. It holds on to the
// buffer until it is released and keeps its own error, which the handler turns
// into InvalidArgument; an error from a codec would be Internal.
type message interface{ read(data mem.Buffer) }

// An answered message is finished wire bytes. gRPC owns them once they are
// marshalled.
type answered []byte

// codec reads and writes our messages and leaves the others to stock protobuf.
type codec struct {
	stock   encoding.CodecV2
	buffers *buffers
}

func newCodec(b *buffers) codec { return codec{encoding.GetCodecV2("proto"), b} }

// Name returns the name of the codec in content types.
func (codec) Name() string { return "proto" }

// Marshal returns the wire form of v.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if a, ok := v.(*answered); ok {
		return mem.BufferSlice{mem.NewBuffer((*[]byte)(a), c.buffers)}, nil
	}
	out, err := c.stock.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("marshal %T: %w", v, err)
	}
	return out, nil
}

// Unmarshal reads v.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if m, ok := v.(message); ok {
		// One buffer, as nearly always, is not copied.
		m.read(data.MaterializeToBuffer(mem.DefaultBufferPool()))
		return nil
	}
	if n := data.Len(); n > mostStock {
		return fmt.Errorf("unmarshal %T: a message of %d bytes is larger than %d, which is the most for this service", v, n, mostStock)
	}
	if err := c.stock.Unmarshal(data, v); err != nil {
		return fmt.Errorf("unmarshal %T: %w", v, err)
	}
	return nil
}

// mostStock bounds messages of other services than Envoy's. They are read into structures
// that take many times their size.
const mostStock = 4 << 20

// boundedGzip decompresses messages. A kilobyte of it may stand for a megabyte, so that there
// is a bound of its own: Envoy compresses nothing, and what apps send is small.
type boundedGzip struct{}

const mostDecompressed = 4 << 20

// Do implements [grpc.Decompressor].
func (boundedGzip) Do(r io.Reader) ([]byte, error) {
	plain, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("decompress a message: %w", err)
	}
	out, err := io.ReadAll(io.LimitReader(plain, mostDecompressed+1))
	if err != nil {
		return nil, fmt.Errorf("decompress a message: %w", err)
	}
	if len(out) > mostDecompressed {
		return nil, status.Errorf(codes.ResourceExhausted, "decompress a message: it is larger than %d bytes, which is the most for compressed ones", mostDecompressed)
	}
	return out, nil
}

// Type implements [grpc.Decompressor].
func (boundedGzip) Type() string { return "gzip" }

// buffers keeps the buffers that answers are written to.
type buffers struct{ pool sync.Pool }

const (
	// Buffers of 1 KiB and less are not given back by gRPC, so ours are larger.
	leastBuffer = 4 << 10
	// A larger buffer is left to the garbage collector.
	mostBuffer = 64 << 10
)

// Get returns an empty buffer with room for at least n bytes.
func (p *buffers) Get(n int) *[]byte {
	if b, ok := p.pool.Get().(*[]byte); ok && cap(*b) >= n {
		*b = (*b)[:0]
		return b
	}
	b := make([]byte, 0, max(n, leastBuffer))
	return &b
}

// Put takes a buffer back.
func (p *buffers) Put(b *[]byte) {
	if cap(*b) >= leastBuffer && cap(*b) <= mostBuffer {
		p.pool.Put(b)
	}
}
