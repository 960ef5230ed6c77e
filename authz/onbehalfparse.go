package authz

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// onBehalfType is the "typ" of an on-behalf token. No bearer token has it, and who
// checks the type of bearer tokens (RFC 8725 section 3.11) takes none of ours for one.
const onBehalfType = "mete-on-behalf+jwt"

const (
	maxOnBehalf  = 4 << 10 // bytes of a token
	onBehalfLife = 120     // seconds that a token may last
	latestSecond = 1 << 40 // so that no sum of times overflows
)

// An onBehalf is what a token of a signed header says.
type onBehalf struct {
	issuer, user, tenant string
	issued, expires      int64 // seconds since 1970

	// Once the signature is verified: the token's hash, and the key.
	sum [32]byte
	key [ed25519.PublicKeySize]byte
}

// parseOnBehalf reads a token (a JWS in compact form, RFC 7515), whose signature it
// does not verify. A token that says anything that is not understood here, such as
// "crit", "cty" or "aud", is none: nobody shall rely on a condition that is not checked.
func parseOnBehalf(token string) (*onBehalf, rejection) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(segment(parts[2])) != ed25519.SignatureSize {
		return nil, tokenMalformed
	}
	header, claims := object(segment(parts[0])), object(segment(parts[1]))
	switch {
	case header == nil:
		return nil, tokenMalformed
	case header["typ"] != onBehalfType:
		return nil, tokenWrongType
	case header["alg"] != "EdDSA":
		return nil, tokenWrongAlgorithm
	case !only(header, "typ", "alg", "kid") || !only(claims, "iss", "sub", "tenant", "iat", "exp", "jti"):
		return nil, tokenMalformed
	}
	o := new(onBehalf)
	for name, to := range map[string]*string{"iss": &o.issuer, "sub": &o.user, "tenant": &o.tenant} {
		if *to, _ = claims[name].(string); *to == "" {
			return nil, tokenMalformed
		}
	}
	var ok bool
	if o.issued, ok = second(claims["iat"]); !ok {
		return nil, tokenMalformed
	}
	if o.expires, ok = second(claims["exp"]); !ok || o.expires <= o.issued {
		return nil, tokenMalformed
	}
	if o.expires-o.issued > onBehalfLife {
		return nil, tokenTooLong
	}
	return o, ""
}

// second returns a time in whole seconds since 1970, as a claim has it.
func second(claim any) (int64, bool) {
	number, ok := claim.(json.Number)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(number.String(), 10, 64)
	return n, err == nil && n > 0 && n < latestSecond
}

// segment decodes one part of a token: base64url without padding, in its one
// spelling. It returns nil for anything else.
func segment(part string) []byte {
	if strings.ContainsAny(part, "\r\n") { // the decoder passes over them
		return nil
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return nil
	}
	return b
}

// object reads a JSON object of strings and numbers. It returns nil for anything
// else, such as an object that has a name twice.
func object(text []byte) map[string]any {
	if !utf8.Valid(text) || !json.Valid(text) {
		return nil
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if begin, err := d.Token(); err != nil || begin != json.Delim('{') {
		return nil
	}
	members := map[string]any{}
	for d.More() {
		key, _ := d.Token()
		name, ok := key.(string)
		value, err := d.Token()
		if _, twice := members[name]; !ok || err != nil || twice {
			return nil
		}
		switch value.(type) {
		case string, json.Number:
			members[name] = value
		default: // the beginning of an object or array, too
			return nil
		}
	}
	if end, err := d.Token(); err != nil || end != json.Delim('}') {
		return nil
	}
	if _, err := d.Token(); err != io.EOF {
		return nil
	}
	return members
}

// only reports whether members are there and have no other names than these.
func only(members map[string]any, names ...string) bool {
	known := 0
	for _, name := range names {
		if _, ok := members[name]; ok {
			known++
		}
	}
	return members != nil && known == len(members)
}
