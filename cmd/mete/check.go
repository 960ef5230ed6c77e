package main

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/envoy"
)

const (
	// maxRefusalMemory bounds how long a raised quota may go unnoticed where
	// the watch is slow (design 6.3).
	maxRefusalMemory = time.Minute
	// liableFor is the life of a replica's liable key (design 6.4).
	liableFor = 30 * time.Minute
	// maxRatelimitSeries is what a Prometheus still takes from one target.
	maxRatelimitSeries = 1_000_000
)

// check returns everything in s that cannot work, or nil. Each message says why.
func (s settings) check() error {
	var c complaints
	c.check(s.DataDir != "", "data-dir is empty")
	c.check(s.Name != "" && !strings.ContainsFunc(s.Name, func(r rune) bool { return r <= ' ' || r == '/' || r == 0x7f }),
		"name %q must be a word without blanks, slashes and control characters: it is shown in lists", s.Name)
	c.check(s.MaxStreams >= 1 && s.MaxStreams <= 1<<31-1, "max-streams %d must be from 1 to 2147483647", s.MaxStreams)
	c.check(envoy.IsRefusal(s.UnknownHostStatus), "unknown-host-status %d must be an HTTP status from 400 to 599 that Envoy knows, such as 404", s.UnknownHostStatus)
	s.checkIntake(&c)
	c.check(s.MaxTenants >= 0, "max-tenants %d is negative; 0 follows the memory limit", s.MaxTenants)
	c.check(s.MaxCounters >= 0, "max-counters %d is negative; 0 follows the memory limit", s.MaxCounters)
	c.check(s.MaxNewAccounts >= 0, "max-new-accounts %d is negative; 0 is any number", s.MaxNewAccounts)
	c.check(s.MaxRatelimitSeries >= 1 && s.MaxRatelimitSeries <= maxRatelimitSeries,
		"max-ratelimit-series %d must be from 1 to %d: each is five lines of every scrape", s.MaxRatelimitSeries, maxRatelimitSeries)
	c.check(s.GOGC >= 1 || s.GOGC == -1, "gogc %d must be a percentage above 0, or -1 for off", s.GOGC)
	c.check(s.EtcdBatch == batchAuto || s.EtcdBatch == batchNested || s.EtcdBatch == batchSingle,
		"etcd-batch %q is none of %s, %s and %s", s.EtcdBatch, batchAuto, batchNested, batchSingle)
	if _, err := logLevel(s.LogLevel); err != nil {
		c.add("log-level: %w", err)
	}
	if s.AdvertiseAddress != "" {
		host, port, err := net.SplitHostPort(s.AdvertiseAddress)
		n, portErr := strconv.Atoi(port)
		c.check(err == nil && host != "" && portErr == nil && n > 0 && n < 1<<16,
			"advertise-address %q must be a host and a port, such as mete-0.mete:9001: other replicas call it", s.AdvertiseAddress)
	}
	s.checkTimes(&c)
	s.checkTLS(&c)
	s.checkEtcd(&c)
	s.checkListeners(&c)
	return errors.Join(c...)
}

// checkIntake checks what connections and messages may take.
func (s settings) checkIntake(c *complaints) {
	const least, most = 64 << 10, 1 << 30
	c.check(s.MaxConnections >= 1, "max-connections %d must be at least 1", s.MaxConnections)
	c.check(s.MaxMessageBytes >= least && s.MaxMessageBytes <= most,
		"max-message-bytes %d must be from %d, which a request with many headers needs, to %d", s.MaxMessageBytes, least, most)
	c.check(s.MaxUnfinishedBytes/4 >= s.MaxMessageBytes,
		"max-unfinished-bytes %d must be at least four times max-message-bytes %d: a connection may take half of it, and a message in small frames takes up to twice its size",
		s.MaxUnfinishedBytes, s.MaxMessageBytes)
	c.check(s.MaxRequestHeaders >= 1, "max-request-headers %d must be at least 1, and what max_headers_count in Envoy says, which is 100 unless set", s.MaxRequestHeaders)
	c.check(s.MaxRequestHeadersKB >= 1 && s.MaxRequestHeadersKB <= 8192,
		"max-request-headers-kb %d must be from 1 to 8192, and what max_request_headers_kb in Envoy says, which is 60 unless set", s.MaxRequestHeadersKB)
}

