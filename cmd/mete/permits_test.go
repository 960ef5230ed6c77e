package main

import (
	"crypto/tls"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	accesslogv3 "github.com/envoyproxy/go-control-plane/envoy/service/accesslog/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
	grpcstatus "google.golang.org/grpc/status"

	metev1 "github.com/meteproject/mete/api/mete/v1"
)

// services are calls by what they are for.
func services(t *testing.T, conn *grpc.ClientConn) map[string]func() error {
	t.Helper()
	return map[string]func() error{
		"check": func() error {
			_, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), &authv3.CheckRequest{})
			return err
		},
		"limit": func() error {
			_, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &ratelimitv3.RateLimitRequest{})
			return err
		},
		"log": func() error {
			ss, err := accesslogv3.NewAccessLogServiceClient(conn).StreamAccessLogs(t.Context())
			if err == nil {
				_, err = ss.CloseAndRecv()
			}
			return err
		},
		"settle": func() error {
			_, err := metev1.NewQuotaServiceClient(conn).Settle(t.Context(), &metev1.SettleRequest{})
			return err
		},
		"replica": func() error {
			_, err := metev1.NewReplicaServiceClient(conn).SettleBatch(t.Context(), &metev1.SettleBatchRequest{})
			return err
		},
		"health": func() error {
			_, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
			return err
		},
	}
}

// Who may ask, who may report and who is a replica are three lists, so that an app cannot
// settle what it may not report (issue 12, F1).
func TestPermits_F1_NamesByService(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	d := newTLSDir(t, ca)
	d.TLSClientCA = filepath.Join(filepath.Dir(d.TLSCert), "ca.crt")
	write(t, d.TLSClientCA, ca.pem)
	r := start(t, "--etcd-listen=127.0.0.1:0", "--tls-cert="+d.TLSCert, "--tls-key="+d.TLSKey, "--tls-client-ca="+d.TLSClientCA,
		"--tls-client-san=ops", "--tls-envoy-san=gateway-*", "--tls-app-san=app", "--drain-delay=0s")
	at := r.addresses(t)
	as := func(name string) *tls.Config {
		t.Helper()
		cert, key := ca.issue(t, 9, time.Now().Add(time.Hour), name)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{RootCAs: pool(ca), MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	}
	for name, want := range map[string]struct {
		may   []string
		admin bool
	}{
		"gateway-1": {[]string{"check", "limit", "log", "health"}, false},
		"app":       {[]string{"settle", "health"}, true},
		"ops":       {[]string{"settle", "replica", "health"}, false}, // of tls-client-san, which the replicas' list still is
	} {
		conn, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(credentials.NewTLS(as(name))))
		if err != nil {
			t.Fatal(err)
		}
		may := map[string]bool{}
		for _, service := range want.may {
			may[service] = true
		}
		for service, call := range services(t, conn) {
			code := grpcstatus.Code(call())
			if code == codes.Unavailable || (code != codes.PermissionDenied) != may[service] {
				t.Errorf("%s calls %s: got %v, want allowed: %v", name, service, code, may[service])
			}
		}
		_ = conn.Close()
		if err := askStatus(at.Admin, as(name)); (err == nil) != want.admin {
			t.Errorf("%s calls the admin API: %v, want allowed: %v", name, err, want.admin)
		}
	}
	stranger, err := grpc.NewClient(at.GRPC, grpc.WithTransportCredentials(credentials.NewTLS(as("stranger"))))
	if err != nil {
		t.Fatal(err)
	}
	if err := services(t, stranger)["health"](); grpcstatus.Code(err) != codes.Unavailable {
		t.Errorf("a name of no list: %v, want no connection", err)
	}
	_ = stranger.Close()
	if err := r.stop(t); err != nil {
		t.Error(err)
	}
}

// askStatus asks the admin API for the status.
func askStatus(address string, secure *tls.Config) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: secure}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("https://" + address + "/v1/status")
	if err == nil {
		err = resp.Body.Close()
	}
	return err
}

// Without lists of their own all three are tls-client-san.
func TestPermits_F1_Default(t *testing.T) {
	t.Parallel()
	c := config{TLSClientSAN: []string{"a"}, TLSAppSAN: []string{"b"}}
	if l := c.sanLists(); l.envoy[0] != "a" || l.replica[0] != "a" || l.app[0] != "b" {
		t.Errorf("%+v", l)
	}
}
