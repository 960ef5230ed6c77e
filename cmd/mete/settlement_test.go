package main

import (
	"encoding/json"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

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

// Interfaces come in any order, and what listens on 0.0.0.0 is not there for IPv6.
func TestReachable_A26_AnAddressOfTheRightFamily(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		addrs    []string
		onlyIPv4 bool
		want     string
	}{
		{[]string{"127.0.0.1/8", "::1/128", "fe80::1/64", "169.254.1.1/16"}, false, "127.0.0.1"},
		{[]string{"127.0.0.1/8", "fd00::7/64", "10.1.2.3/24", "10.9.9.9/24"}, false, "10.1.2.3"},
		{[]string{"fd00::7/64", "10.1.2.3/24"}, true, "10.1.2.3"},
		{[]string{"::1/128", "fe80::1/64", "fd00::7/64", "fd00::8/64"}, false, "fd00::7"},
		{[]string{"fd00::7/64"}, true, "127.0.0.1"},
	} {
		var addrs []net.Addr
		for _, text := range c.addrs {
			ip, n, err := net.ParseCIDR(text)
			if err != nil {
				t.Fatal(err)
			}
			addrs = append(addrs, &net.IPNet{IP: ip, Mask: n.Mask})
		}
		if got := reachable(addrs, c.onlyIPv4); got != c.want {
			t.Errorf("%v, IPv4 alone %v: %s, want %s", c.addrs, c.onlyIPv4, got, c.want)
		}
	}
}

// A replica is ready once it is among those whom it knows: before that it could take itself for
// the one that takes the place of a process that is there, and the others could do so for it.
func TestReady_A26_C134_OnceItIsAmongTheReplicas(t *testing.T) {
	defer goleak.VerifyNone(t)
	first := start(t, "--etcd-listen=127.0.0.1:0", "--drain-delay=0")
	a := first.addresses(t)
	for range 3 {
		second := start(t, "--etcd-endpoints=http://"+a.Etcd, "--drain-delay=0")
		b := second.addresses(t)
		_, text := get(t, "http://"+b.Admin+"/v1/status")
		var got status
		if err := json.Unmarshal([]byte(text), &got); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(got.Replicas, func(r replica) bool { return r.Incarnation == got.Incarnation }) || len(got.Replicas) != 2 {
			t.Errorf("ready as %s among %v", got.Incarnation, got.Replicas)
		}
		if err := second.stop(t); err != nil {
			t.Error(err)
		}
	}
	if err := first.stop(t); err != nil {
		t.Error(err)
	}
}

// One that was never ready takes in no log: its keys may be still to come.
func TestSettles_A26_C135_NotBeforeItWasReady(t *testing.T) {
	t.Parallel()
	m := newMete(settings{}, zerolog.Nop(), nil)
	o := m.envoyOptions(nil)
	if m.settles() || o.Settling == nil {
		t.Error("it settles at once")
	}
	close(m.settling)
	if _, open := <-o.Settling; !m.settles() || open {
		t.Error("it does not settle though it is ready")
	}
}
