package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// reread is how often files are looked at. Kubernetes swaps them behind symbolic
// links, which watches miss.
const reread = 10 * time.Second

// serverTLS is the TLS side of the listeners. Its files are reread when they
// change: new connections get the new ones, old connections live on. Files that do
// not fit together are refused and the old ones stay in force.
type serverTLS struct {
	cert, key, clientCA, peerCA string
	sans                        sanLists
	peerName                    string
	calledAs                    string // how other replicas call this one, set before Run; "": there are none
	log                         zerolog.Logger

	inForce atomic.Pointer[tlsFiles]

	// Owned by Run once newServerTLS has returned.
	seen [][]byte // the files as last read, good or bad
}

// tlsFiles is one good set of files.
type tlsFiles struct {
	config   *tls.Config
	peer     *tls.Config          // of calls to other replicas, whose listeners are like this one's
	notAfter map[string]time.Time // by use: when the first certificate of the file ends
}

// newServerTLS reads the files that the settings name, or returns nil if they
// name none. Unlike later, bad files are an error.
func newServerTLS(c config, log zerolog.Logger) (*serverTLS, error) {
	if c.TLSCert == "" {
		return nil, nil //nolint:nilnil // no TLS is an answer
	}
	t := &serverTLS{
		cert: c.TLSCert, key: c.TLSKey, clientCA: c.TLSClientCA, peerCA: c.PeerCA,
		sans: c.sanLists(), peerName: c.PeerName, log: log,
	}
	if _, err := t.reload(); err != nil {
		return nil, fmt.Errorf("read TLS files: %w", err)
	}
	return t, nil
}

// Run rereads the files every 10 s, and at once when hup says so.
func (t *serverTLS) Run(ctx context.Context, hup <-chan os.Signal) error {
	tick := time.NewTicker(reread)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
		case <-tick.C:
		}
		switch changed, err := t.reload(); {
		case err != nil:
			t.log.Error().Err(err).Msg("TLS files refused; the old ones stay in force")
		case changed:
			t.log.Info().Time("not_after", t.notAfter()["server"]).Msg("TLS files reread")
			t.warnOfPeers()
		}
	}
}

// reload takes the files into force if they have changed and fit together. The
// same bad files are an error once.
func (t *serverTLS) reload() (changed bool, err error) {
	seen, err := t.read()
	if err != nil {
		// Told again and again: a file that is gone does not come back by itself.
		return false, err
	}
	if slices.EqualFunc(seen, t.seen, bytes.Equal) {
		return false, nil
	}
	t.seen = seen
	files, err := t.parse(seen)
	if err != nil {
		return false, err
	}
	t.inForce.Store(files)
	return true, nil
}

// read reads the certificate, the key and the two authorities; nil stands for one that
// is not set.
func (t *serverTLS) read() ([][]byte, error) {
	var seen [][]byte
	for _, name := range []string{t.cert, t.key, t.clientCA, t.peerCA} {
		if name == "" {
			seen = append(seen, nil)
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		seen = append(seen, text)
	}
	return seen, nil
}

func (t *serverTLS) parse(seen [][]byte) (*tlsFiles, error) {
	pair, err := tls.X509KeyPair(seen[0], seen[1])
	if err != nil {
		return nil, fmt.Errorf("%s and %s: %w", t.cert, t.key, err)
	}
	files := &tlsFiles{
		config: &tls.Config{
			MinVersion:   tls.VersionTLS12,
			Certificates: []tls.Certificate{pair},
			// A resumed session would outlive the authority that it was
			// admitted by. Envoy's connections last minutes: nothing is lost.
			SessionTicketsDisabled: true,
		},
		notAfter: map[string]time.Time{"server": pair.Leaf.NotAfter},
	}
	if t.clientCA != "" {
		if files.config.ClientCAs, files.notAfter["client_ca"], err = authorities(seen[2]); err != nil {
			return nil, fmt.Errorf("%s: %w", t.clientCA, err)
		}
		files.config.ClientAuth = tls.RequireAndVerifyClientCert
		files.config.VerifyConnection = t.sans.checkAny
	}
	files.peer = t.peerConfig(&pair, files.config.ClientCAs)
	if t.peerCA != "" {
		if files.peer.RootCAs, files.notAfter["peer_ca"], err = authorities(seen[3]); err != nil {
			return nil, fmt.Errorf("%s: %w", t.peerCA, err)
		}
	}
	return files, nil
}

// authorities reads certificates, and when the first of them ends.
func authorities(text []byte) (pool *x509.CertPool, ends time.Time, err error) {
	pool = x509.NewCertPool()
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, time.Time{}, err
		}
		pool.AddCert(cert)
		if ends.IsZero() || cert.NotAfter.Before(ends) {
			ends = cert.NotAfter
		}
	}
	if ends.IsZero() {
		return nil, time.Time{}, errors.New("no certificate in PEM form")
	}
	return pool, ends, nil
}

func sanNames(cert *x509.Certificate) []string {
	names := slices.Concat(cert.DNSNames, cert.EmailAddresses)
	for _, u := range cert.URIs {
		names = append(names, u.String())
	}
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

// matches reports whether pattern matches the whole of name; * stands for any run
// of characters.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	rest, ok := strings.CutPrefix(name, parts[0])
	if !ok || len(parts) == 1 {
		return ok && rest == ""
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(rest, part)
		if i < 0 {
			return false
		}
		rest = rest[i+len(part):]
	}
	return strings.HasSuffix(rest, parts[last])
}

// listenerConfig returns the configuration of a listener that speaks protos, and admits the
// client certificates that check does; nil: all that may call anything. It stays right over
// reloads. It is nil without TLS.
func (t *serverTLS) listenerConfig(check func(tls.ConnectionState) error, protos ...string) *tls.Config {
	if t == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: protos,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c := t.inForce.Load().config.Clone()
			c.NextProtos = protos
			if check != nil && c.ClientCAs != nil {
				c.VerifyConnection = check
			}
			return c, nil
		},
	}
}

// notAfter returns when the certificates in force end, by use.
func (t *serverTLS) notAfter() map[string]time.Time {
	if t == nil {
		return nil
	}
	return t.inForce.Load().notAfter
}
