package authz

import (
	"crypto/sha256"
	"strings"
	"time"

	"github.com/meteproject/mete/plan"
)

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

// identify finds out who calls. It reports whether the caller is to be charged; if
// not, dec holds the answer.
//
// A caller that cannot be identified is let through, without a tenant, where the route is neither
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
// The first source that the request has anything for decides, usable or not, so a bad
// key or a malformed claim is never helped by a header that anybody can send.
func (d *Decider) verify(snap *plan.Snapshot, app *plan.App, now time.Time, req *Request, dec *Decision) (caller, bool) {
	var c caller
	if req.Tenant != "" {
		c.tenant = req.Tenant
		c.class = classNamed(app, req.Class)
	} else if !d.present(snap, app, now, req, dec, &c) {
		return c, false
	}
	if !plan.IsTenant(c.tenant) {
		return c, refuseCaller(dec, "the tenant is not a name of 1 to 256 bytes without commas and control characters")
	}
	if c.principal == "" && !principal(app, req, dec, &c) {
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

// refuseCaller makes dec a 401, and returns false.
func refuseCaller(dec *Decision, why string) bool {
	dec.Outcome, dec.Why = Unauthenticated, why
	return false
}

// present looks for a credential or a trusted name in req.
func (d *Decider) present(snap *plan.Snapshot, app *plan.App, now time.Time, req *Request, dec *Decision, c *caller) bool {
	i, value, found := firstOf(app.Identity.Tenant, req)
	if i < 0 {
		if app.Identity.WithoutTenant == plan.Allow {
			dec.Outcome = Exempt // anonymous: no limit, no shared bucket (R14)
			return false
		}
		return refuseCaller(dec, lookedFor(app.Identity.Tenant, req))
	}
	source := &app.Identity.Tenant[i]
	if found != Value {
		return refuseCaller(dec, found.fault(source))
	}
	if source.Kind == plan.SourceAPIKey {
		return authenticate(snap, app, now, value, source, dec, c)
	}
	if c.tenant = shaped(source, req, value); !plan.IsTenant(value) || !plan.IsTenant(c.tenant) {
		return refuseCaller(dec, Other.fault(source))
	}
	return true
}

// principal finds out who acts for c's tenant, if any source tells.
func principal(app *plan.App, req *Request, dec *Decision, c *caller) bool {
	i, value, found := firstOf(app.Identity.Principal, req)
	switch {
	case i < 0:
		return true
	case found != Value:
		return refuseCaller(dec, found.fault(&app.Identity.Principal[i]))
	}
	source := &app.Identity.Principal[i]
	if !source.As.IsZero() {
		value = string(appendShaped(nil, source, value)) // not where the tenant's name is
	}
	if len(value) > maxPrincipalName {
		return refuseCaller(dec, "the principal's name is longer than 2048 bytes")
	}
	c.principal = strings.Clone(value) // it may point into the caller's buffer; a credential's does not
	return true
}

// authenticate looks the API key of a source up by its hash. The work does not depend on
// whether the key exists, and the key goes nowhere.
func authenticate(snap *plan.Snapshot, app *plan.App, now time.Time, key string, source *plan.Source, dec *Decision, c *caller) bool {
	var buf [maxKey]byte // on the stack: a conversion would allocate
	n := copy(buf[:], key)
	cred := snap.Credential(plan.Hash(sha256.Sum256(buf[:n])))
	fault := ""
	switch {
	case cred == nil || n < len(key):
		fault = "is not known"
	case cred.Disabled:
		fault = "is disabled"
	case !cred.Expires.IsZero() && !now.Before(cred.Expires):
		fault = "has expired"
	case !snap.HasTenant(cred.Tenant):
		fault = "belongs to a tenant that is not there any more" // and defaults.plan is for others
	}
	if fault != "" {
		return refuseCaller(dec, "the "+what(source)+" "+fault)
	}
	c.tenant, c.principal, c.key = cred.Tenant, cred.Principal, key
	if cred.Class != "" {
		c.class = classNamed(app, cred.Class)
	}
	return true
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
