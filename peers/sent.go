package peers

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// A sentMark tells of one call whether its message may have reached the peer. gRPC's errors
// do not: a call that finds its connection gone fails like one whose answer was lost.
type sentMark struct{ sent atomic.Bool }

type sentKey struct{}

// marked returns a context whose call sets the mark.
func marked(ctx context.Context) (context.Context, *sentMark) {
	m := new(sentMark)
	return context.WithValue(ctx, sentKey{}, m), m
}

// sentMarker sets the marks of calls.
type sentMarker struct{}

var _ stats.Handler = sentMarker{}

// HandleRPC implements [stats.Handler]. gRPC begins a call again by itself only if the peer
// has said that it did not look at it, as one that stops does.
func (sentMarker) HandleRPC(ctx context.Context, s stats.RPCStats) {
	m, ok := ctx.Value(sentKey{}).(*sentMark)
	if !ok {
		return
	}
	switch s.(type) {
	case *stats.Begin:
		m.sent.Store(false)
	case *stats.OutPayload:
		m.sent.Store(true)
	}
}

// TagRPC implements [stats.Handler].
func (sentMarker) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn implements [stats.Handler].
func (sentMarker) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn implements [stats.Handler].
func (sentMarker) HandleConn(context.Context, stats.ConnStats) {}