func (s settings) checkTimes(c *complaints) {
	c.check(s.MaxConnectionAge == 0 || s.MaxConnectionAge >= 10*time.Second,
		"max-connection-age %v must be 0 (never) or at least 10s, or Envoy does little but reconnect", s.MaxConnectionAge)
	c.check(s.DrainDelay >= 0, "drain-delay %v is negative", s.DrainDelay)
	c.check(s.LeaseWait > 0, "lease-wait %v must be above 0, or no request ever gets the first units of a quota", s.LeaseWait)
	c.check(s.UnavailableFor >= s.LeaseWait,
		"unavailable-for %v must be at least lease-wait %v, or requests wait for an etcd that is away again and again",
		s.UnavailableFor, s.LeaseWait)
	c.check(s.RefusalMemory > 0, "refusal-memory %v must be above 0, or every refusal asks etcd again", s.RefusalMemory)
	c.check(s.RefusalMemory <= maxRefusalMemory,
		"refusal-memory %v must be at most %v, or a tenant goes on being refused long after units came back", s.RefusalMemory, maxRefusalMemory)
	c.check(s.PresenceTTL >= 5*time.Second && s.PresenceTTL < liableFor,
		"presence-ttl %v must be at least 5s, or a pause of this process looks like its death, and below %v, when its units are taken back",
		s.PresenceTTL, liableFor)
	c.check(s.PresenceTTL%time.Second == 0, "presence-ttl %v must be whole seconds: etcd counts in them", s.PresenceTTL)
}

func (s settings) checkTLS(c *complaints) {
	c.check((s.TLSCert == "") == (s.TLSKey == ""), "tls-cert and tls-key are a pair: give both or none")
	c.check(s.PeerCA == "" || s.TLSCert != "", "peer-ca needs tls-cert and tls-key: without TLS no replica shows a certificate")
	c.check(s.PeerName == "" || s.TLSCert != "", "peer-name needs tls-cert and tls-key: without TLS no replica shows a certificate")
	c.check(s.TLSClientCA == "" || s.TLSCert != "", "tls-client-ca needs tls-cert and tls-key: without TLS no client shows a certificate")
	for _, list := range []struct {
		name     string
		patterns []string
	}{
		{"tls-client-san", s.TLSClientSAN},
		{"tls-envoy-san", s.TLSEnvoySAN},
		{"tls-app-san", s.TLSAppSAN},
		{"tls-replica-san", s.TLSReplicaSAN},
	} {
		c.check(len(list.patterns) == 0 || s.TLSClientCA != "", "%s needs tls-client-ca: names that nobody vouches for prove nothing", list.name)
		c.check(!slices.Contains(list.patterns, ""), "%s has an empty pattern, which no name matches", list.name)
	}
}

func (s settings) checkEtcd(c *complaints) {
	if len(s.EtcdEndpoints) == 0 {
		for name, value := range map[string]string{
			"etcd-ca": s.EtcdCA, "etcd-cert": s.EtcdCert, "etcd-key": s.EtcdKey,
			"etcd-user": s.EtcdUser, "etcd-password-file": s.EtcdPasswordFile,
		} {
			c.check(value == "", "%s needs etcd-endpoints: the embedded etcd has no use for it", name)
		}
		return
	}
	// What config print shows is taken back: written defaults are no complaint.
	c.check(s.EtcdListen == defaultEtcdListen || !s.given("etcd-listen"), "etcd-listen has no effect with etcd-endpoints: no etcd is embedded then")
	c.check((s.EtcdCert == "") == (s.EtcdKey == ""), "etcd-cert and etcd-key are a pair: give both or none")
	c.check((s.EtcdUser == "") == (s.EtcdPasswordFile == ""), "etcd-user and etcd-password-file go together: give both or none (etcd takes the name in etcd-cert as user without them)")
	for i, endpoint := range s.EtcdEndpoints {
		s.checkEndpoint(c, i, endpoint)
	}
}

