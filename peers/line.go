package peers

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

const (
	// A connection on which nothing comes while a call is out is looked at after
	// pingAfter, the least that gRPC allows, so that one to a machine that has vanished is not kept.
	pingAfter = 10 * time.Second
	pingWait  = 3 * time.Second
	// A peer that starts should be found within a second or two.
	leastRedial = 100 * time.Millisecond
	mostRedial  = 2 * time.Second
)

// errGone is told to calls for a peer that has left meanwhile.
var errGone = errors.New("the replica has left")

// dialOptions are those of all peers.
func (r *Router) dialOptions() []grpc.DialOption {
	secure := r.cfg.Secure
	if secure == nil {
		secure = insecure.NewCredentials()
	}
	return append([]grpc.DialOption{
		grpc.WithTransportCredentials(secure),
		grpc.WithNoProxy(),              // peers are near, and what they say is not for others
		grpc.WithDisableServiceConfig(), // it could have calls retried, which sentMark relies on
		grpc.WithStatsHandler(sentMarker{}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingWait}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: leastRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: mostRedial},
			MinConnectTimeout: r.cfg.CallFor,
		}),
	}, r.cfg.DialOptions...)
}

// A line is the connection to a peer, made when it is first needed. It is safe for
// concurrent use.
type line struct {
	options []grpc.DialOption

	mu      sync.Mutex
	address string           // guarded by mu, as all below
	conn    *grpc.ClientConn // nil: not made yet
	closed  bool
}

// get returns the connection, which may not be up.
func (l *line) get() (*grpc.ClientConn, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, errGone
	}
	if l.conn == nil {
		// One process is meant, so nothing is balanced; names are looked up at each dial.
		conn, err := grpc.NewClient("passthrough:///"+l.address, l.options...)
		if err != nil {
			return nil, err
		}
		l.conn = conn
	}
	return l.conn, nil
}

// ready returns the connection once it is up. If it is not after limit, or ctx ends, it
// returns false, and nothing was sent. One that cannot be made is returned all the same: a
// call fails at once and tells why.
func (l *line) ready(ctx context.Context, limit time.Duration) (*grpc.ClientConn, bool) {
	conn, err := l.get()
	if err != nil {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		state := conn.GetState()
		switch state {
		case connectivity.Ready:
			return conn, true
		case connectivity.Idle:
			conn.Connect()
		case connectivity.Shutdown:
			return nil, false
		case connectivity.Connecting, connectivity.TransientFailure:
		}
		if !conn.WaitForStateChange(ctx, state) {
			return conn, state == connectivity.TransientFailure
		}
	}
}

// move tells the address. Calls under way to another one fail.
func (l *line) move(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.address == address {
		return
	}
	l.address = address
	l.drop()
}

func (l *line) where() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.address
}

// close ends the connection for good.
func (l *line) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.drop()
}

// drop closes the connection. The caller holds the lock.
func (l *line) drop() {
	if l.conn != nil {
		_ = l.conn.Close() // it only says that it was closed before
		l.conn = nil
	}
}

// name writes a process as others show it.
func name(process uint64) string {
	const digits = 16
	s := strconv.FormatUint(process, 16)
	for len(s) < digits {
		s = "0" + s
	}
	return s
}
