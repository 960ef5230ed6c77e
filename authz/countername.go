package authz

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// longestCounter is how many bytes the name of a counter may have: it is part of a key
// of etcd, and kept for each counter. Of longer ones it is the beginning, and a hash.
const longestCounter = 256

// keptOfCounter is how many bytes of a longer name are its beginning.
const keptOfCounter = longestCounter - 2*sha256.Size - 1

// CounterTenant returns the tenant that the accounts of a counter have, and that voids its
// leases and its bucket: the name that a [plan.DescriptorTable] appends, or of one of more
// than 256 bytes its beginning, a "!", which no name has of its own, and a hash of all.
func CounterTenant(name string) string { return string(shorten([]byte(name), 0)) }

// WholeCounter reports whether a counter's tenant is its name.
func WholeCounter(tenant string) bool {
	return len(tenant) != longestCounter || !strings.HasPrefix(tenant[keptOfCounter:], "!")
}

// CounterPrefix returns what the tenants of all counters begin with whose names begin with
// prefix.
func CounterPrefix(prefix string) string { return prefix[:min(len(prefix), keptOfCounter)] }

// shorten makes a tenant of the name that begins at from.
func shorten(names []byte, from int) []byte {
	if len(names)-from <= longestCounter {
		return names
	}
	hash := sha256.Sum256(names[from:])
	return hex.AppendEncode(append(names[:from+keptOfCounter], '!'), hash[:])
}
