package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc/credentials"
)

// peerConfig returns the configuration of calls to other replicas: this one shows them the
// certificate of its listeners. roots nil: the system's.
func (t *serverTLS) peerConfig(pair *tls.Certificate, roots *x509.CertPool) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.peerName, RootCAs: roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil },
	}
}

// warnOfPeers warns if replicas that have such files would refuse each other: nothing else
// tells before the first settlement is passed on.
func (t *serverTLS) warnOfPeers() {
	if t.calledAs == "" {
		return
	}
	if err := t.fitsPeers(t.inForce.Load()); err != nil {
		t.log.Warn().Err(err).Msg("replicas with these TLS settings do not take each other's calls, so that they cannot pass settlements on")
	}
}

// fitsPeers tells why a replica with these files would not be taken by another one with
// the same; nil: it would.
func (t *serverTLS) fitsPeers(files *tlsFiles) error {
	pair := files.config.Certificates[0]
	between := x509.NewCertPool()
	for _, der := range pair.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			between.AddCert(cert)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: files.peer.RootCAs, Intermediates: between, DNSName: t.calledAs,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}); err != nil {
		return fmt.Errorf("tls-cert as the certificate of a replica that is called, see peer-ca, peer-name and advertise-address: %w", err)
	}
	if files.config.ClientCAs == nil {
		return nil
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: files.config.ClientCAs, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return fmt.Errorf("tls-cert as the certificate of a replica that calls, which must come from tls-client-ca and be for client authentication, too: %w", err)
	}
	if err := t.sans.checkReplica(pair.Leaf); err != nil {
		return fmt.Errorf("tls-cert as the certificate of a replica that calls: %w", err)
	}
	return nil
}

// peerCredentials returns the TLS side of calls to other replicas; nil: there is no TLS.
func (t *serverTLS) peerCredentials() credentials.TransportCredentials {
	if t == nil {
		return nil
	}
	return peerCredentials{t}
}

// peerCredentials makes each connection with the files that are in force then.
type peerCredentials struct{ t *serverTLS }

// ClientHandshake implements [credentials.TransportCredentials].
func (p peerCredentials) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return credentials.NewTLS(p.t.inForce.Load().peer).ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements [credentials.TransportCredentials]; nobody calls it.
func (peerCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("credentials of calls are no server's")
}

// Info implements [credentials.TransportCredentials].
func (p peerCredentials) Info() credentials.ProtocolInfo {
	return credentials.NewTLS(p.t.inForce.Load().peer).Info()
}

// Clone implements [credentials.TransportCredentials].
func (p peerCredentials) Clone() credentials.TransportCredentials { return p }

// OverrideServerName implements [credentials.TransportCredentials]; gRPC has given it up.
func (peerCredentials) OverrideServerName(string) error {
	return errors.New("the name is the setting peer-name")
}
