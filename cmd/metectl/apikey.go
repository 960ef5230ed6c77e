package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/meteproject/mete/plan"
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

// validKeyPrefix reports whether keys may start with s: class rules compare
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

// credentialText writes a Credential. fields are pairs of name and value; those
// without a value are left out.
func credentialText(hash string, fields []string) ([]byte, error) {
	spec := &yaml.Node{Kind: yaml.MappingNode}
	for i := 0; i+1 < len(fields); i += 2 {
		if fields[i+1] != "" {
			spec.Content = append(spec.Content, plain(fields[i]), quoted(fields[i+1]))
		}
	}
	return yaml.Dump(&yaml.Node{Kind: yaml.MappingNode, Content: []*yaml.Node{
		plain("apiVersion"), plain(plan.APIVersion),
		plain("kind"), plain(string(plan.KindCredential)),
		plain("metadata"),
		{Kind: yaml.MappingNode, Content: []*yaml.Node{plain("name"), quoted(hash)}},
		plain("spec"), spec,
	}}, yaml.WithIndent(2))
}

func plain(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Value: s} }

// quoted keeps a hash of digits alone, or a tenant with a colon, a text for every
// reader.
func quoted(s string) *yaml.Node {
	return &yaml.Node{Kind: yaml.ScalarNode, Value: s, Style: yaml.DoubleQuotedStyle}
}
