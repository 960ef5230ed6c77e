package envoy

import "google.golang.org/protobuf/encoding/protowire"

// open begins a message or text of yet unknown length; shut ends it.
func open(b []byte, num fieldNumber) ([]byte, int) {
	b = append(protowire.AppendTag(b, num, protowire.BytesType), 0)
	return b, len(b)
}

// shut writes the length of what was appended since open returned mark. Almost
// everything is shorter than 128 bytes, where the length has its place already.
func shut(b []byte, mark int) []byte {
	n := len(b) - mark
	if n < 0x80 {
		b[mark-1] = byte(n)
		return b
	}
	more := protowire.SizeVarint(uint64(n)) - 1
	for range more {
		b = append(b, 0)
	}
	copy(b[mark+more:], b[mark:mark+n])
	protowire.AppendVarint(b[:mark-1], uint64(n))
	return b
}

func putText(b []byte, num fieldNumber, s string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), s)
}

func putNumber(b []byte, num fieldNumber, n uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), n)
}

// putEntry appends an entry of a map of texts.
func putEntry(b []byte, num fieldNumber, key, value string) []byte {
	b, m := open(b, num)
	b = putText(b, 1, key)
	b = putText(b, 2, value)
	return shut(b, m)
}

// A fieldNumber is the number of a field of a message.
type fieldNumber = protowire.Number
