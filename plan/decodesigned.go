package plan

import (
	"encoding/base64"
	"encoding/hex"
	"slices"
	"strings"
)

// MaxSignedHeaders is how many signed headers an app may have: all of them are looked for
// in each request.
const MaxSignedHeaders = 32

// signedHeaders reads the headers by which services tell that they call on behalf of
// somebody, in the order written.
func (r *reader) signedHeaders(n *node, path string) []SignedHeader {
	var all []SignedHeader
	r.someEntries(n, path, func(key, value *node, path string) {
		name, ok := r.header(key, path, key.text)
		if ok && hasSignedHeader(all, name) {
			r.fail(key, path, "is written twice, for capitals do not count in headers; keep one")
		}
		h := SignedHeader{Name: name}
		o := r.object(value, path)
		if n := o.require("callers", "{NAME: {keys: [...]}}, the services whose tokens are honoured"); n != nil {
			r.someEntries(n, o.at("callers"), func(key, value *node, path string) {
				r.checkName(key, path, key.text)
				h.Callers = append(h.Callers, r.object(value, path).signingCaller(key.text))
			})
		}
		o.done()
		all = append(all, h)
	})
	if len(all) > MaxSignedHeaders {
		r.fail(n, path, "has %d headers; %d are the most that are verified, leave the others out", len(all), MaxSignedHeaders)
	}
	return all
}

func hasSignedHeader(all []SignedHeader, name string) bool {
	return slices.ContainsFunc(all, func(h SignedHeader) bool { return h.Name == name })
}

func (o *object) signingCaller(name string) SigningCaller {
	c := SigningCaller{Name: name, PeerSPIFFE: o.text("peer_spiffe_id")}
	if n := o.require("keys", "the public keys that its tokens are signed with, such as [\"ed25519:...\"]"); n != nil {
		o.some(n, o.at("keys"), func(item *node, path string) {
			key := o.publicKey(item, path)
			if key == nil {
				return
			}
			if slices.ContainsFunc(c.Keys, func(k []byte) bool { return slices.Equal(k, key) }) {
				o.fail(item, path, "is listed twice; keep one")
			}
			c.Keys = append(c.Keys, key)
		})
	}
	o.done()
	return c
}

// publicKey reads an Ed25519 public key, or reports why it is none and returns nil.
// It shows nothing of the text: somebody may have written the private key.
func (r *reader) publicKey(n *node, path string) []byte {
	s, ok := r.text(n, path)
	if !ok {
		return nil
	}
	const form = "write ed25519: and the base64 of the 32 bytes of the public key"
	digits, ok := strings.CutPrefix(s, "ed25519:")
	if !ok {
		r.fail(n, path, "%s is not a key of a kind that is known; %s", hidden(n), form)
		return nil
	}
	key, err := base64.StdEncoding.Strict().DecodeString(digits)
	switch {
	case err != nil:
		r.fail(n, path, "is no base64 after ed25519:; %s", form)
	case len(key) != 32:
		r.fail(n, path, "has %d bytes after ed25519:, not 32; %s", len(key), form)
	case isWeakKey(key):
		r.fail(n, path, "is a key under which anybody can sign, such as one of zeros; write the public key of the service")
	default:
		return key
	}
	return nil
}

// isWeakKey reports whether an Ed25519 public key is a point of small order. Such a
// key, and a placeholder of zeros is one, has signatures that hold for any text.
func isWeakKey(key []byte) bool {
	y := slices.Clone(key)
	y[31] &= 0x7f // the sign of x does not matter
	return slices.Contains([]string{
		"0000000000000000000000000000000000000000000000000000000000000000",
		"0100000000000000000000000000000000000000000000000000000000000000",
		"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
		"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
		"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
		"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	}, hex.EncodeToString(y))
}
