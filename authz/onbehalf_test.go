package authz_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

// A service signs tokens.
type service struct {
	name string
	key  ed25519.PrivateKey
}

func newService(name string) service {
	seed := [ed25519.SeedSize]byte{}
	copy(seed[:], name)
	return service{name, ed25519.NewKeyFromSeed(seed[:])}
}

// public is the service's key as documents write it.
func (s service) public() string {
	return "ed25519:" + base64.StdEncoding.EncodeToString(s.key.Public().(ed25519.PublicKey))
}

// sign returns a token of a header and claims as they are.
func (s service) sign(header, claims string) string {
	text := raw(header) + "." + raw(claims)
	return text + "." + raw(string(ed25519.Sign(s.key, []byte(text))))
}

func raw(s string) string { return base64.RawURLEncoding.EncodeToString([]byte(s)) }

const onBehalfHeader = `{"alg":"EdDSA","typ":"mete-on-behalf+jwt"}`

// token returns a token for u_1 of org:a, as of now, with some claims changed; nil
// leaves one out.
func (s service) token(changes map[string]any) string {
	now := time.Now().Unix()
	claims := map[string]any{"iss": s.name, "sub": "u_1", "tenant": "org:a", "iat": now, "exp": now + 120}
	maps.Copy(claims, changes)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	text, _ := json.Marshal(claims)
	return s.sign(onBehalfHeader, string(text))
}

// onBehalfDocs are an app that honours x-on-behalf of ask, which may change its key, and
// of pipeline, which has to come by its own certificate.
func onBehalfDocs(ask, next, pipeline service) string {
	return fmt.Sprintf(`
apiVersion: mete/v1
kind: App
metadata: {name: console}
spec:
  time_zone: UTC
  units: {ai: {}}
  identity:
    tenant: [{api_key: x-api-key}, {request_header: x-tenant}]
    principal: [{request_header: x-user}]
    signed_headers:
      X-On-Behalf:
        callers:
          ask: {keys: [%q, %q]}
          pipeline: {keys: [%q], peer_spiffe_id: "spiffe://example.org/ns/*/sa/pipeline"}
    classes:
      - {name: on_behalf, when: {signed_header: x-on-behalf}, meter: false, check: false, reason: the call of the user is counted already, still_spends: [ai]}
      - {name: people}
---
apiVersion: mete/v1
kind: Routes
metadata: {name: console}
spec:
  app: console
  rules:
    - {name: generate, match: {path: /generate}, units: {ai: {reserve: 1}}}
    - {name: profile, match: {path: /profile}, meter: false, check: false, reason: every page asks for it}
`, ask.public(), next.public(), pipeline.public()) + planDoc("dev", `calls: {kind: quota, amount: 3, reset: {calendar: day}}
ai: {kind: quota, amount: 2, unit: ai, reset: {calendar: day}}
per_minute: {kind: rate, amount: 100, window: 1m}`) + tenantDoc("org:a", "{plan: dev}") + tenantDoc("org:b", "{plan: dev}") +
		credentialDoc("mk_1", `{tenant: "org:a", principal: u_1, class: people}`)
}

// An onBehalfDesk is a desk and the services that its app honours.
type onBehalfDesk struct {
	*desk
	signer, next, pipeline service
}

func newOnBehalfDesk(t *testing.T) *onBehalfDesk {
	t.Helper()
	ask, next, pipeline := newService("ask"), newService("ask"), newService("pipeline")
	next.key = newService("another key").key
	return &onBehalfDesk{newDesk(t, onBehalfDocs(ask, next, pipeline)), ask, next, pipeline}
}

// user is a request of u_1 of org:a, with a token if it is not "".
func user(token string) authz.Request {
	req := from("org:a")
	req.Headers = append(req.Headers, authz.Field{Name: "x-user", Value: "u_1"})
	if token != "" {
		req.Headers = append(req.Headers, authz.Field{Name: "x-on-behalf", Value: token})
	}
	return req
}

