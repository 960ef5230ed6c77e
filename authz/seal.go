package authz

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"

	"github.com/dchest/siphash"
)

// A SealKey is a key that reservations are sealed with. All replicas have the same.
type SealKey struct {
	ID  uint32
	Key [16]byte
}

// seals are the keys in use.
type seals struct {
	sign SealKey
	all  []SealKey
}

// SetSeals makes reservations be sealed with sign from now on, and those that were
// sealed with any of all be believed. It is safe for concurrent use.
func (d *Decider) SetSeals(sign SealKey, all []SealKey) {
	d.seals.Store(&seals{sign: sign, all: append([]SealKey{sign}, all...)})
}

// Sealing reports whether SetSeals was called: without a key no request can be settled.
func (d *Decider) Sealing() bool { return d.seals.Load() != nil }

const (
	keyDigits = 8                // of a key's id
	sealSize  = 16               // bytes of a MAC
	sealText  = sealSize*4/3 + 1 // of them in base64 without padding
)

// mac is SipHash-2-4 with 128 bits: a key that nobody else has makes one text in 2^128
// pass by chance, and each try shows in a metric.
func (k *SealKey) mac(payload []byte) (sum [sealSize]byte) {
	a, b := siphash.Hash128(binary.LittleEndian.Uint64(k.Key[:8]), binary.LittleEndian.Uint64(k.Key[8:]), payload)
	binary.LittleEndian.PutUint64(sum[:8], a)
	binary.LittleEndian.PutUint64(sum[8:], b)
	return sum
}

// putSeal writes the key's id and the MAC of payload into head, which has headSize bytes.
func (k *SealKey) putSeal(head, payload []byte) {
	var id [4]byte
	binary.BigEndian.PutUint32(id[:], k.ID)
	hex.Encode(head[:keyDigits], id[:])
	head[keyDigits] = fieldEnd
	sum := k.mac(payload)
	base64.RawURLEncoding.Encode(head[keyDigits+1:keyDigits+1+sealText], sum[:])
	head[keyDigits+1+sealText] = fieldEnd
}

// headSize is the length of what comes before the payload.
const headSize = keyDigits + 1 + sealText + 1

// believes reports whether head seals payload.
func (s *seals) believes(head, payload []byte) bool {
	var id [4]byte
	var sum [sealSize]byte
	if head[keyDigits] != fieldEnd || head[headSize-1] != fieldEnd {
		return false
	}
	if _, err := hex.Decode(id[:], head[:keyDigits]); err != nil {
		return false
	}
	// Strict: of one MAC there is one text, or a repeat could look like another token.
	if _, err := base64.RawURLEncoding.Strict().Decode(sum[:], head[keyDigits+1:headSize-1]); err != nil {
		return false
	}
	for i := range s.all {
		if s.all[i].ID == binary.BigEndian.Uint32(id[:]) {
			return s.all[i].mac(payload) == sum
		}
	}
	return false
}
