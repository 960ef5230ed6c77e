package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/peer"
)

// An authority signs certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(48 * time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return authority{cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate and its key in PEM form. names with a scheme become
// URIs.
func (a authority) issue(t *testing.T, serial int64, notAfter time.Time, names ...string) (cert, key []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: notAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for _, name := range names {
		if u, err := url.Parse(name); err == nil && u.Scheme != "" {
			template.URIs = append(template.URIs, u)
			continue
		}
		template.DNSNames = append(template.DNSNames, name)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

func write(t *testing.T, path string, text []byte) {
	t.Helper()
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// tlsDir is a directory with the files of a server.
type tlsDir struct {
	config
	notAfter time.Time
}

func newTLSDir(t *testing.T, ca authority) tlsDir {
	t.Helper()
	dir := t.TempDir()
	d := tlsDir{config: config{TLSCert: filepath.Join(dir, "tls.crt"), TLSKey: filepath.Join(dir, "tls.key")}}
	d.renew(t, ca, 1)
	return d
}

func (d *tlsDir) renew(t *testing.T, ca authority, serial int64) {
	t.Helper()
	d.notAfter = time.Now().Add(time.Duration(serial) * time.Hour).Truncate(time.Second)
	cert, key := ca.issue(t, serial, d.notAfter, "server")
	write(t, d.TLSCert, cert)
	write(t, d.TLSKey, key)
}

func pool(a authority) *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

// serveHealth serves the health service on a free port, and returns the address.
func serveHealth(t *testing.T, secure *serverTLS) string {
	t.Helper()
	closing := make(chan struct{})
	srv := grpc.NewServer(grpc.Creds(credentials.NewTLS(secure.listenerConfig(nil, "h2"))), grpc.ChainStreamInterceptor(endStreams(closing)))
	grpc_health_v1.RegisterHealthServer(srv, health.NewServer())
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serveGRPC(ctx, l, srv, func() { close(closing) }, zerolog.Nop()) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func dial(t *testing.T, addr string, c *tls.Config) grpc_health_v1.HealthClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(credentials.NewTLS(c)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return grpc_health_v1.NewHealthClient(conn)
}

func check(t *testing.T, c grpc_health_v1.HealthClient, opts ...grpc.CallOption) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := c.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, opts...)
	return err
}

// serial returns the serial number of the certificate that a new connection gets.
func serial(t *testing.T, addr string, c *tls.Config) int64 {
	t.Helper()
	conn, err := tls.Dial("tcp", addr, c)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.Int64()
}

// TestReload tells the story of a certificate: it is renewed under a connection
// that goes on, a bad pair is refused, a good one comes again (P26, P27).
func TestReload(t *testing.T) {
	ca := newAuthority(t, "ca")
	d := newTLSDir(t, ca)
	secure, err := newServerTLS(d.config, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	addr := serveHealth(t, secure)
	client := &tls.Config{RootCAs: pool(ca), NextProtos: []string{"h2"}, MinVersion: tls.VersionTLS12}
	old := dial(t, addr, client)
	if err := check(t, old); err != nil {
		t.Fatal(err)
	}
	first := d.notAfter
	step := func(what string, changes, fails bool, want int64, ends time.Time) {
		t.Helper()
		if changed, err := secure.reload(); changed != changes || (err != nil) != fails {
			t.Errorf("%s: changed %v, %v", what, changed, err)
		}
		if got := serial(t, addr, client); got != want {
			t.Errorf("%s: new connections get certificate %d, want %d", what, got, want)
		}
		if got := secure.notAfter()["server"]; !got.Equal(ends) {
			t.Errorf("%s: not after %v, want %v", what, got, ends)
		}
		// A connection made again would show another certificate.
		var on peer.Peer
		if err := check(t, old, grpc.Peer(&on)); err != nil {
			t.Fatalf("%s: the old connection: %v", what, err)
		}
		if got := on.AuthInfo.(credentials.TLSInfo).State.PeerCertificates[0].SerialNumber.Int64(); got != 1 {
			t.Errorf("%s: the old connection shows certificate %d: it was dropped", what, got)
		}
	}
	step("nothing new", false, false, 1, first)
	d.renew(t, ca, 2)
	second := d.notAfter
	step("renewed", true, false, 2, second)
	// Half of a new pair, as one sees it while somebody is writing.
	third := time.Now().Add(3 * time.Hour).Truncate(time.Second)
	cert, key := ca.issue(t, 3, third, "server")
	write(t, d.TLSCert, cert)
	step("half of a pair", false, true, 2, second)
	step("the same half again is told once", false, false, 2, second)
	write(t, d.TLSKey, key)
	step("the other half", true, false, 3, third)
	if err := os.Remove(d.TLSKey); err != nil {
		t.Fatal(err)
	}
	step("no key", false, true, 3, third)
}

func TestSIGHUPRereads(t *testing.T) {
	ca := newAuthority(t, "ca")
	d := newTLSDir(t, ca)
	secure, err := newServerTLS(d.config, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	hup := make(chan os.Signal)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- secure.Run(ctx, hup) }()
	d.renew(t, ca, 2)
	hup <- os.Interrupt
	hup <- os.Interrupt // is taken only after the first was dealt with
	if got := secure.notAfter()["server"]; !got.Equal(d.notAfter) {
		t.Errorf("not after %v, want %v", got, d.notAfter)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestClientCertificates(t *testing.T) {
	ca, stranger := newAuthority(t, "ca"), newAuthority(t, "stranger")
	d := newTLSDir(t, ca)
	d.TLSClientCA = filepath.Join(filepath.Dir(d.TLSCert), "ca.crt")
	write(t, d.TLSClientCA, ca.pem)
	d.TLSClientSAN = []string{"spiffe://prod/*/envoy", "gateway"}
	secure, err := newServerTLS(d.config, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	addr := serveHealth(t, secure)
	as := func(a authority, names ...string) *tls.Config {
		c := &tls.Config{RootCAs: pool(ca), MinVersion: tls.VersionTLS12}
		if len(names) > 0 {
			cert, key := a.issue(t, 9, time.Now().Add(time.Hour), names...)
			pair, err := tls.X509KeyPair(cert, key)
			if err != nil {
				t.Fatal(err)
			}
			c.Certificates = []tls.Certificate{pair}
		}
		return c
	}
	for _, row := range []struct {
		name string
		c    *tls.Config
		ok   bool
	}{
		{"none", as(ca), false},
		{"spiffe", as(ca, "spiffe://prod/ns/a/envoy"), true},
		{"dns", as(ca, "gateway"), true},
		{"second name", as(ca, "other", "gateway"), true},
		{"other name", as(ca, "spiffe://prod/ns/a/other"), false},
		{"longer name", as(ca, "gateway.evil.example"), false},
		{"other authority", as(stranger, "gateway"), false},
	} {
		if err := check(t, dial(t, addr, row.c)); (err == nil) != row.ok {
			t.Errorf("%s: got %v, want ok %v", row.name, err, row.ok)
		}
	}

	// The authority changes: those whom it vouches for change at once.
	write(t, d.TLSClientCA, stranger.pem)
	if changed, err := secure.reload(); !changed || err != nil {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if err := check(t, dial(t, addr, as(ca, "gateway"))); err == nil {
		t.Error("the old authority still admits")
	}
	if err := check(t, dial(t, addr, as(stranger, "gateway"))); err != nil {
		t.Errorf("the new authority: %v", err)
	}
	write(t, d.TLSClientCA, []byte("nothing"))
	if _, err := secure.reload(); err == nil || !strings.Contains(err.Error(), "no certificate in PEM form") {
		t.Errorf("an authority without certificates: %v", err)
	}
}

func TestOldTLSIsRefused(t *testing.T) {
	ca := newAuthority(t, "ca")
	secure, err := newServerTLS(newTLSDir(t, ca).config, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	addr := serveHealth(t, secure)
	for version, want := range map[uint16]bool{tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: pool(ca), MinVersion: version, MaxVersion: version, NextProtos: []string{"h2"}}) //nolint:gosec // that is the point
		if (err == nil) != want {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
}

func TestAdminOverTLS(t *testing.T) {
	ca := newAuthority(t, "ca")
	secure, err := newServerTLS(newTLSDir(t, ca).config, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serveHTTP(ctx, l, adminMux([]byte("{}"), func() any { return 1 }, idleQuotas()), secure.listenerConfig(nil, "h2", "http/1.1"), zerolog.Nop())
	}()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: pool(ca), MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true,
	}}
	resp, err := client.Get("https://" + l.Addr().String() + "/schema/v1/document.json")
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if string(body) != "{}" || resp.ProtoMajor != 2 {
		t.Errorf("got %q by HTTP/%d", body, resp.ProtoMajor)
	}
	client.CloseIdleConnections()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBadFilesAtStart(t *testing.T) {
	ca := newAuthority(t, "ca")
	d := newTLSDir(t, ca)
	write(t, d.TLSKey, []byte("nothing"))
	if _, err := newServerTLS(d.config, zerolog.Nop()); err == nil || !strings.Contains(err.Error(), d.TLSKey) {
		t.Errorf("got %v", err)
	}
	if secure, err := newServerTLS(config{}, zerolog.Nop()); secure != nil || err != nil {
		t.Errorf("no TLS: %v, %v", secure, err)
	}
}

func TestMatches(t *testing.T) {
	for _, row := range []struct {
		pattern, name string
		want          bool
	}{
		{"a", "a", true},
		{"a", "ab", false},
		{"a", "", false},
		{"*", "", true},
		{"*", "abc", true},
		{"a*", "abc", true},
		{"a*", "ba", false},
		{"*c", "abc", true},
		{"*c", "cb", false},
		{"a*c", "ac", true},
		{"a*c", "abbc", true},
		{"ab*bc", "abc", false},
		{"a*b*c", "aXbYc", true},
		{"a*b*c", "ac", false},
		{"a*b*c", "abbc", true},
		{"*aa*aa", "aaa", false},
		{"*aa*aa", "aaaa", true},
	} {
		if got := matches(row.pattern, row.name); got != row.want {
			t.Errorf("%q on %q: got %v", row.pattern, row.name, got)
		}
	}
}
