package rig

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// TestAct is the request header that has an Upstream treat the request as no API
// should: see the Act constants.
const TestAct = "x-test-act"

// TestUse is the request header with the number of units that the response is to
// say were used: in its header UsageUnits, in gRPC in the trailer of that name.
const TestUse = "x-test-use"

// UsageUnits is the response field with the number of used units.
const UsageUnits = "x-usage-units"

// What an Upstream can do to a request. ActStatus and ActBytes want a number
// behind them. An act that breaks a response off does so once the Meetings of the
// Upstream release the request, so that the caller has what was sent before.
const (
	ActStatus         = "status-"          // that status; a short body where one is allowed
	ActBytes          = "bytes-"           // 200 with so many bytes in chunks, after the request's body
	ActBusyOnce       = "busy-once"        // 503 to the first of the requests with this TestID, then 200
	ActMovedOnce      = "moved-once"       // 302 to the first of the requests with this TestID, then 200
	ActGone           = "gone"             // no response: FIN, or RST_STREAM in HTTP/2
	ActReset          = "reset"            // no response: RST (HTTP/1.1 alone)
	ActGarbage        = "garbage"          // what is not HTTP (HTTP/1.1 alone)
	ActSilent         = "silent"           // no response for as long as the caller waits
	ActPartThenGone   = "part-then-gone"   // 10 bytes of 100, then as ActGone
	ActPartThenReset  = "part-then-reset"  // a chunk of 10 bytes, then RST (HTTP/1.1 alone)
	ActPartThenSilent = "part-then-silent" // 10 bytes and no more
	ActTrickle        = "trickle"          // 10 bytes each 50 ms for as long as the caller reads
	ActSlow           = "slow"             // 10 bytes each 200 ms, eight times
	ActFlood          = "flood"            // as much as the caller takes
	ActUpgrade        = "upgrade"          // 101, then an echo of every byte (HTTP/1.1 alone)
	ActCallOK         = "call-ok"          // gRPC: one message and OK
	ActCallFails      = "call-fails"       // gRPC: NOT_FOUND in the trailers, after the headers
	ActCallFailsOnce  = "call-fails-once"  // gRPC: UNAVAILABLE to the first with this TestID, then as ActCallOK
	ActCallRefused    = "call-refused"     // gRPC: NOT_FOUND in the headers, without trailers
	ActCallStream     = "call-stream"      // gRPC: three messages and OK
	ActCallSlow       = "call-slow"        // gRPC: a message each 200 ms, eight times, and OK
	ActCallPart       = "call-part"        // gRPC: two messages and no more
)

// act does what the request asks for. It reports whether it asks for anything.
func (u *Upstream) act(w http.ResponseWriter, r *http.Request) bool {
	name, id := r.Header.Get(TestAct), r.Header.Get(TestID)
	if name == "" {
		return false
	}
	nth := len(u.Seen(id)) // this one included
	u.Meetings.Arrive(id)
	if strings.HasPrefix(name, "call-") {
		u.call(w, r, name, nth)
		return true
	}
	if use := r.Header.Get(TestUse); use != "" {
		w.Header().Set(UsageUnits, use)
	}
	if text, ok := strings.CutPrefix(name, ActStatus); ok {
		answerStatus(w, r, text)
		return true
	}
	if text, ok := strings.CutPrefix(name, ActBytes); ok {
		answerBytes(w, r, text)
		return true
	}
	u.misbehave(w, r, name, nth)
	return true
}

// misbehave does the acts that need no number.
func (u *Upstream) misbehave(w http.ResponseWriter, r *http.Request, name string, nth int) {
	switch name {
	case ActBusyOnce:
		if nth == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_, _ = io.WriteString(w, "fine") // here and below: who has gone needs no telling
	case ActMovedOnce:
		if nth == 1 {
			w.Header().Set("location", "http://"+r.Host+r.URL.RequestURI())
			w.WriteHeader(http.StatusFound)
		}
		_, _ = io.WriteString(w, "fine")
	case ActGone:
		panic(http.ErrAbortHandler)
	case ActReset:
		hijacked(w, "")
	case ActGarbage:
		hijacked(w, "this is not HTTP\r\n\r\n")
	case ActSilent:
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	case ActPartThenGone:
		w.Header().Set("Content-Length", "100")
		part(w)
		_ = u.Meetings.Released(r.Context(), r.Header.Get(TestID))
		panic(http.ErrAbortHandler)
	case ActPartThenReset:
		u.resetLater(w, r)
	case ActPartThenSilent:
		part(w)
		<-r.Context().Done()
	case ActTrickle:
		repeat(w, r, -1, 50*time.Millisecond)
	case ActSlow:
		repeat(w, r, 8, 200*time.Millisecond)
	case ActFlood:
		for block := make([]byte, 64<<10); ; {
			if _, err := w.Write(block); err != nil {
				return
			}
		}
	case ActUpgrade:
		upgrade(w, r)
	default:
		http.Error(w, "this upstream has no act "+name, http.StatusNotImplemented)
	}
}

func answerStatus(w http.ResponseWriter, r *http.Request, text string) {
	status, err := strconv.Atoi(text)
	if err != nil || status < 200 || status > 599 {
		http.Error(w, "no status: "+text, http.StatusNotImplemented)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if status == http.StatusMovedPermanently {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(status)
	if status != http.StatusNoContent && status != http.StatusNotModified {
		_, _ = io.WriteString(w, "hello")
	}
}

func answerBytes(w http.ResponseWriter, r *http.Request, text string) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		http.Error(w, "no number of bytes: "+text, http.StatusNotImplemented)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	flush(w)
	_, _ = io.WriteString(w, strings.Repeat("x", n))
}

// part sends ten bytes, and the headers of a 200 if they were not sent yet.
func part(w http.ResponseWriter) {
	_, _ = io.WriteString(w, "0123456789")
	flush(w)
}

// repeat sends ten bytes at a time, n times, or for as long as the caller is there if
// n is negative.
func repeat(w http.ResponseWriter, r *http.Request, n int, every time.Duration) {
	for i := 0; i != n && r.Context().Err() == nil; i++ {
		part(w)
		pause(r.Context(), every)
	}
}

func flush(w http.ResponseWriter) { _ = http.NewResponseController(w).Flush() }

// hijacked takes the connection from the server, sends text if there is any, and
// closes it: with RST if there is none.
func hijacked(w http.ResponseWriter, text string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler) // HTTP/2: a stream has nothing else to end with
	}
	defer func() { _ = conn.Close() }()
	if text != "" {
		_, _ = io.WriteString(conn, text)
		return
	}
	linger(conn)
}

// linger has the coming Close send an RST.
func linger(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// resetLater sends a chunk, and RST once it is released.
func (u *Upstream) resetLater(w http.ResponseWriter, r *http.Request) {
	use := w.Header().Get(UsageUnits)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s: %s\r\ntransfer-encoding: chunked\r\n\r\na\r\n%s\r\n", UsageUnits, use, "0123456789")
	_ = u.Meetings.Released(r.Context(), r.Header.Get(TestID))
	linger(conn)
}

// upgrade switches protocols, as for a websocket, and echoes.
func upgrade(w http.ResponseWriter, r *http.Request) {
	use := w.Header().Get(UsageUnits)
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = conn.Close() }()
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: %s\r\n%s: %s\r\n\r\n",
		r.Header.Get("Upgrade"), UsageUnits, use)
	_, _ = io.Copy(conn, conn)
}
