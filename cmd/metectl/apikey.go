package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"
)

// newAPIKey makes an API key: the prefix, "_", and 256 random bits in letters
// and digits that survive a double click and a shell. Only its hash is stored.
func newAPIKey(prefix string) (key, hash string) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	text := base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(secret)
	key = prefix + "_" + strings.ToLower(text)
	sum := sha256.Sum256([]byte(key))
	return key, hex.EncodeToString(sum[:])
}

// validKeyPrefix tells whether keys may start with s: class rules compare
// prefixes, and a key travels in headers.
func validKeyPrefix(s string) bool {
	if s == "" || len(s) > 16 {
		return false
	}
	for _, r := range s {
		if (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '_' {
			return false
		}
	}
	return s[0] != '_' && s[len(s)-1] != '_'
}