// checkEndpoint never shows the endpoint: it may hold a password.
func (s settings) checkEndpoint(c *complaints, i int, endpoint string) {
	u, err := url.Parse(endpoint)
	if err != nil || (u.Host == "" && u.Path == "") || (u.Scheme != "http" && u.Scheme != "https" && u.Scheme != "unix") {
		c.add("etcd-endpoints: entry %d must be like https://host:2379, http://host:2379 or unix:///path", i+1)
		return
	}
	c.check(u.User == nil, "etcd-endpoints: entry %d holds a user or password: use etcd-user and etcd-password-file", i+1)
	c.check(u.Scheme == "https" || (s.EtcdCA == "" && s.EtcdCert == ""), "etcd-endpoints: entry %d is not https, so etcd-ca and etcd-cert would protect nothing", i+1)
}

func (s settings) checkListeners(c *complaints) {
	s.checkListener(c, "grpc-listen", s.GRPCListen, s.TLSCert != "", "give tls-cert and tls-key, or")
	s.checkListener(c, "admin-listen", s.AdminListen, s.TLSCert != "", "give tls-cert and tls-key, or")
	if host, _, err := net.SplitHostPort(s.AdminListen); err == nil && !isSocket(s.AdminListen) {
		c.check(isLoopback(host) || s.AdminTokenFile != "" || s.TLSClientCA != "",
			"admin-listen %s is beyond loopback, where callers must prove who they are: give admin-token-file, or tls-client-ca for certificates", s.AdminListen)
	}
	for _, host := range s.AdminHosts {
		c.check(host != "" && !strings.ContainsAny(host, "/: *"), "admin-hosts: %q must be a host without a port, such as mete.internal", host)
	}
	if s.PeerListen != "" {
		c.check(!isSocket(s.PeerListen), "peer-listen %s must be host:port: other replicas are on other machines", s.PeerListen)
		s.checkListener(c, "peer-listen", s.PeerListen, s.TLSCert != "", "give tls-cert and tls-key, or")
	}
	s.checkListener(c, "metrics-listen", s.MetricsListen, false, "metrics and probes are always plain HTTP:")
	if len(s.EtcdEndpoints) == 0 {
		s.checkListener(c, "etcd-listen", s.EtcdListen, false, "the embedded etcd is open to everyone who reaches it:")
	}
	open := map[string]string{
		"grpc-listen": s.GRPCListen, "admin-listen": s.AdminListen, "metrics-listen": s.MetricsListen, "peer-listen": s.PeerListen,
	}
	if len(s.EtcdEndpoints) == 0 {
		open["etcd-listen"] = s.EtcdListen
	}
	taken := map[string]string{}
	for name, addr := range open {
		if _, port, err := net.SplitHostPort(addr); err == nil && port != "0" && taken[addr] != "" {
			c.add("%s and %s are both %s", min(name, taken[addr]), max(name, taken[addr]), addr)
		}
		taken[addr] = name
	}
}

func (s settings) checkListener(c *complaints, name, addr string, secured bool, hint string) {
	if isSocket(addr) {
		checkSocket(c, name, addr)
		return
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		c.add("%s %q must be host:port or unix:///path", name, addr)
		return
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		c.add("%s %q: the port must be a number from 0 to 65535", name, addr)
		return
	}
	c.check(secured || s.InsecureListen || isLoopback(host),
		"%s %s is beyond loopback without TLS: %s allow it with insecure-listen", name, addr, hint)
}

// isLoopback reports whether only this machine reaches host. A name other than
// localhost may lead anywhere, and the empty host is every interface.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// complaints collects what is wrong, so that all of it is told at once.
type complaints []error

func (c *complaints) check(ok bool, format string, args ...any) {
	if !ok {
		c.add(format, args...)
	}
}

func (c *complaints) add(format string, args ...any) { *c = append(*c, fmt.Errorf(format, args...)) }

// logLevel reads a level. Levels that would silence errors are not offered.
func logLevel(text string) (zerolog.Level, error) {
	switch text {
	case "debug":
		return zerolog.DebugLevel, nil
	case "info":
		return zerolog.InfoLevel, nil
	case "warn":
		return zerolog.WarnLevel, nil
	case "error":
		return zerolog.ErrorLevel, nil
	}
	return zerolog.NoLevel, fmt.Errorf("%q is none of debug, info, warn and error", text)
}