// rejected returns how often x-on-behalf was rejected for a reason; all: for any.
func (k *onBehalfDesk) rejected(reason string) int64 {
	all := int64(0)
	for key, n := range k.d.Stats().OnBehalfRejected {
		if key.App != "console" || key.Header != "x-on-behalf" {
			k.t.Errorf("a rejection is counted under %+v", key)
		}
		if reason == "all" || key.Reason == reason {
			all += n
		}
	}
	return all
}

func TestOnBehalf_C8_C9_ASignedHopIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newOnBehalfDesk(t)
		token := k.signer.token(nil)
		for range 5 { // more than the quota holds
			dec := k.must(user(token), authz.Exempt)
			if dec.Class != "on_behalf" || dec.Tenant != "org:a" || dec.Principal != "u_1" {
				t.Fatalf("class %q, tenant %q, principal %q", dec.Class, dec.Tenant, dec.Principal)
			}
		}
		k.must(user(k.next.token(map[string]any{"jti": "one of many"})), authz.Exempt) // the next key is honoured, too
		if left := limit(t, k.must(user(""), authz.Allowed), "calls").Left; left != 2 {
			t.Errorf("%d calls left, want 2: hops were charged", left)
		}
		for range 2 {
			k.must(user(""), authz.Allowed)
		}
		k.must(user(""), authz.QuotaExceeded)
		k.must(user(token), authz.Exempt) // nor is a hop refused by what the user has spent
		if n := k.rejected("all"); n != 0 {
			t.Errorf("%d rejected", n)
		}
	})
}

// A caller on behalf of a key is not of the class that the key names.
func TestOnBehalf_C8_OfAKeyWithAClassOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newOnBehalfDesk(t)
		req := with("x-api-key", "mk_1")
		if dec := k.must(req, authz.Allowed); dec.Class != "people" {
			t.Errorf("class %q", dec.Class)
		}
		req.Headers = append(req.Headers, authz.Field{Name: "x-on-behalf", Value: k.signer.token(nil)})
		k.must(req, authz.Exempt)
	})
}

// Everything about a token that may be wrong, one by one. The request is billed as
// usual and the header counted; the answer does not repeat the token.
func TestOnBehalf_C9_C10_WhatDoesNotHoldIsCountedAndBilled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newOnBehalfDesk(t)
		for name, test := range k.badTokens() {
			before, all := k.rejected(test.reason), k.rejected("all")
			dec := k.ask(user(test.token))
			if dec.Class != "people" || dec.Outcome == authz.Exempt || len(dec.Limits) != 2 {
				t.Errorf("%s: class %q, %q: the request is not billed as usual", name, dec.Class, dec.Outcome.Word())
			}
			if strings.Contains(dec.Why, test.token) {
				t.Errorf("%s: the answer repeats the token", name)
			}
			if k.rejected(test.reason) != before+1 || k.rejected("all") != all+1 {
				t.Errorf("%s: not counted once as %s: %v", name, test.reason, k.d.Stats().OnBehalfRejected)
			}
		}
		all := k.rejected("all")
		k.must(user(""), authz.QuotaExceeded)
		empty := user("")
		empty.Headers = append(empty.Headers, authz.Field{Name: "x-on-behalf"})
		k.must(empty, authz.QuotaExceeded)
		if n := k.rejected("all"); n != all {
			t.Errorf("requests without the header are counted: %d, want %d", n, all)
		}
	})
}

// A badToken is a token that does not hold.
type badToken struct{ token, reason string }

// badTokens are all the ways in which a token may be wrong.
func (k *onBehalfDesk) badTokens() map[string]badToken {
	bad := k.badForms()
	maps.Copy(bad, k.badClaims())
	return bad
}

