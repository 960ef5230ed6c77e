// Package embedded runs an etcd inside the process: the store of an installation
// with one machine. Only commands and tests import it.
//
// It listens on one loopback address or unix socket, so that plain etcdctl works, and
// opens no port for peers.
package embedded

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"go.etcd.io/bbolt"
	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.uber.org/zap/zapcore"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/internal/zaplog"
)

// ErrInUse tells that another process runs on the data directory.
var ErrInUse = errors.New("data directory is in use")

// Config tells where an embedded etcd keeps its data and listens.
type Config struct {
	Dir string // made if absent, readable by its owner alone
	// ClientURL is the host:port that etcdctl reaches it at; port 0 takes a
	// free one.
	ClientURL string
	// Listener is where etcdctl reaches it in place of ClientURL, if it is not nil: the
	// etcd of a unix socket, whose caller says who may connect. It is closed by Close, and
	// if Start fails. gRPC alone is served there.
	Listener net.Listener
	Log      zerolog.Logger

	space func(dir string) (space, error) // nil: the file system's
}

// address returns where etcd is reached, as a client is told.
func (c Config) address() string {
	switch {
	case c.Listener == nil:
		return c.ClientURL
	case c.Listener.Addr().Network() == "unix":
		return "unix://" + c.Listener.Addr().String()
	}
	return c.Listener.Addr().String()
}

// A Server is a running etcd.
type Server struct {
	etcd   *embed.Etcd
	client *clientv3.Client
	log    *zaplog.Core
	lock   *os.File
	grpc   atomic.Pointer[grpc.Server] // of clients in other processes; etcd sets it on ClientURL
	at     string                      // where it is reached, if it listens

	listener net.Listener  // nil: etcd listens on ClientURL
	served   chan struct{} // closed when nobody serves listener any more; nil: nobody ever did

	unwatch func() // ends the watch of the disk; nil: there is none

	close sync.Once
}

// Start starts an etcd and returns when it is ready, with the epoch set.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	lock, err := lockDir(cfg.Dir)
	if err != nil {
		if cfg.Listener != nil {
			_ = cfg.Listener.Close()
		}
		return nil, err
	}
	// A new store has nothing on disk yet when etcd first looks for the version
	// of its storage. It looks again.
	s := &Server{log: zaplog.New(cfg.Log, zapcore.ErrorLevel, "failed to update storage version"), lock: lock, listener: cfg.Listener}
	if err := s.start(ctx, cfg); err != nil {
		s.Close()
		return nil, fmt.Errorf("start etcd on %s in %s: %w", cfg.address(), cfg.Dir, err)
	}
	return s, nil
}

// lockDir makes dir, and makes sure that no other process runs on it. etcd itself would
// wait for the other one without a word.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	//nolint:gosec // a file descriptor fits into an int
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("%s: %w by another process; stop it, or choose another directory", dir, ErrInUse)
		}
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	return f, nil
}

func (s *Server) start(ctx context.Context, cfg Config) error {
	ec, err := s.config(cfg)
	if err != nil {
		return err
	}
	if err := checkFiles(ec.Dir); err != nil {
		return err
	}
	if s.etcd, err = embed.StartEtcd(ec); err != nil {
		return err
	}
	select {
	case <-s.etcd.Server.ReadyNotify():
	case err := <-s.etcd.Err():
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
	s.client = v3client.New(s.etcd.Server)
	if err := s.clearNoSpace(ctx); err != nil {
		return err
	}
	if _, err = store.EnsureEpoch(ctx, s.client); err != nil {
		return err
	}
	s.serve(ec, cfg.address())
	s.watchDisk(context.WithoutCancel(ctx), ec.Dir, cfg)
	return nil
}

// watchDisk begins to watch the disk, until Close.
func (s *Server) watchDisk(ctx context.Context, dir string, cfg Config) {
	d := &disk{server: s, dir: dir, log: cfg.Log, look: cfg.space}
	if d.look == nil {
		d.look = spaceOf
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); d.watch(ctx) }()
	s.unwatch = func() { cancel(); <-done }
}

// remedy is what helps where files of etcd are lost or spoilt.
const remedy = "put the whole folder back from a backup, or move it away to begin with an empty store"

// checkFiles tells of a folder that etcd would wait on for ever, which has its database
// without the log that belongs to it, and of a database that is none.
func checkFiles(dir string) error {
	db, log := filepath.Join(dir, "member", "snap", "db"), filepath.Join(dir, "member", "wal")
	if _, err := os.Stat(db); errors.Is(err, os.ErrNotExist) {
		return nil // a new store, or a log alone, of which etcd tells
	}
	if _, err := os.Stat(log); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("its log %s is gone while its database is there: %s", log, remedy)
	}
	return checkDatabase(db)
}

// checkDatabase tells of a database that etcd would panic at as it opens it. What lies
// deeper in it is not looked at.
func checkDatabase(path string) (err error) {
	defer func() {
		if what := recover(); what != nil {
			err = fmt.Errorf("its database %s cannot be read: %v: %s", path, what, remedy)
		}
	}()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true, Timeout: time.Second})
	if err != nil {
		return fmt.Errorf("its database %s cannot be read: %w: %s", path, err, remedy)
	}
	return db.Close()
}

