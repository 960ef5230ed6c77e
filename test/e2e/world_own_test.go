package e2e_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The rate limit filter and ext_authz charge the same counters (C019). One app only
// can have the example's domain.
func TestRLS_SameCounter_C019(t *testing.T) {
	t.Parallel()
	a := newApp(t, newWorld(t, nil, nil), `
hourly: {kind: rate, amount: 6, window: 1h}
monthly: {kind: quota, amount: 100, reset: {calendar: month}}`, "domain: api", "headers: {x_quota: true}")
	byTenant := func() *reply { return a.sendTo(t, a.internal.Listener("internal"), "X-Verified-Tenant: "+a.tenant) }

	wantHeader(t, a.admit(t, 2), "X-Quota-Used", "2")
	for range 3 {
		if r := byTenant(); r.status != http.StatusOK || len(r.seen) != 1 {
			t.Fatalf("by the rate limit filter: got %d %s, the API saw %d; want 200 and 1", r.status, r.body, len(r.seen))
		}
	}
	wantHeader(t, a.admit(t, 1), "X-Quota-Used", "6")
	a.refuse(t, http.StatusTooManyRequests)
	if r := byTenant(); r.status != http.StatusTooManyRequests || len(r.seen) != 0 {
		t.Errorf("by the rate limit filter: got %d %s, the API saw %d; want 429 and 0", r.status, r.body, len(r.seen))
	}
}

// Without mete Envoy's failure mode decides: the example's says 503.
func TestMeteStopped_503(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(config string) string { return config })
	a := newApp(t, w, "hourly: {kind: rate, amount: 100, window: 1h}")
	a.admit(t, 1)
	if err := w.mete.Stop(); err != nil {
		t.Fatal(err)
	}
	a.refuse(t, http.StatusServiceUnavailable)
}

// Envoy and mete prove themselves to each other (P26): examples/envoy/tls.yaml.
func TestMTLS_P26(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := newAuthority(t, dir)
	authority.issue(t, "mete", "mete")
	authority.issue(t, "envoy", "envoy.example.com")
	args := []string{
		"--tls-cert", filepath.Join(dir, "mete.crt"), "--tls-key", filepath.Join(dir, "mete.key"),
		"--tls-client-ca", filepath.Join(dir, "ca.crt"), "--tls-client-san", "envoy.example.com",
	}
	w := newWorld(t, args, overTLS(dir))
	a := newApp(t, w, "hourly: {kind: rate, amount: 1, window: 1h}")
	a.admit(t, 1)
	a.refuse(t, http.StatusTooManyRequests)

	// An Envoy without the certificate gets no answer.
	stranger, err := w.startEnvoy(t.Context(), "envoy.yaml", 9901, 10000, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stranger.Stop() }()
	r := a.sendTo(t, stranger.Listener("ingress"), "X-Api-Key: "+a.probe)
	if r.status != http.StatusServiceUnavailable || len(r.seen) != 0 {
		t.Errorf("without TLS: got %d %s, the API saw %d; want 503 and 0", r.status, r.body, len(r.seen))
	}
}

// An authority signs the certificates of one test.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	c := &authority{dir: dir}
	c.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	c.key = c.sign(t, "ca", c.cert)
	return c
}

// issue writes NAME.crt and NAME.key for a DNS name.
func (c *authority) issue(t *testing.T, name, dns string) {
	t.Helper()
	c.sign(t, name, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{dns},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

func (c *authority) sign(t *testing.T, name string, template *x509.Certificate) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer := c.key
	if signer == nil {
		signer = key
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, c.cert, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		name + ".crt": {Type: "CERTIFICATE", Bytes: cert},
		name + ".key": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(c.dir, file), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return key
}
