package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	stdlog "log"
	"net"
	"net/http"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

const (
	// gracefulFor is how long requests under way are waited for at a stop. None
	// takes a second; with the rest of a stop it must fit into the 30 s that
	// Kubernetes grants.
	gracefulFor = 10 * time.Second
	// httpGracefulFor is the same for the short answers of the HTTP listeners.
	httpGracefulFor = 2 * time.Second
)

// listen opens a listener at once, so that an address that is taken ends the
// start rather than the first request.
func listen(ctx context.Context, name, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

// serveHTTP answers on l until ctx is done; secure may be nil.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, secure *tls.Config, log zerolog.Logger) error {
	srv := &http.Server{
		Handler:           h,
		TLSConfig:         secure,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          stdlog.New(debugWriter{log}, "", 0),
	}
	ended := make(chan error, 1)
	go func() {
		if secure != nil {
			ended <- srv.ServeTLS(l, "", "")
			return
		}
		ended <- srv.Serve(l)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpGracefulFor)
	defer cancel()
	if srv.Shutdown(grace) != nil {
		_ = srv.Close()
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// debugWriter logs what net/http complains of: callers' faults, nearly always.
type debugWriter struct{ log zerolog.Logger }

func (w debugWriter) Write(line []byte) (int, error) {
	w.log.Debug().Str("text", string(line)).Msg("HTTP connection failed")
	return len(line), nil
}

// endWatches ends health watches once closing is closed: they never end by
// themselves, and a graceful stop waits for all streams.
func endWatches(closing <-chan struct{}) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if info.FullMethod != grpc_health_v1.Health_Watch_FullMethodName {
			return handle(srv, stream)
		}
		ctx, cancel := context.WithCancel(stream.Context())
		defer cancel()
		ended := make(chan struct{})
		defer func() { <-ended }()
		defer cancel()
		go func() {
			defer close(ended)
			select {
			case <-closing:
				cancel()
			case <-ctx.Done():
			}
		}()
		return handle(srv, watch{stream, ctx})
	}
}

// watch is a stream that ends with ctx.
type watch struct {
	grpc.ServerStream
	ctx context.Context //nolint:containedctx // it is the stream's own
}

// Context implements [grpc.ServerStream].
func (w watch) Context() context.Context { return w.ctx }

// grpcServer is a server of envoy's, or a bare one in tests.
type grpcServer interface {
	Serve(l net.Listener) error
	GracefulStop()
	Stop()
}

// serveGRPC answers on l until ctx is done, then calls closing and lets calls under
// way end.
func serveGRPC(ctx context.Context, l net.Listener, srv grpcServer, closing func(), log zerolog.Logger) error {
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	closing()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		srv.GracefulStop()
	}()
	timer := time.NewTimer(gracefulFor)
	defer timer.Stop()
	select {
	case <-stopped:
	case <-timer.C:
		log.Warn().Dur("after", gracefulFor).Msg("calls under way are cut off")
		srv.Stop()
		<-stopped
	}
	return <-ended
}
