package authz

import (
	"encoding/hex"
	"strconv"
	"strings"
	"unsafe"
)

// A token is the text of a reservation:
//
//	KEY!MAC!DECISION!REPLICA!NUMBER!HITS!APP!CLASS!ROUTE!PRINCIPAL!ATTRIBUTION!REPLAY!CHARGE...
//
// and each charge NODE!ROOT!LIMIT!UNIT!WINDOW!UNITS!UNCOVERED!, with an empty root where
// it is the node itself or there is no window. Bytes other than printable ASCII, "!" and
// "%" are written as %XX, so that no two names are one in it and Envoy carries it
// unchanged.
const fieldEnd = '!'

// maxToken is the longest token that is read. Envoy's own headers end at 60 KiB.
const maxToken = 64 << 10

func putField(b []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != fieldEnd && c != '%' {
			b = append(b, c)
		} else {
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return append(b, fieldEnd)
}

func putNumber(b []byte, n uint64) []byte { return append(strconv.AppendUint(b, n, 10), fieldEnd) }

// put appends the payload of r.
func (r *Reservation) put(b []byte) []byte {
	b = append(r.Decision.Append(b), fieldEnd)
	b = append(strconv.AppendUint(b, r.Replica, 16), fieldEnd)
	b = putNumber(b, r.Number)
	b = putNumber(b, uint64(r.Hits))
	for _, s := range [...]string{r.App, r.Class, r.Route, r.Principal, r.Attribution} {
		b = putField(b, s)
	}
	if r.Replay != ([16]byte{}) {
		b = hex.AppendEncode(b, r.Replay[:])
	}
	b = append(b, fieldEnd)
	for i := range r.Charges {
		c := &r.Charges[i]
		root := c.Root
		if root == c.Node {
			root = ""
		}
		for _, s := range [...]string{c.Node, root, c.Limit, c.Unit, c.Window} {
			b = putField(b, s)
		}
		b = putNumber(b, uint64(c.Units))
		b = putNumber(b, uint64(c.Uncovered))
	}
	return b
}

// A fields reads a payload field by field. Once bad it stays so.
type fields struct {
	rest string
	bad  bool
	r    *Reservation // keeps what had to be unescaped
}

func (f *fields) next() string {
	end := strings.IndexByte(f.rest, fieldEnd)
	if end < 0 {
		f.bad, f.rest = true, ""
		return ""
	}
	s := f.rest[:end]
	f.rest = f.rest[end+1:]
	return s
}

// text returns the next field as it was before putField.
func (f *fields) text() string {
	s := f.next()
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	from := len(f.r.unescaped)
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if i+3 > len(s) {
				f.bad = true
				return ""
			}
			n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			f.bad = f.bad || err != nil
			c, i = byte(n), i+2
		}
		f.r.unescaped = append(f.r.unescaped, c)
	}
	b := f.r.unescaped[from:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

func (f *fields) number(base int) uint64 {
	n, err := strconv.ParseUint(f.next(), base, 64)
	f.bad = f.bad || err != nil
	return n
}

// units reads a number of units.
func (f *fields) units() int64 {
	n := f.number(10)
	f.bad = f.bad || n > maxUnits
	return int64(n) //nolint:gosec // bounded just before
}

// read reads a payload into r. It reports whether it could.
func (r *Reservation) read(payload string) bool {
	f := fields{rest: payload, r: r}
	id, err := ParseID(f.next())
	f.bad = err != nil
	r.Decision = id
	r.Replica = f.number(16)
	r.Number = f.number(10)
	r.Hits = f.units()
	for _, s := range [...]*string{&r.App, &r.Class, &r.Route, &r.Principal, &r.Attribution} {
		*s = f.text()
	}
	if key := f.next(); key != "" {
		n, err := hex.Decode(r.Replay[:], []byte(key))
		f.bad = f.bad || err != nil || n != len(r.Replay)
	}
	for f.rest != "" && !f.bad {
		c := Charged{
			Node: f.text(), Root: f.text(), Limit: f.text(), Unit: f.text(), Window: f.text(), Units: f.units(), Uncovered: f.units(),
		}
		if c.Root == "" && c.Window != "" {
			c.Root = c.Node
		}
		r.Charges = append(r.Charges, c)
	}
	return !f.bad && r.Number > 0
}
