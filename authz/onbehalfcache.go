package authz

import (
	"encoding/binary"
	"sync/atomic"
)

const (
	verifiedSets = 1024
	verifiedWays = 4
)

// A verified table remembers the on-behalf tokens whose signature was verified lately,
// so that it is verified once. It holds 4,096 of 4 KiB at most, by their SHA-256: the
// tokens themselves are kept nowhere. The zero table is empty. It is safe for concurrent
// use, and reading takes no lock.
//
// A token stands in one of four places that its hash decides; a new one takes the place
// of the one that expires first. The loser of a race is verified again.
type verified struct {
	sets [verifiedSets][verifiedWays]atomic.Pointer[onBehalf]
}

func (v *verified) set(sum *[32]byte) *[verifiedWays]atomic.Pointer[onBehalf] {
	return &v.sets[binary.LittleEndian.Uint64(sum[:])%verifiedSets]
}

// find returns the verified token of a hash, which is not to be changed, or nil.
func (v *verified) find(sum *[32]byte) *onBehalf {
	set := v.set(sum)
	for i := range set {
		if o := set[i].Load(); o != nil && o.sum == *sum {
			return o
		}
	}
	return nil
}

// add remembers a verified token.
func (v *verified) add(o *onBehalf) {
	set := v.set(&o.sum)
	first := &set[0]
	for i := range set {
		there := set[i].Load()
		if there == nil || there.sum == o.sum {
			first = &set[i]
			break
		}
		if there.expires < first.Load().expires {
			first = &set[i]
		}
	}
	first.Store(o)
}