// badForms are wrong in form, or signed by somebody else.
func (k *onBehalfDesk) badForms() map[string]badToken {
	now := time.Now().Unix()
	claims := func(more string) string {
		return fmt.Sprintf(`{"iss":"ask","sub":"u_1","tenant":"org:a","iat":%d,"exp":%d%s}`, now, now+120, more)
	}
	good := k.signer.token(nil)
	parts := strings.Split(good, ".")
	header := func(h string) string { return k.signer.sign(h, claims("")) }
	return map[string]badToken{
		"of a user":           {newService("mallory").sign(onBehalfHeader, claims("")), "wrong_signature"},
		"no signature":        {parts[0] + "." + parts[1] + ".", "malformed"},
		"zero signature":      {parts[0] + "." + parts[1] + "." + raw(strings.Repeat("\x00", 64)), "wrong_signature"},
		"other claims":        {parts[0] + "." + raw(claims(`,"jti":"x"`)) + "." + parts[2], "wrong_signature"},
		"pipeline's key":      {service{"ask", k.pipeline.key}.token(nil), "wrong_signature"},
		"unknown caller":      {newService("billing").token(nil), "wrong_caller"},
		"other peer":          {k.pipeline.token(nil), "wrong_peer"},
		"alg none":            {raw(`{"alg":"none","typ":"mete-on-behalf+jwt"}`) + "." + parts[1] + "." + parts[2], "wrong_algorithm"},
		"alg HS256":           {header(`{"alg":"HS256","typ":"mete-on-behalf+jwt"}`), "wrong_algorithm"},
		"alg missing":         {header(`{"typ":"mete-on-behalf+jwt"}`), "wrong_algorithm"},
		"a bearer token":      {header(`{"alg":"EdDSA","typ":"JWT","kid":"1","x5t":"x"}`), "wrong_type"},
		"no type":             {header(`{"alg":"EdDSA"}`), "wrong_type"},
		"other spelling":      {header(`{"alg":"EdDSA","typ":"METE-on-behalf+jwt"}`), "wrong_type"},
		"crit":                {header(`{"alg":"EdDSA","typ":"mete-on-behalf+jwt","crit":["exp"]}`), "malformed"},
		"crit as a text":      {header(`{"alg":"EdDSA","typ":"mete-on-behalf+jwt","crit":"exp"}`), "malformed"},
		"nested":              {header(`{"alg":"EdDSA","typ":"mete-on-behalf+jwt","cty":"JWT"}`), "malformed"},
		"a token in a token":  {k.signer.sign(onBehalfHeader, good), "malformed"},
		"type twice":          {header(`{"alg":"EdDSA","typ":"JWT","typ":"mete-on-behalf+jwt"}`), "malformed"},
		"user twice":          {k.signer.sign(onBehalfHeader, claims(`,"sub":"u_1"`)), "malformed"},
		"user twice, escaped": {k.signer.sign(onBehalfHeader, claims(`,"\u0073ub":"u_1"`)), "malformed"},
		"audience":            {k.signer.sign(onBehalfHeader, claims(`,"aud":"another"`)), "malformed"},
		"not before":          {k.signer.sign(onBehalfHeader, claims(fmt.Sprintf(`,"nbf":%d`, now+60))), "malformed"},
		"more text":           {k.signer.sign(onBehalfHeader, claims("")+"{}"), "malformed"},
		"no UTF-8":            {k.signer.sign(onBehalfHeader, claims(`,"jti":"`+"\xff"+`"`)), "malformed"},
		"array":               {k.signer.sign(onBehalfHeader, `[]`), "malformed"},
		"null":                {k.signer.sign(onBehalfHeader, `null`), "malformed"},
		"padding":             {k.signer.sign(onBehalfHeader, claims(`,"jti":"1"`)) + "==", "malformed"},
		"standard base64":     {strings.ReplaceAll(k.signer.sign(onBehalfHeader, claims(`,"jti":"???>>>"`)), "_", "/"), "malformed"},
		"loose bits":          {loosened(good), "malformed"},
		"a line end":          {good[:5] + "\n" + good[5:], "malformed"},
		"four parts":          {good + ".x", "malformed"},
		"two parts":           {parts[0] + "." + parts[1], "malformed"},
		"a blank":             {good + " ", "malformed"},
		"bearer scheme":       {"Bearer " + good, "malformed"},
		"oversized":           {k.signer.sign(onBehalfHeader, claims(`,"jti":"`+strings.Repeat("x", 4096)+`"`)), "malformed"},
		"two values":          {good + "," + good, "malformed"},
	}
}

