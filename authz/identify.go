package authz

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/meteproject/mete/plan"
)

// jwtNamespace is where Envoy's jwt_authn filter leaves verified claims.
const jwtNamespace = "envoy.filters.http.jwt_authn"

// jwtPayload is the payload_in_metadata name that claims are looked for under; a
// claim is also found at the top of the namespace.
const jwtPayload = "payload"

// maxTenantName is the longest name that a caller may bring.
const maxTenantName = 256

// maxPrincipalName is the longest name of a principal: that of a SPIFFE id. It is sent
// to the upstream and written to every log entry.
const maxPrincipalName = 2048

// maxKey is the longest API key that is known. Ours have 35 bytes.
const maxKey = 512

// A caller is who sent a request, once verified.
type caller struct {
	tenant    string
	principal string
	class     *plan.Class // nil: the app has no class that fits
	key       string      // the API key presented, for class rules; never kept
	signed    uint64      // the app's signed headers whose token holds, a bit each
}

// stable returns the tenant's name in a form that outlives the request.
func (c *caller) stable() string {
	if c.key != "" {
		return c.tenant // the credential's own
	}
	return strings.Clone(c.tenant)
}

// identify finds out who calls. It tells whether the caller is to be charged; if
// not, dec holds the answer.
//
// Whoever cannot be identified is let through, as nobody, where the route is neither
// metered nor checked: those who sign in have no credential yet (C38, C39). That it
// has none, or a bad one, is then for the upstream to find out.
func (d *Decider) identify(snap *plan.Snapshot, app *plan.App, now time.Time, req *Request, dec *Decision) (caller, bool) {
	c, ok := d.verify(snap, app, now, req, dec)
	if ok || dec.Outcome != Unauthenticated {
		return c, ok
	}
	if rule := d.rule(snap, app, req); rule != nil && !rule.Meter && !rule.Check {
		dec.Outcome, dec.Why, dec.Route = Exempt, "", rule.Name
	}
	return caller{}, false
}

// verify is identify for routes that anything is asked of.
//
// The first source that the request has anything for decides, so a bad key is
// never helped by a header that anybody can send.
func (d *Decider) verify(snap *plan.Snapshot, app *plan.App, now time.Time, req *Request, dec *Decision) (caller, bool) {
	var c caller
	if req.Tenant != "" {
		c.tenant = req.Tenant
		c.class = classNamed(app, req.Class)
	} else if !d.present(snap, app, now, req, dec, &c) {
		return c, false
	}
	if len(c.tenant) > maxTenantName {
		dec.Outcome, dec.Why = Unauthenticated, "the tenant's name is longer than 256 bytes"
		return c, false
	}
	if c.principal == "" {
		// It may point into the caller's buffer; a credential's does not.
		name := first(app.Identity.Principal, req)
		c.principal = strings.Clone(name[:min(len(name), maxPrincipalName+1)])
	}
	if len(c.principal) > maxPrincipalName {
		dec.Outcome, dec.Why = Unauthenticated, "the principal's name is longer than 2048 bytes"
		return c, false
	}
	c.signed = d.signed(app, now, req, &c)
	if class := classify(app, req, &c); c.class == nil || class != nil && class.SignedHeader != "" {
		c.class = class // who calls on behalf of a key is not of the key's own class
	}
	dec.Principal = c.principal
	if c.class != nil {
		dec.Class = c.class.Name
	}
	return c, true
}

// present looks for a credential or a trusted name in req.
func (d *Decider) present(snap *plan.Snapshot, app *plan.App, now time.Time, req *Request, dec *Decision, c *caller) bool {
	for i := range app.Identity.Tenant {
		source := &app.Identity.Tenant[i]
		value, ok := lookup(source, req)
		if !ok || value == "" {
			continue // an empty value is no identity (case C028)
		}
		if source.Kind != plan.SourceAPIKey {
			c.tenant = value
			return true
		}
		return authenticate(snap, app, now, value, dec, c)
	}
	if app.Identity.WithoutTenant == plan.Allow {
		dec.Outcome = Exempt // anonymous: no limit, no shared bucket (R14)
		return false
	}
	dec.Outcome, dec.Why = Unauthenticated, "the request carries no identity that this app knows"
	return false
}

