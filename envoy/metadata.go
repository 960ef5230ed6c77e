package envoy

import (
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/meteproject/mete/authz"
)

// metadata is a check's metadata_context. It is read when somebody looks
// something up, since most apps never do. Where it is malformed there is nothing
// to find.
type metadata struct{ parts [][]byte }

var _ authz.Metadata = (*metadata)(nil)

// Lookup returns the value at path in a namespace.
func (m *metadata) Lookup(namespace string, path []string) (string, bool) {
	v, ok := m.value(namespace, path)
	if !ok {
		return "", false
	}
	return scalar(v)
}

// Has tells whether there is anything but null at path in a namespace.
func (m *metadata) Has(namespace string, path []string) bool {
	v, ok := m.value(namespace, path)
	return ok && !null(v)
}

// value returns the Value at path in a namespace.
func (m *metadata) value(namespace string, path []string) (v []byte, ok bool) {
	at, ok := m.namespace(namespace)
	if !ok || len(path) == 0 {
		return nil, false
	}
	for i, name := range path {
		if v, ok = entry(at, name); !ok {
			return nil, false
		}
		if i == len(path)-1 {
			return v, true
		}
		if at, ok = inner(v); !ok {
			return nil, false
		}
	}
	return nil, false
}

// null tells whether a Value is null, or malformed.
func null(b []byte) bool {
	is := true
	s := scan("metadata", b)
	for s.next() {
		if s.num >= 1 && s.num <= 6 {
			is = s.num == 1
		}
	}
	return is || s.err != nil
}

// namespace returns what a filter has left, a Struct.
func (m *metadata) namespace(name string) (fields []byte, ok bool) {
	for _, part := range m.parts {
		if v, found := entry(part, name); found {
			fields, ok = v, true // the last one wins, as in any protobuf map
		}
	}
	return fields, ok
}

// entry returns the value of key in the map that is field 1 of b: the fields of a
// Struct and the namespaces of Metadata alike.
func entry(b []byte, key string) (value []byte, ok bool) {
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
	return value, ok && s.err == nil
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

// inner returns the Struct in a Value.
func inner(b []byte) (fields []byte, ok bool) {
	s := scan("metadata", b)
	for s.next() {
		switch s.num {
		case 5:
			fields, ok = s.bytes("struct_value"), true
		case 1, 2, 3, 4, 6:
			fields, ok = nil, false
		}
	}
	return fields, ok && s.err == nil
}

// largestWhole is the largest number up to which a double holds every whole one.
const largestWhole = 1 << 53

// scalar returns a Value as text if it is a text, a whole number or a boolean.
func scalar(b []byte) (value string, ok bool) {
	s := scan("metadata", b)
	for s.next() {
		switch s.num {
		case 2:
			if s.typ != protowire.Fixed64Type {
				return "", false
			}
			f := math.Float64frombits(s.n)
			ok = math.Abs(f) <= largestWhole && f == math.Trunc(f)
			if ok {
				value = strconv.FormatInt(int64(f), 10)
			}
		case 3:
			value, ok = s.text("string_value"), true
		case 4:
			value, ok = strconv.FormatBool(s.number("bool_value") != 0), true
		case 1, 5, 6:
			value, ok = "", false
		}
	}
	return value, ok && s.err == nil
}
