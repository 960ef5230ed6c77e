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
	at, ok := []byte(nil), false
	for _, part := range m.parts {
		if v, found := entry(part, namespace); found {
			at, ok = v, true // the last one wins, as in any protobuf map
		}
	}
	if !ok || len(path) == 0 {
		return "", false
	}
	for i, name := range path {
		v, found := entry(at, name)
		if !found {
			return "", false
		}
		if i == len(path)-1 {
			return scalar(v)
		}
		if at, ok = inner(v); !ok {
			return "", false
		}
	}
	return "", false
}

// entry returns the value of key in the map that is field 1 of b: the fields of a
// Struct and the namespaces of Metadata alike.
func entry(b []byte, key string) (value []byte, ok bool) {
	s := scan("metadata", b)
	for s.next() {
		if s.num != 1 || s.typ != protowire.BytesType {
			continue
		}
		var k, v []byte
		e := scan("metadata", s.data)
		for e.next() {
			switch {
			case e.num == 1 && e.typ == protowire.BytesType:
				k = e.data
			case e.num == 2 && e.typ == protowire.BytesType:
				v = e.data
			}
		}
		s.try(e.err)
		if text(k) == key {
			value, ok = v, true
		}
	}
	return value, ok && s.err == nil
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