// badClaims are true in form and signature.
func (k *onBehalfDesk) badClaims() map[string]badToken {
	now := time.Now().Unix()
	change := func(name string, v any) string { return k.signer.token(map[string]any{name: v}) }
	return map[string]badToken{
		"other user":            {change("sub", "u_2"), "wrong_user"},
		"other tenant":          {change("tenant", "org:b"), "wrong_user"},
		"no user":               {change("sub", nil), "malformed"},
		"empty user":            {change("sub", ""), "malformed"},
		"no tenant":             {change("tenant", nil), "malformed"},
		"user is a number":      {change("sub", 1), "malformed"},
		"no caller":             {change("iss", nil), "malformed"},
		"no begin":              {change("iat", nil), "malformed"},
		"no end":                {change("exp", nil), "malformed"},
		"end is a text":         {change("exp", fmt.Sprint(now+100)), "malformed"},
		"end with a fraction":   {change("exp", float64(now)+99.5), "malformed"},
		"end before the begin":  {k.signer.token(map[string]any{"iat": now, "exp": now}), "malformed"},
		"end out of all bounds": {k.signer.token(map[string]any{"iat": int64(1)<<62 - 1, "exp": int64(1) << 62}), "malformed"},
		"121 seconds":           {change("exp", now+121), "lives_too_long"},
		"from the future":       {k.signer.token(map[string]any{"iat": now + 6, "exp": now + 60}), "not_yet_valid"},
		"expired":               {k.signer.token(map[string]any{"iat": now - 60, "exp": now}), "expired"},
	}
}

// loosened returns a token whose last character has another value in the bits that a
// decoder may pass over.
func loosened(token string) string {
	const alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	last := strings.IndexByte(alphabet, token[len(token)-1])
	return token[:len(token)-1] + alphabet[last|1:last|1+1]
}

// Two lines are two values in one of Envoy's forms of headers and one list in the other.
func TestOnBehalf_C10_TwoLinesAreNone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newOnBehalfDesk(t)
		for _, second := range []string{k.signer.token(map[string]any{"jti": "2"}), k.signer.token(nil), "", "x"} {
			req := user(k.signer.token(nil))
			req.Headers = append(req.Headers, authz.Field{Name: "x-on-behalf", Value: second})
			if dec := k.ask(req); dec.Class != "people" {
				t.Errorf("class %q", dec.Class)
			}
		}
		if n := k.rejected("malformed"); n != 4 {
			t.Errorf("%d counted, want 4", n)
		}
	})
}

// A token lasts as long as it says, and a verified one is not remembered past that, nor
// for anybody else.
func TestOnBehalf_C9_BoundToTimeUserAndPeer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newOnBehalfDesk(t)
		ahead := time.Now().Unix() + 5
		k.must(user(k.signer.token(map[string]any{"iat": ahead, "exp": ahead + 60})), authz.Exempt) // a clock that is 5 s ahead
		token, own := k.signer.token(nil), k.pipeline.token(nil)
		k.must(user(token), authz.Exempt)
		stranger := user(token)
		stranger.Headers[1].Value = "u_2"
		k.must(stranger, authz.Allowed)
		other := user(token)
		other.Headers[0].Value = "org:b"
		k.must(other, authz.Allowed)
		if n := k.rejected("wrong_user"); n != 2 {
			t.Errorf("%d wrong users, want 2", n)
		}
		byPipeline := user(own)
		byPipeline.Peer = "spiffe://example.org/ns/x/sa/pipeline"
		k.must(byPipeline, authz.Exempt)
		byPipeline.Peer = "spiffe://example.org/ns/x/sa/ask"
		k.must(byPipeline, authz.Allowed)
		k.must(user(own), authz.Allowed) // nobody's certificate
		if n := k.rejected("wrong_peer"); n != 2 {
			t.Errorf("%d wrong peers, want 2", n)
		}
		time.Sleep(119 * time.Second)
		k.must(user(token), authz.Exempt)
		time.Sleep(time.Second)
		k.must(user(token), authz.QuotaExceeded)
		if n := k.rejected("expired"); n != 1 {
			t.Errorf("%d expired, want 1", n)
		}
	})
}

