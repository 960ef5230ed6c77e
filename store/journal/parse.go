//go:build linux || darwin

package journal

import (
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/meteproject/mete/quota"
)

// parse reads a file, as far as it is there and makes sense. An error says what is
// wrong with it as a whole; what it returns holds all the same.
func parse(b []byte, boot string) (orphans []found, damaged int, err error) {
	l, of, err := parseHeader(b)
	if err != nil {
		return nil, 0, err
	}
	stale := boot == "" || boot != of
	for i := range l.slots {
		at := l.numbersOf(i)
		if at+slotBytes > len(b) {
			break
		}
		state := binary.NativeEndian.Uint64(b[at:])
		if state == 0 {
			continue
		}
		o, ok := parseSlot(b, l, i, state)
		if !ok {
			damaged++
			continue
		}
		o.Stale = stale
		orphans = append(orphans, found{Orphan: o, at: int64(at)})
	}
	if missing := l.size() - len(b); missing > 0 {
		err = fmt.Errorf("lacks %d of its %d bytes at the end: what they remembered is lost", missing, l.size())
	}
	return orphans, damaged, err
}

func parseHeader(b []byte) (l layout, boot string, err error) {
	start := string(b[:min(len(b), len(magic))])
	if strings.Trim(start, "\x00") != "" && start != magic {
		return l, "", errForeign
	}
	if start != magic || len(b) < headerBytes {
		return l, "", errHeader
	}
	if v := binary.NativeEndian.Uint32(b[8:]); v != version {
		return l, "", fmt.Errorf("is %w (format %d, not %d) and is left alone: start that version on this directory once, "+
			"which reports what the file remembers, or delete it and lose that", errVersion, v, version)
	}
	l, boot, ok := header(b)
	if !ok {
		return l, "", errHeader
	}
	return l, boot, nil
}

func parseSlot(b []byte, l layout, slot int, state uint64) (o quota.Orphan, ok bool) {
	at, key := l.numbersOf(slot), l.keyOf(slot)
	if state&^uint64(^uint32(0)) != taken || key+l.keyBytes > len(b) {
		return o, false
	}
	n, ok := getNames(b[key:key+l.keyBytes], uint32(state)) //nolint:gosec // the lower half
	if !ok {
		return o, false
	}
	number := func(i int) int64 { return int64(binary.NativeEndian.Uint64(b[at+8*i:])) } //nolint:gosec // bits
	o = quota.Orphan{
		Key: quota.Key{Root: n[0], Tenant: n[1], Limit: n[2], Window: n[3]}, App: n[4], Holder: n[5],
		Wall: number(1), Used: number(2), Reported: number(3),
	}
	return o, plausible(o)
}

// plausible reports whether a purse can have counted this far.
func plausible(o quota.Orphan) bool {
	const most = 4 * quota.MaxUnits
	used := o.Used
	if used > quota.Unbased/2 {
		used -= quota.Unbased
	}
	return -most <= used && used <= most && -most <= o.Reported && o.Reported <= most
}
