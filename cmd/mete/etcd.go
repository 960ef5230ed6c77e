package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// listenEtcd opens the unix socket of the embedded etcd, for this user alone, and its folder
// where there is none. It returns nil where etcd listens by itself, or is elsewhere.
func listenEtcd(ctx context.Context, c config) (net.Listener, error) {
	path, ok := socketPath(c.EtcdListen)
	if !ok || len(c.EtcdEndpoints) > 0 {
		return nil, nil //nolint:nilnil // no listener is an answer
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("etcd-listen: make the folder of the socket: %w", err)
	}
	l, err := listenSocket(ctx, path, etcdSocketMode)
	if err != nil {
		return nil, fmt.Errorf("etcd-listen: %w", err)
	}
	return l, nil
}

// startEtcd starts the embedded etcd, on l if it is not nil. It ends when ctx does, or by a
// fault.
func startEtcd(ctx context.Context, c config, l net.Listener, log zerolog.Logger) (*embedded.Server, error) {
	if l == nil {
		log.Warn().Str("etcd-listen", c.EtcdListen).Msg("the embedded etcd has no password: everyone on this machine, in any container of a pod too, can read and change everything in it, " +
			"keys that seal reservations included; an etcd-listen such as unix:///path, in data-dir say, keeps all but this user out")
	}
	return embedded.Start(ctx, embedded.Config{Dir: c.DataDir, ClientURL: c.EtcdListen, Listener: l, Log: log})
}

// runEtcd waits for ctx, then closes the embedded etcd.
func runEtcd(ctx context.Context, s *embedded.Server) error {
	defer s.Close()
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.Err():
		return err
	}
}

// connectEtcd returns the cluster that the settings name. It does not wait for it.
func connectEtcd(c config, log zerolog.Logger) (*store.Cluster, *clientPair, error) {
	cfg := store.Config{Endpoints: c.EtcdEndpoints, User: c.EtcdUser, Log: log}
	if c.EtcdPasswordFile != "" {
		text, err := os.ReadFile(c.EtcdPasswordFile)
		if err != nil {
			return nil, nil, fmt.Errorf("read etcd-password-file: %w", err)
		}
		cfg.Password = strings.TrimRight(string(text), "\r\n")
	}
	pair, err := etcdTLS(c, &cfg)
	if err != nil {
		return nil, nil, err
	}
	cluster, err := store.NewCluster(cfg)
	return cluster, pair, err
}

// etcdTLS sets cfg's TLS. The pair is nil without a client certificate.
func etcdTLS(c config, cfg *store.Config) (*clientPair, error) {
	if !strings.HasPrefix(c.EtcdEndpoints[0], "https://") {
		return nil, nil //nolint:nilnil // check lets no mixture through
	}
	cfg.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	if c.EtcdCA != "" {
		text, err := os.ReadFile(c.EtcdCA)
		if err != nil {
			return nil, fmt.Errorf("read etcd-ca: %w", err)
		}
		if cfg.TLS.RootCAs, _, err = authorities(text); err != nil {
			return nil, fmt.Errorf("read etcd-ca: %s: %w", c.EtcdCA, err)
		}
	}
	if c.EtcdCert == "" {
		return nil, nil //nolint:nilnil // no client certificate is an answer
	}
	pair := &clientPair{cert: c.EtcdCert, key: c.EtcdKey}
	if err := pair.read(); err != nil {
		return nil, fmt.Errorf("read etcd-cert and etcd-key: %w", err)
	}
	cfg.TLS.GetClientCertificate = pair.get
	return pair, nil
}

// A clientPair is a client certificate that is reread for each connection. A bad
// one is passed over for the last good one.
type clientPair struct {
	cert, key string
	last      atomic.Pointer[tls.Certificate]
}

func (p *clientPair) read() error {
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if err == nil {
		p.last.Store(&pair)
	}
	return err
}

func (p *clientPair) get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	_ = p.read()
	return p.last.Load(), nil
}

// notAfter returns when the certificate in use ends; false without one.
func (p *clientPair) notAfter() (time.Time, bool) {
	if p == nil {
		return time.Time{}, false
	}
	return p.last.Load().Leaf.NotAfter, true
}

// checkEtcd asks all endpoints for their versions, as often as it takes: a cluster that
// is away is no reason not to start. Then it is known how operations may travel.
func (m *mete) checkEtcd(ctx context.Context) error {
	for wait := time.Second; ; wait = min(2*wait, time.Minute) {
		found, err := checkVersions(ctx, m.etcd, m.log)
		batching := m.batching(found)
		m.accounts.SetBatching(batching)
		if err == nil {
			m.log.Info().Stringer("batching", batching).Msg("etcd's versions are known")
			<-ctx.Done()
			return nil
		}
		if ctx.Err() == nil {
			m.log.Warn().Err(err).Msg("etcd does not answer yet; trying again")
		}
		if !pause(ctx, wait) {
			return nil
		}
	}
}

// checkVersions gives each endpoint 5 s of its own: one may hang.
func checkVersions(ctx context.Context, cluster *store.Cluster, log zerolog.Logger) (store.Batching, error) {
	var errs []error
	batching := store.Nested
	for _, client := range cluster.Clients() {
		one, cancel := context.WithTimeout(ctx, 5*time.Second)
		found, err := store.CheckBatching(one, log, client)
		cancel()
		batching = min(batching, found)
		errs = append(errs, err)
	}
	return batching, errors.Join(errs...)
}
