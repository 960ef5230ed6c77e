package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/ledger"
	"github.com/meteproject/mete/peers"
	"github.com/meteproject/mete/store"
)

// assembleSettlement makes the parts that settle requests once they have ended.
func (m *mete) assembleSettlement() error {
	m.seals = store.NewSeals(m.etcd)
	m.seals.Log = m.log
	m.seals.OnKeys = func(sign store.SealKey, all []store.SealKey) {
		keys := make([]authz.SealKey, len(all))
		for i, k := range all {
			keys[i] = authz.SealKey(k)
		}
		m.decider.SetSeals(authz.SealKey(sign), keys)
	}
	secure, err := m.secure.peerConfig(m.cfg.config)
	if err != nil {
		return err
	}
	m.router = peers.New(peers.Config{Decider: m.decider, Process: m.process, Now: time.Now, Log: m.log, TLS: secure})
	return nil
}

// peerConfig returns the configuration of calls to other replicas, whose listeners are
// like this one's. It is nil without TLS.
func (t *serverTLS) peerConfig(c config) (*tls.Config, error) {
	if t == nil {
		return nil, nil //nolint:nilnil // no TLS is an answer
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.PeerName}
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		return &t.inForce.Load().config.Certificates[0], nil
	}
	file := c.PeerCA
	if file == "" {
		file = c.TLSClientCA
	}
	if file == "" {
		return conf, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the authority of other replicas: %w", err)
	}
	if conf.RootCAs, _, err = authorities(text); err != nil {
		return nil, fmt.Errorf("read the authority of other replicas: %s: %w", file, err)
	}
	return conf, nil
}

// advertised returns the address at which other replicas reach this one.
func (m *mete) advertised() string {
	if m.cfg.AdvertiseAddress != "" {
		return m.cfg.AdvertiseAddress
	}
	host, port, err := net.SplitHostPort(m.inUse.GRPC)
	if err != nil {
		return m.inUse.GRPC
	}
	if ip := net.ParseIP(host); ip != nil && !ip.IsUnspecified() {
		return m.inUse.GRPC
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return m.inUse.GRPC
	}
	for _, a := range addrs {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
			return net.JoinHostPort(n.IP.String(), port)
		}
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// startEvents opens the file of usage events, if the settings name one.
func (m *mete) startEvents(ctx context.Context, _ process) (err error) {
	if m.cfg.UsageEvents == "" {
		return nil
	}
	m.events, err = ledger.NewEvents(ledger.Config{
		Path: m.cfg.UsageEvents, Source: "mete/" + m.cfg.Name, Process: m.process, Now: time.Now, Log: m.log,
	})
	if err != nil {
		return err
	}
	m.parts.atStop(ctx, "file of usage events", m.events.Close)
	m.parts.start(ctx, "usage events", m.events.Run)
	hup := m.hangup()
	m.parts.start(ctx, "rotation of usage events", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hup:
				if err := m.events.Reopen(); err != nil {
					m.log.Error().Err(err).Msg("usage events go on to the old file")
				}
			}
		}
	})
	return nil
}

// tellsUse returns what notes use for the usage events; nil: nothing does.
func (m *mete) tellsUse() func(*authz.Use) {
	if m.events == nil {
		return nil
	}
	return func(u *authz.Use) {
		use := ledger.Use{
			At: u.At, App: u.App, Tenant: u.Tenant, Limit: u.Limit, Unit: u.Unit, Window: u.Window,
			Class: u.Class, Principal: u.Principal, Route: u.Route, Attribution: u.Attribution,
			Outcome: ledger.Counted, Units: u.Units,
		}
		if u.Units < 0 {
			use.Outcome, use.Units = ledger.Refunded, -u.Units
		}
		m.events.Add(&use)
	}
}

// hangup returns a channel that gets each SIGHUP, for one more part that rereads
// something.
func (m *mete) hangup() <-chan os.Signal {
	ch := make(chan os.Signal, 1)
	m.hangups = append(m.hangups, ch)
	return ch
}

// startHangups hands each SIGHUP to all who asked for it.
func (m *mete) startHangups(ctx context.Context, p process) error {
	m.parts.start(ctx, "hangups", func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case s := <-p.hup:
				for _, ch := range m.hangups {
					select {
					case ch <- s:
					default: // it has yet to see the last one
					}
				}
			}
		}
	})
	return nil
}