// serve answers clients of other processes. On ClientURL etcd does so by itself.
func (s *Server) serve(ec *embed.Config, at string) {
	if s.listener == nil {
		s.at = s.etcd.Clients[0].Addr().String()
		return
	}
	s.at = at
	g := v3rpc.Server(s.etcd.Server, nil, nil, // as etcd itself does it
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: ec.GRPCKeepAliveMinTime}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: ec.GRPCKeepAliveInterval, Timeout: ec.GRPCKeepAliveTimeout}))
	s.grpc.Store(g)
	s.served = make(chan struct{})
	go func() {
		defer close(s.served)
		_ = g.Serve(s.listener) // it ends with Close alone
	}()
}

// quotaBytes is the size of the database at which etcd stops taking writes. Its
// default of 2 GiB is near when thousands of leases a second are granted; 8 GiB
// is the most that etcd's authors suggest.
const quotaBytes = 8 << 30

func (s *Server) config(cfg Config) (*embed.Config, error) {
	listen, advertise, err := clientURLs(cfg)
	if err != nil {
		return nil, err
	}
	// Nobody listens here; etcd wants a name for itself all the same.
	peer := url.URL{Scheme: "http", Host: "127.0.0.1:2380"}

	c := embed.NewConfig()
	c.Name, c.Dir = "mete", filepath.Join(cfg.Dir, "etcd")
	c.ListenPeerUrls, c.AdvertisePeerUrls = nil, []url.URL{peer}
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	c.ListenClientUrls, c.AdvertiseClientUrls = listen, advertise
	// A JSON gateway on loopback can be reached by any web page (DNS rebinding).
	c.EnableGRPCGateway = false
	// One member elects itself; 0.1 to 1.1 s of waiting with the defaults.
	c.TickMs, c.ElectionMs = 20, 200
	c.AutoCompactionMode, c.AutoCompactionRetention = "periodic", "1m"
	c.QuotaBackendBytes = quotaBytes
	// Batches make large raft entries, and the log is kept in memory.
	c.SnapshotCount, c.SnapshotCatchUpEntries = 2000, 1000
	c.BootstrapDefragThresholdMegabytes = 100
	c.LogLevel = "error"
	c.ServiceRegister = s.grpc.Store
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(s.log.Logger())
	return c, nil
}

// clientURLs returns what etcd itself listens on, and what it says of itself.
func clientURLs(cfg Config) (listen, advertise []url.URL, err error) {
	if cfg.Listener != nil {
		return nil, []url.URL{{Scheme: "unix", Path: cfg.Listener.Addr().String()}}, nil
	}
	host, port, err := net.SplitHostPort(cfg.ClientURL)
	if err != nil {
		return nil, nil, err
	}
	client := []url.URL{{Scheme: "http", Host: net.JoinHostPort(host, port)}}
	return client, client, nil
}

// clearNoSpace ends an alarm of an earlier run: etcd never does so by itself,
// and with it set every write fails.
func (s *Server) clearNoSpace(ctx context.Context) error {
	if s.etcd.Server.Backend().Size() >= quotaBytes {
		return nil
	}
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return fmt.Errorf("list alarms: %w", err)
	}
	for _, a := range alarms.Alarms {
		if a.Alarm != etcdserverpb.AlarmType_NOSPACE {
			continue
		}
		if _, err := s.client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(a)); err != nil {
			return fmt.Errorf("clear alarm: %w", err)
		}
	}
	return nil
}

// Client returns the in-process client. It is closed by Close.
func (s *Server) Client() *clientv3.Client { return s.client }

// Endpoint returns the host:port, or unix:///path, that clients of other processes reach
// the server at.
func (s *Server) Endpoint() string { return s.at }

// Err tells when the server ends by a fault of its own.
func (s *Server) Err() <-chan error { return s.etcd.Err() }

// Close stops the server. It is safe to repeat. Watches of other processes are
// cut.
func (s *Server) Close() {
	s.close.Do(func() {
		// Every stop logs its closed connections as errors.
		s.log.Raise(zapcore.FatalLevel)
		if s.unwatch != nil {
			s.unwatch()
		}
		if s.client != nil {
			_ = s.client.Close()
		}
		s.refuse()
		if s.etcd != nil {
			s.stop()
		}
		_ = s.lock.Close()
	})
}

// refuse closes the listener, and the connections that came by it.
func (s *Server) refuse() {
	if s.served != nil {
		s.grpc.Load().Stop()
		<-s.served
	}
	if s.listener != nil {
		_ = s.listener.Close()
	}
}

// patience is how long requests of other processes may take to end by themselves.
// Their watches never do, and etcd would wait more than 5 s for them.
const patience = 100 * time.Millisecond

func (s *Server) stop() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.etcd.Close()
	}()
	select {
	case <-done:
		return
	case <-time.After(patience):
	}
	if g := s.grpc.Load(); g != nil {
		g.Stop()
	}
	<-done
}
