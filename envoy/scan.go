package envoy

import (
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// A wireError tells which part of a message cannot be read.
type wireError struct{ path, problem string }

func (e *wireError) Error() string { return e.path + ": " + e.problem }

// A scanner walks the fields of one message. Fields that nobody asks for are
// skipped, whatever their type.
type scanner struct {
	path string // of the message, for errors
	rest []byte
	num  int32
	typ  protowire.Type
	data []byte // of a bytes field
	n    uint64 // of a varint or fixed field
	err  error
}

func scan(path string, b []byte) scanner { return scanner{path: path, rest: b} }

// next moves to the next field. It is false at the end and after an error.
func (s *scanner) next() bool {
	if s.err != nil || len(s.rest) == 0 {
		return false
	}
	tag, n := short(s.rest)
	num, typ := protowire.DecodeTag(tag)
	if n < 0 || num < protowire.MinValidNumber {
		return s.cut()
	}
	s.num, s.typ, s.data, s.n, s.rest = int32(num), typ, nil, 0, s.rest[n:]
	switch typ {
	case protowire.BytesType:
		size, k := short(s.rest)
		if k < 0 || size > uint64(len(s.rest)-k) {
			return s.cut()
		}
		n = k + int(size)
		s.data = s.rest[k:n:n]
	case protowire.VarintType:
		s.n, n = protowire.ConsumeVarint(s.rest)
	case protowire.Fixed64Type:
		s.n, n = protowire.ConsumeFixed64(s.rest)
	case protowire.Fixed32Type, protowire.StartGroupType, protowire.EndGroupType:
		n = protowire.ConsumeFieldValue(num, typ, s.rest)
	default:
		n = -1
	}
	if n < 0 {
		return s.cut()
	}
	s.rest = s.rest[n:]
	return true
}

// short reads a varint, which nearly always is one byte. n is below 0 if it is
// malformed.
func short(b []byte) (v uint64, n int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

func (s *scanner) cut() bool {
	s.err = &wireError{s.path, "the message is cut off or malformed"}
	return false
}

// bytes returns the field as bytes; name is for the error if it is none.
func (s *scanner) bytes(name string) []byte {
	if s.typ != protowire.BytesType {
		s.wrong(name, "want a text or message")
	}
	return s.data
}

// text returns the field as a string that points into the message.
func (s *scanner) text(name string) string { return text(s.bytes(name)) }

// number returns the field as a varint.
func (s *scanner) number(name string) uint64 {
	if s.typ != protowire.VarintType {
		s.wrong(name, "want a whole number")
	}
	return s.n
}

func (s *scanner) wrong(name, want string) {
	s.fail(name, "wrong wire type, "+want)
}

// fail ends the scan with an error about the field called name.
func (s *scanner) fail(name, problem string) {
	if s.err == nil {
		s.err = &wireError{s.path + "." + name, problem}
	}
}

// try ends the scan if err is set.
func (s *scanner) try(err error) {
	if s.err == nil {
		s.err = err
	}
}

// text returns b as a string without a copy.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