// authenticate looks an API key up by its hash. The work does not depend on
// whether the key exists, and the key goes nowhere.
func authenticate(snap *plan.Snapshot, app *plan.App, now time.Time, key string, dec *Decision, c *caller) bool {
	var buf [maxKey]byte // on the stack: a conversion would allocate
	n := copy(buf[:], key)
	cred := snap.Credential(plan.Hash(sha256.Sum256(buf[:n])))
	switch {
	case cred == nil || n < len(key):
		dec.Outcome, dec.Why = Unauthenticated, "the API key is not known"
		return false
	case cred.Disabled:
		dec.Outcome, dec.Why = Unauthenticated, "the API key is disabled"
		return false
	case !cred.Expires.IsZero() && !now.Before(cred.Expires):
		dec.Outcome, dec.Why = Unauthenticated, "the API key has expired"
		return false
	}
	c.tenant, c.principal, c.key = cred.Tenant, cred.Principal, key
	if cred.Class != "" {
		c.class = classNamed(app, cred.Class)
	}
	return true
}

// first returns the value of the first source that req has one for.
func first(sources []plan.Source, req *Request) string {
	for i := range sources {
		if value, ok := lookup(&sources[i], req); ok && value != "" {
			return value
		}
	}
	return ""
}

// lookup returns what req has for a source.
func lookup(s *plan.Source, req *Request) (string, bool) {
	switch s.Kind {
	case plan.SourceAPIKey:
		return apiKey(s.Name, req)
	case plan.SourceRequestHeader:
		return req.identity(s.Name)
	case plan.SourceJWTClaim:
		return claim(req, s.Path)
	case plan.SourceMetadata:
		if req.Metadata == nil {
			return "", false
		}
		return req.Metadata.Lookup(s.Name, s.Path)
	case plan.SourcePeerSPIFFE:
		return req.Peer, req.Peer != "" && plan.MatchPattern(s.Name, req.Peer)
	case plan.SourceContextExtension:
		return req.Extension(s.Name)
	case plan.SourceNone, plan.SourceResponseHeader, plan.SourceResponseTrailer, plan.SourceReport:
	}
	return "", false
}

// apiKey returns the key in a header; in Authorization, the Bearer token (RFC
// 6750). Another scheme there is no API key.
func apiKey(header string, req *Request) (string, bool) {
	value, ok := req.identity(header)
	if !ok || header != "authorization" {
		return value, ok
	}
	const scheme = "bearer "
	if len(value) < len(scheme) || !strings.EqualFold(value[:len(scheme)], scheme) {
		return "", false
	}
	return strings.TrimSpace(value[len(scheme):]), true
}

// claim returns a verified claim: from the payload, or from the top of the
// namespace for filters that put single claims there.
func claim(req *Request, path []string) (string, bool) {
	if req.Metadata == nil {
		return "", false
	}
	under := append(append(req.claim[:0], jwtPayload), path...)
	if value, ok := req.Metadata.Lookup(jwtNamespace, under); ok {
		return value, true
	}
	return req.Metadata.Lookup(jwtNamespace, path)
}

// hasClaim tells whether there is a verified claim, be it a list or a map, such as the
// "act" of RFC 8693.
func hasClaim(req *Request, path []string) bool {
	if req.Metadata == nil {
		return false
	}
	under := append(append(req.claim[:0], jwtPayload), path...)
	return req.Metadata.Has(jwtNamespace, under) || req.Metadata.Has(jwtNamespace, path)
}

// classify returns the first class whose conditions all hold.
func classify(app *plan.App, req *Request, c *caller) *plan.Class {
	for i := range app.Identity.Classes {
		if class := &app.Identity.Classes[i]; fits(app, class, req, c) {
			return class
		}
	}
	return nil
}

func fits(app *plan.App, c *plan.Class, req *Request, who *caller) bool {
	if len(c.CredentialPrefix) > 0 && !hasPrefix(who.key, c.CredentialPrefix) {
		return false
	}
	if c.SignedHeader != "" && !holdsHeader(app, who.signed, c.SignedHeader) {
		return false
	}
	if c.JWTClaimPresent != nil {
		if !hasClaim(req, c.JWTClaimPresent) {
			return false
		}
	}
	return c.PeerSPIFFE == "" || req.Peer != "" && plan.MatchPattern(c.PeerSPIFFE, req.Peer)
}

func hasPrefix(key string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}

func classNamed(app *plan.App, name string) *plan.Class {
	for i := range app.Identity.Classes {
		if app.Identity.Classes[i].Name == name {
			return &app.Identity.Classes[i]
		}
	}
	return nil
}
