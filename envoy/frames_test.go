package envoy_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"golang.org/x/net/http2"
	"pgregory.net/rapid"

	"github.com/meteproject/mete/envoy"
)

// A wireModel writes what clients and the server send, and knows what is unfinished of it.
type wireModel struct {
	t    *rapid.T
	open map[uint32]*modelStream
	next uint32

	buffer bytes.Buffer
	framer *http2.Framer
}

type modelStream struct {
	rest []byte // of messages that are being sent
	done int    // bytes of the first of them that were sent
	cost int64
}

// frame returns what was written since the last one.
func (m *wireModel) frame() []byte {
	out := bytes.Clone(m.buffer.Bytes())
	m.buffer.Reset()
	return out
}

func (m *wireModel) pick() (uint32, *modelStream) {
	var ids []uint32
	for id := uint32(1); id < m.next; id += 2 {
		if m.open[id] != nil {
			ids = append(ids, id)
		}
	}
	if len(ids) == 0 {
		m.t.Skip("no stream is open")
	}
	id := rapid.SampledFrom(ids).Draw(m.t, "stream")
	return id, m.open[id]
}

// send sends some bytes of a stream's messages in one frame.
func (m *wireModel) send() []byte {
	id, s := m.pick()
	for len(s.rest)-s.done < 40 {
		size := rapid.IntRange(0, 3000).Draw(m.t, "message")
		s.rest = append(binary.BigEndian.AppendUint32(append(s.rest, 0), uint32(size)), make([]byte, size)...) //nolint:gosec // small
	}
	n := rapid.IntRange(0, len(s.rest)-s.done).Draw(m.t, "bytes")
	var pad []byte
	if rapid.Bool().Draw(m.t, "padded") {
		pad = make([]byte, rapid.IntRange(0, 255).Draw(m.t, "padding"))
	}
	end := rapid.IntRange(0, 9).Draw(m.t, "end") == 0
	if err := m.framer.WriteDataPadded(id, end, s.rest[s.done:s.done+n], pad); err != nil {
		m.t.Fatal(err)
	}
	out := m.frame()
	m.account(s, n, envoy.MemoryOf(len(out)-9))
	if end {
		delete(m.open, id)
	}
	return out
}

// account counts n bytes that were sent of s in a frame of that much memory.
func (m *wireModel) account(s *modelStream, n int, memory int64) {
	whole := false
	s.done += n
	for {
		rest := s.rest
		if s.done < 5 {
			break
		}
		size := 5 + int(binary.BigEndian.Uint32(rest[1:]))
		if s.done < size {
			break
		}
		s.rest, s.done, whole = rest[size:], s.done-size, true
	}
	switch {
	case s.done == 0:
		s.cost = 0
	case whole:
		s.cost = memory
	default:
		s.cost += memory
	}
}

// What is unfinished is found however the bytes arrive, padded or not, and let go of however
// ends a stream.
func TestIntake_F4_FindsWhatIsUnfinished(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := &wireModel{t: t, open: map[uint32]*modelStream{}, next: 1}
		m.framer = http2.NewFramer(&m.buffer, nil)
		f := envoy.NewFeed(1 << 20)
		// In pieces, as a network delivers.
		deliver := func(b []byte, to func([]byte)) {
			for len(b) > 0 {
				n := rapid.IntRange(1, len(b)).Draw(t, "piece")
				to(b[:n])
				b = b[n:]
			}
		}
		received := func(b []byte) {
			if err := f.Received(b); err != nil {
				t.Fatal(err)
			}
		}
		deliver([]byte(http2.ClientPreface), received)
		t.Repeat(map[string]func(*rapid.T){
			"call": func(*rapid.T) {
				_ = m.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: m.next, BlockFragment: []byte{0x82}, EndHeaders: true})
				m.open[m.next] = &modelStream{}
				m.next += 2
				deliver(m.frame(), received)
			},
			"send": func(t *rapid.T) {
				m.t = t
				deliver(m.send(), received)
			},
			"ping": func(*rapid.T) {
				_ = m.framer.WritePing(false, [8]byte{})
				deliver(m.frame(), received)
			},
			"client resets": func(t *rapid.T) {
				m.t = t
				id, _ := m.pick()
				_ = m.framer.WriteRSTStream(id, http2.ErrCodeCancel)
				delete(m.open, id)
				deliver(m.frame(), received)
			},
			"server ends": func(t *rapid.T) {
				m.t = t
				id, _ := m.pick()
				_ = m.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: []byte{0x88}, EndHeaders: true, EndStream: true})
				delete(m.open, id)
				deliver(m.frame(), f.Sent)
			},
			"": func(t *rapid.T) {
				var want int64
				for _, s := range m.open {
					want += s.cost
				}
				if held, streams, large := f.State(); held != want || streams != len(m.open) || large != 0 {
					t.Fatalf("%d bytes of %d streams, %d too large; want %d of %d", held, streams, large, want, len(m.open))
				}
			},
		})
	})
}

// What cannot be HTTP/2 is gRPC's to refuse: it does no harm here.
func FuzzIntake(f *testing.F) {
	f.Add([]byte(http2.ClientPreface + "\x00\x00\x00\x04\x00\x00\x00\x00\x00"))
	f.Add([]byte(http2.ClientPreface + "\x00\x00\x01\x01\x04\x00\x00\x00\x01\x82" + "\x00\x00\x07\x00\x08\x00\x00\x00\x01\xff\x00\x00\x00\x00\x09a"))
	f.Fuzz(func(t *testing.T, b []byte) {
		feed := envoy.NewFeed(1 << 20)
		for i := range b {
			if err := feed.Received(b[i : i+1]); err != nil {
				t.Fatal(err)
			}
		}
		feed.Sent(b)
		whole := envoy.NewFeed(1 << 20)
		if err := whole.Received(b); err != nil {
			t.Fatal(err)
		}
		whole.Sent(b)
		h1, s1, l1 := feed.State()
		if h2, s2, l2 := whole.State(); h1 != h2 || s1 != s2 || l1 != l2 || h1 < 0 {
			t.Errorf("in bytes %d, %d, %d; in one %d, %d, %d", h1, s1, l1, h2, s2, l2)
		}
	})
}
