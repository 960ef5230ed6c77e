package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"

	metev1 "github.com/meteproject/mete/api/mete/v1"
	"github.com/meteproject/mete/envoy"
)

// sanLists are the patterns of names that clients must have, by what they call. An empty list
// admits every name.
type sanLists struct {
	envoy   []string // ext_authz, the rate limit service, the access log service
	app     []string // QuotaService and the admin API
	replica []string // ReplicaService, and QuotaService in the name of an app that asked another replica
}

// sanLists returns the lists, each tls-client-san unless it has a setting of its own.
func (c *config) sanLists() sanLists {
	or := func(list []string) []string {
		if len(list) > 0 {
			return list
		}
		return c.TLSClientSAN
	}
	return sanLists{envoy: or(c.TLSEnvoySAN), app: or(c.TLSAppSAN), replica: or(c.TLSReplicaSAN)}
}

// listed reports whether a name of the certificate matches a pattern of list.
func listed(list []string, cert *x509.Certificate) bool {
	return len(list) == 0 || slices.ContainsFunc(sanNames(cert), func(name string) bool {
		return slices.ContainsFunc(list, func(p string) bool { return matches(p, name) })
	})
}

// permits returns which services the peer of a connection may call. Health and reflection
// are for all that the listener admits.
func (l *sanLists) permits(state tls.ConnectionState) func(service string) bool {
	if len(state.PeerCertificates) == 0 {
		return func(string) bool { return false } // the listener asks for one
	}
	cert := state.PeerCertificates[0]
	fromEnvoy, fromApp, fromReplica := listed(l.envoy, cert), listed(l.app, cert), listed(l.replica, cert)
	return func(service string) bool {
		switch {
		case envoy.Serves(service):
			return fromEnvoy
		case service == metev1.QuotaService_ServiceDesc.ServiceName:
			return fromApp || fromReplica
		case service == metev1.ReplicaService_ServiceDesc.ServiceName:
			return fromReplica
		}
		return true
	}
}

// checkAny refuses client certificates that may call nothing.
func (l *sanLists) checkAny(state tls.ConnectionState) error {
	cert := state.PeerCertificates[0]
	if listed(l.envoy, cert) || listed(l.app, cert) || listed(l.replica, cert) {
		return nil
	}
	return fmt.Errorf("client certificate for %q matches no pattern of tls-client-san, tls-envoy-san, tls-app-san and tls-replica-san", sanNames(cert))
}

// checkApp refuses client certificates that are not for the admin API.
func (l *sanLists) checkApp(state tls.ConnectionState) error {
	if cert := state.PeerCertificates[0]; !listed(l.app, cert) {
		return fmt.Errorf("client certificate for %q matches no pattern of tls-app-san, which is tls-client-san unless set", sanNames(cert))
	}
	return nil
}

// checkReplica refuses certificates that other replicas would refuse.
func (l *sanLists) checkReplica(cert *x509.Certificate) error {
	if !listed(l.replica, cert) {
		return fmt.Errorf("client certificate for %q matches no pattern of tls-replica-san, which is tls-client-san unless set", sanNames(cert))
	}
	return nil
}

// permits returns what says who may call what; nil: clients show no certificates.
func (t *serverTLS) permits() func(tls.ConnectionState) func(service string) bool {
	if t == nil || t.clientCA == "" {
		return nil
	}
	return t.sans.permits
}

// adminCheck returns the check of client certificates of the admin API; nil: there is no TLS.
func (t *serverTLS) adminCheck() func(tls.ConnectionState) error {
	if t == nil {
		return nil
	}
	return t.sans.checkApp
}
