package envoy

import "encoding/binary"

// What of HTTP/2 (RFC 9113) tells how much of a message has come.
const (
	preface     = 24 // bytes that a client begins with
	frameHeader = 9
	messageHead = 5 // of a gRPC message: a flag and the length

	frameData    = 0
	frameHeaders = 1
	frameReset   = 3

	flagEndStream = 0x1
	flagPadded    = 0x8
)

// A frame is the HTTP/2 frame that is on its way in one direction.
type frame struct {
	head [frameHeader]byte
	have int // bytes of head; all of them: left says what is missing
	left int // bytes of the payload that are still to come
}

// begin takes from b what is missing of the head. It reports whether the head is whole.
func (f *frame) begin(b []byte) (rest []byte, whole bool) {
	n := copy(f.head[f.have:], b)
	f.have += n
	if f.have < frameHeader {
		return nil, false
	}
	f.left = f.size()
	return b[n:], true
}

// size is how many bytes the payload has.
func (f *frame) size() int {
	return int(f.head[0])<<16 | int(f.head[1])<<8 | int(f.head[2])
}

func (f *frame) kind() byte         { return f.head[3] }
func (f *frame) has(flag byte) bool { return f.head[4]&flag != 0 }

func (f *frame) stream() uint32 {
	return binary.BigEndian.Uint32(f.head[5:]) &^ (1 << 31)
}

// ends reports whether it is the last one of its stream in its direction.
func (f *frame) ends() bool {
	switch f.kind() {
	case frameData, frameHeaders:
		return f.has(flagEndStream)
	case frameReset:
		return true
	}
	return false
}

// An unfinished message is what has come of the next message of a stream.
type unfinished struct {
	head [messageHead]byte
	have int   // bytes of head; all of them: left says what is missing
	left int64 // bytes of the message that are still to come
	cost int64 // memory of the frames that hold it
}

// take takes the next bytes of the stream. whole: a message has ended within them;
// large: one has begun that is longer than most.
func (u *unfinished) take(b []byte, most int64) (whole, large bool) {
	for len(b) > 0 {
		if u.have < messageHead {
			n := copy(u.head[u.have:], b)
			u.have += n
			b = b[n:]
			if u.have < messageHead {
				break
			}
			u.left = int64(binary.BigEndian.Uint32(u.head[1:]))
			large = large || u.left > most
		}
		n := min(int64(len(b)), u.left)
		u.left -= n
		b = b[n:]
		if u.left == 0 {
			u.have, whole = 0, true
		}
	}
	return whole, large
}

// ended is told that a frame of that much memory was taken, in which a message was or was
// not whole. It returns by how much the memory of what is unfinished has changed.
func (u *unfinished) ended(frame int64, whole bool) int64 {
	before := u.cost
	switch {
	case u.have == 0:
		u.cost = 0
	case whole:
		u.cost = frame
	default:
		u.cost += frame
	}
	return u.cost - before
}

// memoryOf is what gRPC keeps for a DATA frame of n bytes: a buffer of the next size that
// its pool has, if it is not small, and what the buffer hangs in.
func memoryOf(n int) int64 {
	const hung = 128
	switch {
	case n == 0:
		return 0
	case n <= 1<<10:
		return int64(n) + hung
	case n <= 4<<10:
		return 4<<10 + hung
	}
	return max(int64(n), 16<<10) + hung
}
