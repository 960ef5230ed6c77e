package envoy

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/meteproject/mete/authz"
)

// metadata is a check's metadata_context. It is read when somebody looks
// something up, since most apps never do. Where it is malformed, what is looked for is
// Other: nothing usable, and not nothing.
type metadata struct{ parts [][]byte }

var _ authz.Metadata = (*metadata)(nil)

// Lookup returns the value at path in a namespace, if it is one.
func (m *metadata) Lookup(namespace string, path []string) (string, bool) {
	value, found := m.Find(namespace, path)
	return value, found == authz.Value
}

// Find implements [authz.Metadata].
func (m *metadata) Find(namespace string, path []string) (value string, found authz.Found) {
	at, ok, err := m.namespace(namespace)
	switch {
	case err != nil:
		return "", authz.Other
	case !ok:
		return "", authz.Nothing
	case len(path) == 0:
		return "", authz.Other
	}
	for i, name := range path {
		v, ok, err := entry(at, name)
		switch {
		case err != nil:
			return "", authz.Other
		case !ok:
			return "", authz.Nothing
		case i == len(path)-1:
			return scalar(v)
		}
		if at, found = inner(v); found != authz.Value {
			return "", found
		}
	}
	return "", authz.Nothing
}

// namespace returns what a filter has left, a Struct.
func (m *metadata) namespace(name string) (fields []byte, ok bool, err error) {
	for _, part := range m.parts {
		v, there, err := entry(part, name)
		if err != nil {
			return nil, false, err
		}
		if there {
			fields, ok = v, true // the last one wins, as in any protobuf map
		}
	}
	return fields, ok, nil
}

// entry returns the value of key in the map that is field 1 of b: the fields of a
// Struct and the namespaces of Metadata alike.
func entry(b []byte, key string) (value []byte, ok bool, err error) {
	s := scan("metadata", b)
	for s.next() {
		if s.num != 1 || s.typ != protowire.BytesType {
			continue
		}
		k, v, plain := plainPair(s.data)
		if !plain {
			var err error
			k, v, err = pair(s.data)
			s.try(err)
		}
		if text(k) == key {
			value, ok = v, true
		}
	}
	if s.err != nil {
		return nil, false, s.err
	}
	return value, ok, nil
}

// pair splits the entry of a map of messages or texts.
func pair(b []byte) (key, value []byte, err error) {
	e := scan("metadata", b)
	for e.next() {
		switch {
		case e.num == 1 && e.typ == protowire.BytesType:
			key = e.data
		case e.num == 2 && e.typ == protowire.BytesType:
			value = e.data
		}
	}
	return key, value, e.err
}

// plainPair is pair for the form that nearly everybody writes: a short key, then the
// value and no more. It is false for all others.
func plainPair(b []byte) (key, value []byte, ok bool) {
	const keyTag, valueTag = 1<<3 | 2, 2<<3 | 2
	if len(b) < 2 || b[0] != keyTag || b[1] >= 0x80 {
		return nil, nil, false
	}
	n := 2 + int(b[1])
	if n >= len(b) || b[n] != valueTag {
		return nil, nil, false
	}
	rest := b[n+1:]
	size, w := short(rest)
	if w < 0 || size != uint64(len(rest)-w) {
		return nil, nil, false
	}
	return b[2:n], rest[w:], true
}

// inner returns the Struct in a Value: as a Value, or Null, or Other where it is none.
func inner(b []byte) (fields []byte, found authz.Found) {
	found = authz.Other
	s := scan("metadata", b)
	for s.next() {
		switch s.num {
		case 1:
			fields, found = nil, authz.Null
		case 5:
			fields, found = s.bytes("struct_value"), authz.Value
		case 2, 3, 4, 6:
			fields, found = nil, authz.Other
		}
	}
	if s.err != nil {
		return nil, authz.Other
	}
	return fields, found
}

// notWhole is the smallest number that a double cannot tell from the next whole one.
const notWhole = 1 << 53

// scalar returns a Value as text if it is a text, a whole number or a boolean. So 42 and
// "42" are one name.
func scalar(b []byte) (value string, found authz.Found) {
	found = authz.Other
	s := scan("metadata", b)
	for s.next() {
		switch s.num {
		case 1:
			value, found = "", authz.Null
		case 2:
			value, found = whole(s.typ, s.n)
		case 3:
			value, found = s.text("string_value"), authz.Value
		case 4:
			value, found = strconv.FormatBool(s.number("bool_value") != 0), authz.Value
		case 5, 6:
			value, found = "", authz.Other
		}
	}
	if s.err != nil {
		return "", authz.Other
	}
	return value, found
}

// whole returns a number_value as text if it is a whole number that is no other one.
func whole(typ protowire.Type, bits uint64) (string, authz.Found) {
	f := math.Float64frombits(bits)
	if typ != protowire.Fixed64Type || math.Abs(f) >= notWhole || f != math.Trunc(f) {
		return "", authz.Other
	}
	return strconv.FormatInt(int64(f), 10), authz.Value
}
