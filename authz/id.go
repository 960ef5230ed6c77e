package authz

import (
	"errors"
	"math/rand/v2"
	"strings"
	"time"
)

// An ID is a decision's id: a ULID, which sorts by time.
type ID [16]byte

// NewID returns a fresh id for a decision at now. Its last 16 bits are by chance, too;
// those of a Decider's ids are the last 16 bits of its process.
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

// Time returns when the decision was made, to the millisecond.
func (id ID) Time() time.Time {
	ms := int64(0)
	for _, b := range id[:6] {
		ms = ms<<8 | int64(b)
	}
	return time.UnixMilli(ms)
}

// Tag returns the last 16 bits of id.
func (id ID) Tag() uint16 { return uint16(id[14])<<8 | uint16(id[15]) }

// tagged returns id with a tag.
func (id ID) tagged(process uint64) ID {
	id[14], id[15] = byte(process>>8), byte(process)
	return id
}

// ErrID is the error of a text that is no decision's id.
var ErrID = errors.New("no id of a decision: want the 26 characters of x-quota-decision")

// ParseID is the inverse of ID.String. Small letters are as good as capitals.
func ParseID(s string) (ID, error) {
	var id ID
	if len(s) != 26 || digit(s[0]) > 7 {
		return id, ErrID
	}
	bits, have, at := uint32(0), -2, 0 // the first character has 3 bits
	for i := range len(s) {
		d := digit(s[i])
		if d > 31 {
			return ID{}, ErrID
		}
		bits, have = bits<<5|uint32(d), have+5
		if have >= 8 {
			have -= 8
			id[at] = byte(bits >> have)
			at++
		}
	}
	return id, nil
}

// digit returns the value of a character of a ULID; above 31: it is none.
func digit(c byte) byte {
	if c >= 'a' && c <= 'z' {
		c -= 'a' - 'A'
	}
	if i := strings.IndexByte(crockford, c); i >= 0 {
		return byte(i)
	}
	return 255
}

// String returns the 26 characters of id.
func (id ID) String() string { return string(id.Append(make([]byte, 0, 26))) }
