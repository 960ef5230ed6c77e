package authz

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"slices"
	"strings"
	"time"

	"github.com/meteproject/mete/plan"
)

// A rejection is why a signed header's token does not hold, as a word for metrics; "":
// it holds.
type rejection string

const (
	tokenMalformed      rejection = "malformed"       // no such token, or one that says more than is understood
	tokenWrongType      rejection = "wrong_type"      // another kind of token, such as a bearer's
	tokenWrongAlgorithm rejection = "wrong_algorithm" // not EdDSA
	tokenTooLong        rejection = "lives_too_long"
	tokenWrongCaller    rejection = "wrong_caller"    // signed for a service that is not honoured
	tokenWrongPeer      rejection = "wrong_peer"      // sent by another service than signed it
	tokenWrongSignature rejection = "wrong_signature" // by none of the caller's keys
	tokenEarly          rejection = "not_yet_valid"
	tokenExpired        rejection = "expired"
	tokenWrongUser      rejection = "wrong_user" // another principal or tenant than calls
)

// An OnBehalfKey tells which signed header was rejected, and in a word why.
type OnBehalfKey struct{ App, Header, Reason string }

// notedRoute is the bit of Request.noted after those of the signed headers.
const notedRoute = 1 << plan.MaxSignedHeaders

// clockSkew is how far the signing service's clock may be ahead of ours.
const clockSkew = 5 * time.Second

// signed verifies the tokens of the app's signed headers in req, whose sender c is
// verified but for its class. It returns the headers whose token holds, a bit each.
// Those that do not hold are counted, and the request is an ordinary one (C10).
func (d *Decider) signed(app *plan.App, now time.Time, req *Request, c *caller) (holds uint64) {
	for i := range app.Identity.SignedHeaders[:min(len(app.Identity.SignedHeaders), plan.MaxSignedHeaders)] {
		h := &app.Identity.SignedHeaders[i]
		token, lines := req.lines(h.Name)
		if token == "" && lines < 2 {
			continue
		}
		why := tokenMalformed // of two lines, nobody knows which one the upstream reads
		if lines == 1 {
			why = d.verified.check(h, token, now, req.Peer, c)
		}
		if why == "" {
			holds |= 1 << i
		} else if req.noted&(1<<i) == 0 { // a request that waits is decided several times
			req.noted |= 1 << i
			d.stats.rejectOnBehalf(OnBehalfKey{app.Name, h.Name, string(why)})
		}
	}
	return holds
}

// check verifies a token in header h of a request by c, sent by peer: it is signed by
// a service that h names, for this very principal and tenant, and lasts (C9).
func (v *verified) check(h *plan.SignedHeader, token string, now time.Time, peer string, c *caller) rejection {
	if len(token) > maxOnBehalf {
		return tokenMalformed
	}
	var buf [maxOnBehalf]byte // on the stack: a conversion would allocate
	sum := sha256.Sum256(buf[:copy(buf[:], token)])
	o := v.find(&sum)
	known := o != nil
	if !known {
		var why rejection
		if o, why = parseOnBehalf(token); why != "" {
			return why
		}
	}
	by := signingCaller(h, o.issuer)
	switch {
	case by == nil:
		return tokenWrongCaller
	case by.PeerSPIFFE != "" && (peer == "" || !plan.MatchPattern(by.PeerSPIFFE, peer)):
		return tokenWrongPeer
	}
	if !known || !hasKey(by, o.key[:]) { // a key may have been withdrawn since, or be another app's
		key := signer(by, token)
		if key == nil {
			return tokenWrongSignature
		}
		fresh := *o
		fresh.sum, fresh.key = sum, [ed25519.PublicKeySize]byte(key)
		v.add(&fresh)
	}
	return o.holds(now, c)
}

// holds reports whether a token of a true signature is for this moment and this caller.
func (o *onBehalf) holds(now time.Time, c *caller) rejection {
	switch {
	case now.Before(time.Unix(o.issued, 0).Add(-clockSkew)):
		return tokenEarly
	case !now.Before(time.Unix(o.expires, 0)):
		return tokenExpired
	case o.user != c.principal || o.tenant != c.tenant:
		return tokenWrongUser
	}
	return ""
}

func signingCaller(h *plan.SignedHeader, name string) *plan.SigningCaller {
	for i := range h.Callers {
		if h.Callers[i].Name == name {
			return &h.Callers[i]
		}
	}
	return nil
}

// holdsHeader reports whether the token of a signed header holds.
func holdsHeader(app *plan.App, signed uint64, name string) bool {
	for i := range app.Identity.SignedHeaders {
		if app.Identity.SignedHeaders[i].Name == name {
			return signed>>i&1 == 1
		}
	}
	return false
}

func hasKey(by *plan.SigningCaller, key []byte) bool {
	return slices.ContainsFunc(by.Keys, func(k []byte) bool { return bytes.Equal(k, key) })
}

// signer returns the key of by that a token is signed with, or nil.
func signer(by *plan.SigningCaller, token string) []byte {
	end := strings.LastIndexByte(token, '.')
	if end < 0 {
		return nil
	}
	signature := segment(token[end+1:])
	for _, key := range by.Keys {
		if len(key) == ed25519.PublicKeySize && ed25519.Verify(key, []byte(token[:end]), signature) {
			return key
		}
	}
	return nil
}