// A token without a principal in the request is for nobody.
func TestOnBehalf_C9_NoPrincipalNoToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newOnBehalfDesk(t)
		req := from("org:a")
		req.Headers = append(req.Headers, authz.Field{Name: "x-on-behalf", Value: k.signer.token(nil)})
		k.must(req, authz.Allowed)
		if n := k.rejected("wrong_user"); n != 1 {
			t.Errorf("%d wrong users, want 1", n)
		}
	})
}

// A key that is withdrawn ends the tokens that were verified by it.
func TestOnBehalf_C9_AWithdrawnKeyEndsItsTokens(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newOnBehalfDesk(t)
		token, next := k.signer.token(nil), k.next.token(nil)
		k.must(user(token), authz.Exempt)
		k.must(user(next), authz.Exempt)
		k.put(onBehalfDocs(k.next, k.pipeline, k.pipeline))
		k.must(user(token), authz.Allowed)
		k.must(user(next), authz.Exempt)
		if n := k.rejected("wrong_signature"); n != 1 {
			t.Errorf("%d wrong signatures, want 1", n)
		}
	})
}

// A request that waits for a lease is decided twice and counted once.
func TestOnBehalf_C10_CountedOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newOnBehalfDesk(t)
		k.store.slow(50 * time.Millisecond)
		req := user("forged")
		req.Extensions = []authz.Field{{Name: "mete-route", Value: "unknown"}}
		k.must(req, authz.Allowed)
		if s := k.d.Stats(); k.rejected("malformed") != 1 || s.UnknownRoutes["console"] != 1 {
			t.Errorf("counted %v and %v, want 1 each", s.OnBehalfRejected, s.UnknownRoutes)
		}
	})
}

// A delegated hop takes what routes reserve of the units that its class still spends,
// and is refused for them, but no calls.
func TestOnBehalf_C11_StillTakesReservations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newOnBehalfDesk(t)
		hop := user(k.signer.token(nil))
		hop.Path = "/generate"
		for range 2 {
			dec := k.must(hop, authz.Allowed)
			if dec.Class != "on_behalf" || len(dec.Limits) != 1 || dec.Limits[0].Limit.Name != "ai" {
				t.Fatalf("class %q, limits %s; want ai alone", dec.Class, show(dec))
			}
		}
		k.must(hop, authz.QuotaExceeded)
		own := user("")
		own.Path = "/generate"
		k.must(own, authz.QuotaExceeded) // one budget
		profile := hop
		profile.Path = "/profile"
		k.must(profile, authz.Exempt) // the route is free for everybody
		hop.Path = "/"
		k.must(hop, authz.Exempt) // it reserves nothing
		if left := limit(t, k.must(user(""), authz.Allowed), "calls").Left; left != 2 {
			t.Errorf("%d calls left, want 2", left)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for _, key := range k.memory.Accounts() {
			if used := k.memory.Account(key).Used(); used != map[string]int64{"ai": 2, "calls": 1}[key.Limit] {
				t.Errorf("%s: used %d", key.Limit, used)
			}
		}
	})
}
