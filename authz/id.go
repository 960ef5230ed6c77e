package authz

import (
	"math/rand/v2"
	"time"
)

// An ID is a decision's id: a ULID, which sorts by time.
type ID [16]byte

// NewID returns a fresh id for a decision at now.
func NewID(now time.Time) ID {
	var id ID
	ms := uint64(now.UnixMilli())
	a, b := rand.Uint64(), rand.Uint64()
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	for i := range 8 {
		id[6+i] = byte(a >> (8 * i))
	}
	id[14], id[15] = byte(b), byte(b>>8)
	return id
}

// crockford is the alphabet of ULIDs.
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

// Append appends the 26 characters of id to dst.
func (id ID) Append(dst []byte) []byte {
	dst = append(dst, crockford[id[0]>>5], crockford[id[0]&31])
	bits, have := uint32(0), 0
	for _, b := range id[1:] {
		bits, have = bits<<8|uint32(b), have+8
		for have >= 5 {
			have -= 5
			dst = append(dst, crockford[bits>>have&31])
		}
	}
	return dst
}

// String returns the 26 characters of id.
func (id ID) String() string { return string(id.Append(make([]byte, 0, 26))) }
