package main

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// newPeerDir is a directory with the files of replicas that take each other's calls.
func newPeerDir(t *testing.T, ca authority) tlsDir {
	t.Helper()
	dir := newTLSDir(t, ca)
	dir.PeerName = "server"
	dir.TLSClientCA = filepath.Join(filepath.Dir(dir.TLSCert), "ca.crt")
	dir.PeerCA = filepath.Join(filepath.Dir(dir.TLSCert), "peer-ca.crt")
	write(t, dir.TLSClientCA, ca.pem)
	write(t, dir.PeerCA, ca.pem)
	return dir
}

func mustTLS(t *testing.T, c config) *serverTLS {
	t.Helper()
	secure, err := newServerTLS(c, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	return secure
}

// Replicas call each other with the certificates of their listeners, and go on to do so
// over a change of the authority that vouches for them.
func TestPeerCredentials_A26_P27_FollowTheFiles(t *testing.T) {
	t.Parallel()
	old, next := newAuthority(t, "old"), newAuthority(t, "next")
	dir := newPeerDir(t, old)
	secure := mustTLS(t, dir.config)
	creds := secure.peerCredentials()
	call := func(addr string) error {
		conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return check(t, grpc_health_v1.NewHealthClient(conn))
	}
	if err := call(serveHealth(t, mustTLS(t, dir.config))); err != nil {
		t.Fatal(err)
	}
	other := newPeerDir(t, next)
	addr := serveHealth(t, mustTLS(t, other.config))
	if err := call(addr); err == nil {
		t.Error("a replica of another authority is taken")
	}
	dir.renew(t, next, 2)
	write(t, dir.PeerCA, next.pem)
	if changed, err := secure.reload(); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if err := call(addr); err != nil {
		t.Errorf("after the change: %v", err)
	}
	if _, ok := secure.notAfter()["peer_ca"]; !ok {
		t.Error("nothing tells when the authority ends")
	}
}

func TestPeerCredentials_A26_TrustWhoeverIsConfigured(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	dir := newPeerDir(t, ca)
	dir.PeerCA = ""
	if secure := mustTLS(t, dir.config); !secure.inForce.Load().peer.RootCAs.Equal(pool(ca)) {
		t.Error("without peer-ca another authority than tls-client-ca is trusted")
	}
	dir.TLSClientCA = ""
	if secure := mustTLS(t, dir.config); secure.inForce.Load().peer.RootCAs != nil {
		t.Error("without any setting others than the system's authorities are trusted")
	}
	if none := (*serverTLS)(nil).peerCredentials(); none != nil {
		t.Errorf("without TLS: %v", none)
	}
	dir.PeerCA = "/nowhere"
	if _, err := newServerTLS(dir.config, zerolog.Nop()); err == nil {
		t.Error("an authority that is not there is taken")
	}
}

// Settings with which replicas refuse each other are told at the start.
func TestWarnOfPeers_A26_TellsWhyReplicasRefuseEachOther(t *testing.T) {
	t.Parallel()
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	for name, c := range map[string]struct {
		change   func(*tlsDir)
		calledAs string
		want     string
	}{
		"they fit":          {func(*tlsDir) {}, "server", ""},
		"by address":        {func(*tlsDir) {}, "127.0.0.1", ""},
		"alone":             {func(d *tlsDir) { d.TLSClientSAN = []string{"envoy"} }, "", ""},
		"another authority": {func(d *tlsDir) { write(t, d.PeerCA, stranger.pem) }, "server", "see peer-ca"},
		"another name":      {func(*tlsDir) {}, "10.1.2.3", "advertise-address"},
		"no client":         {func(d *tlsDir) { serverOnly(t, ca, d) }, "server", "client authentication"},
		"no pattern":        {func(d *tlsDir) { d.TLSClientSAN = []string{"envoy"} }, "server", "tls-client-san"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newPeerDir(t, ca)
			c.change(&dir)
			var log bytes.Buffer
			secure, err := newServerTLS(dir.config, zerolog.New(&log))
			if err != nil {
				t.Fatal(err)
			}
			secure.calledAs = c.calledAs
			secure.warnOfPeers()
			if got := log.String(); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// serverOnly makes d's certificate one that is for servers alone.
func serverOnly(t *testing.T, ca authority, d *tlsDir) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(5), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"server"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write(t, d.TLSCert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	write(t, d.TLSKey, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
}
