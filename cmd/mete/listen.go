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

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
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
func listen(ctx context.Context, name, addr string) (l net.Listener, err error) {
	if path, ok := socketPath(addr); ok {
		l, err = listenSocket(ctx, path, socketMode)
	} else {
		l, err = new(net.ListenConfig).Listen(ctx, "tcp", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return l, nil
}

// serveHTTP answers on l until ctx is done; secure may be nil.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler, secure *tls.Config, log zerolog.Logger) error {
	l = bounded(l, webConnections())
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

// endStreams ends streams once closing is closed that never end by themselves, and for which
// a graceful stop would wait: health watches and clients of reflection. Log
// streams see to their end themselves.
func endStreams(closing <-chan struct{}) grpc.StreamServerInterceptor {
	return func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if info.FullMethod == accesslogv3.AccessLogService_StreamAccessLogs_FullMethodName {
			return handle(srv, stream)
		}
		ended := make(chan error, 1)
		go func() { ended <- handle(srv, stream) }()
		select {
		case err := <-ended:
			return err
		case <-closing:
			return grpcstatus.Error(codes.Unavailable, "this replica of mete is stopping") // ends the stream, and so what handles it
		}
	}
}

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

// servePeers answers on one more listener of srv, until the server is stopped and ctx is
// done.
func servePeers(ctx context.Context, l net.Listener, srv grpcServer) error {
	if err := srv.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	<-ctx.Done()
	return nil
}
