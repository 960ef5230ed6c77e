//go:build linux || darwin

package journal

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"sync/atomic"

	"github.com/meteproject/mete/quota"
)

// A file is a header, the numbers of its slots, and their keys: numbers change all the
// time and are kept together, so that few pages become dirty. Everything is in the
// byte order of the machine, since numbers are used where they lie.
//
//	0      magic, 8 bytes
//	8      version
//	12     number of slots
//	16     bytes of each key
//	20     checksum of the header up to here, and of the boot
//	24     boot of the machine, 40 bytes
//	4096   numbers, 64 bytes a slot
//	...    keys
const (
	magic       = "metejrnl"
	version     = 1
	sumAt       = 20
	bootAt      = 24
	bootBytes   = 40
	headerBytes = 4096
	slotBytes   = 64 // a cache line: purses of two tenants do not slow each other down
	usedAt      = 16 // of numbers.used in numbers; numbers.reported comes next
)

// numbers are what changes of a slot.
type numbers struct {
	state    atomic.Uint64 // taken, and the checksum of the key; 0: free
	wall     atomic.Int64
	used     atomic.Int64
	reported atomic.Int64
	_        [slotBytes - 32]byte
}

// taken marks the state of a slot that is in use.
const taken = 1 << 32

// A layout says how large a file's parts are.
type layout struct{ slots, keyBytes int }

// Layouts of new files. Nearly all keys are small; the large ones have room for the
// longest names that documents can have.
func layouts() [2]layout { return [2]layout{{4096, 256}, {512, 1216}} }

func (l layout) keysAt() int { return headerBytes + l.slots*slotBytes }
func (l layout) size() int   { return l.keysAt() + l.slots*l.keyBytes }

// numbersOf and keyOf return where a slot's parts are in the file.
func (l layout) numbersOf(slot int) int { return headerBytes + slot*slotBytes }
func (l layout) keyOf(slot int) int     { return l.keysAt() + slot*l.keyBytes }

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func putHeader(b []byte, l layout, boot string) {
	copy(b, magic)
	order := binary.NativeEndian
	order.PutUint32(b[8:], version)
	order.PutUint32(b[12:], uint32(l.slots))    //nolint:gosec // small
	order.PutUint32(b[16:], uint32(l.keyBytes)) //nolint:gosec // small
	copy(b[bootAt:bootAt+bootBytes], boot)
	order.PutUint32(b[sumAt:], headerSum(b))
}

func headerSum(b []byte) uint32 {
	return checksum(b[:sumAt]) ^ checksum(b[bootAt:bootAt+bootBytes])
}

// header reads what putHeader wrote. The caller has checked magic and version.
func header(b []byte) (l layout, boot string, ok bool) {
	order := binary.NativeEndian
	l = layout{int(order.Uint32(b[12:])), int(order.Uint32(b[16:]))}
	boot = string(bytes.TrimRight(b[bootAt:bootAt+bootBytes], "\x00"))
	ok = order.Uint32(b[sumAt:]) == headerSum(b) && l.slots <= 1<<16 && l.keyBytes <= 1<<16
	return l, boot, ok
}

// names are what a key is made of, in the order in which they are stored.
type names [6]string

func namesOf(key quota.Key, app, holder string) names {
	return names{key.Root, key.Tenant, key.Limit, key.Window, app, holder}
}

// size returns how many bytes put needs, or more than any key has room for.
func (n *names) size() int {
	size := 2 * len(n)
	for _, s := range n {
		size += len(s)
	}
	return size
}

// put writes the names, each after its length, and returns their checksum. They fit
// into b.
func (n *names) put(b []byte) uint32 {
	at := 0
	for _, s := range n {
		binary.NativeEndian.PutUint16(b[at:], uint16(len(s))) //nolint:gosec // size has room for less
		at += 2 + copy(b[at+2:], s)
	}
	return checksum(b[:at])
}

// getNames reads what put wrote, if its checksum is sum.
func getNames(b []byte, sum uint32) (n names, ok bool) {
	at := 0
	for i := range n {
		if at+2 > len(b) {
			return n, false
		}
		end := at + 2 + int(binary.NativeEndian.Uint16(b[at:]))
		if end > len(b) {
			return n, false
		}
		n[i], at = string(b[at+2:end]), end
	}
	return n, checksum(b[:at]) == sum
}
