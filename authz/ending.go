package authz

import (
	"sync/atomic"
	"time"
)

// An Ending is how an admitted request went, as Envoy's access log tells.
type Ending struct {
	// Status is the HTTP status of the response that the caller was sent; 0: none. 1xx is
	// no response, but for 101.
	Status int
	// GRPC is the gRPC status of the response, from its headers or its trailers; -1
	// if it has none.
	GRPC int
	// Unfinished says that the response began and broke off.
	Unfinished bool
	// Followed says that the caller was not sent the response: Envoy has followed it to
	// another place itself, as a request that is decided and billed on its own.
	Followed bool
	// Reached says that the upstream has seen some of the request.
	Reached bool
	// Duration is how long the request took; 0: unknown.
	Duration time.Duration
	// Response has what the upstream answered. Nil: nothing is known of it.
	Response Response
}

// GRPCUnknown is the gRPC status UNKNOWN, for which clients take one that they cannot read.
const GRPCUnknown = 2

// GRPCStatus returns the gRPC status that a field spells: GRPCUnknown if it spells none.
func GRPCStatus(text string) int {
	const last = 16
	if text == "" {
		return GRPCUnknown
	}
	n := 0
	for _, digit := range []byte(text) {
		if digit < '0' || digit > '9' {
			return GRPCUnknown
		}
		if n = n*10 + int(digit-'0'); n > last {
			return GRPCUnknown
		}
	}
	return n
}

// A Response is what is known of an upstream's answer.
type Response interface {
	// Header and Trailer return the first value of a field, by its lower-case name.
	Header(name string) (value string, ok bool)
	Trailer(name string) (value string, ok bool)
	// Lookup returns what Envoy's filters have left of the request, see Metadata.
	Lookup(namespace string, path []string) (value string, ok bool)
}

// A Settled is what became of a settlement.
type Settled int

// What becomes of settlements. Only the first four have changed anything.
const (
	SettledAsReserved Settled = iota + 1 // the reservation was what is used
	SettledMore                          // more was used than reserved
	SettledLess                          // less was used than reserved
	SettledFree                          // the request does not cost: all was given back
	SettledBefore                        // a repeat: nothing is changed
	SettledLate                          // so late that nobody can tell whether it is a repeat
	SettledForged                        // the reservation is none of ours, or was altered
	SettledMalformed                     // the reservation or its use cannot be read
	SettledElsewhere                     // it was passed on to the replica that decided
	SettledDropped                       // it could not be passed on: what was reserved is what is used
)

// Word returns the word for s in metrics.
func (s Settled) Word() string {
	words := [...]string{
		"unknown", "as_reserved", "more", "less", "free", "repeated", "late", "forged", "malformed", "elsewhere", "dropped",
	}
	if s < 0 || int(s) >= len(words) {
		return words[0]
	}
	return words[s]
}

// SettledKinds is how many results settlements have, with 0 for those that nobody can
// tell.
const SettledKinds = int(SettledDropped) + 1

// A SettledTally counts settlements by what became of them. It is safe for concurrent use.
type SettledTally [SettledKinds]atomic.Uint64

// Count counts one; what is no Settled counts as 0.
func (t *SettledTally) Count(s Settled) {
	if s < 0 || int(s) >= SettledKinds {
		s = 0
	}
	t[s].Add(1)
}

// Read returns the counts. They are read one by one while settlements go on.
func (t *SettledTally) Read() (out [SettledKinds]uint64) {
	for i := range t {
		out[i] = t[i].Load()
	}
	return out
}
