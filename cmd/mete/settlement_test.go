package main

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/admin"
	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// idleQuotas is a QuotaService that knows of no request.
func idleQuotas() *admin.Service {
	keeper := quota.NewKeeper(quota.KeeperConfig{Store: &storetest.Memory{}, Now: time.Now}, "r1")
	return admin.NewService(admin.Config{Quota: authz.New(authz.Config{Keeper: keeper, Now: time.Now}), Now: time.Now})
}

// Other replicas are told an address that leads here from elsewhere.
func TestAdvertised_A26_AnAddressThatLeadsHere(t *testing.T) {
	t.Parallel()
	for listen, c := range map[string]struct{ setting, want string }{
		"127.0.0.1:4711": {"", "127.0.0.1:4711"},
		"10.1.2.3:9001":  {"", "10.1.2.3:9001"},
		"[::]:4711":      {"mete-0.mete:9001", "mete-0.mete:9001"},
	} {
		m := newMete(settings{config: config{AdvertiseAddress: c.setting}}, zerolog.Nop(), nil)
		m.inUse.GRPC = listen
		if got := m.advertised(); got != c.want {
			t.Errorf("%s with %q: %s is advertised, want %s", listen, c.setting, got, c.want)
		}
	}
	m := newMete(settings{}, zerolog.Nop(), nil)
	m.inUse.GRPC = "[::]:4711"
	host, port, err := net.SplitHostPort(m.advertised())
	if ip := net.ParseIP(host); err != nil || port != "4711" || ip == nil || ip.IsUnspecified() {
		t.Errorf("open on all interfaces: %s is advertised", m.advertised())
	}
}

// Replicas call each other with the certificates of their listeners.
func TestPeerConfig_A26_TrustsWhoeverIsConfigured(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t, "ca")
	dir := newTLSDir(t, ca)
	secure, err := newServerTLS(dir.config, zerolog.Nop())
	if err != nil {
		t.Fatal(err)
	}
	dir.PeerName = "mete"
	conf, err := secure.peerConfig(dir.config)
	if err != nil {
		t.Fatal(err)
	}
	if conf.ServerName != "mete" || conf.RootCAs == nil && dir.TLSClientCA != "" {
		t.Errorf("calls are for %q, authority %v", conf.ServerName, conf.RootCAs)
	}
	pair, err := conf.GetClientCertificate(&tls.CertificateRequestInfo{})
	if err != nil || pair.Leaf == nil {
		t.Errorf("no certificate is shown: %v", err)
	}
	dir.PeerCA = "/nowhere"
	if _, err := secure.peerConfig(dir.config); err == nil {
		t.Error("an authority that is not there is taken")
	}
	if none, err := (*serverTLS)(nil).peerConfig(config{}); none != nil || err != nil {
		t.Errorf("without TLS: %v, %v", none, err)
	}
}
