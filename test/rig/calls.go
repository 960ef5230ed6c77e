package rig

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
)

// emptyMessage is a gRPC message without content: not compressed, no bytes.
const emptyMessage = "\x00\x00\x00\x00\x00"

// call does the acts of a gRPC service, whatever its methods are called. Messages
// are empty. They are written by hand: a server of the library would not let us
// choose between headers and trailers.
func (u *Upstream) call(w http.ResponseWriter, r *http.Request, name string, nth int) {
	w.Header().Set("Content-Type", "application/grpc")
	if name == ActCallRefused {
		callStatus(w.Header(), r, codes.NotFound)
		w.WriteHeader(http.StatusOK)
		return
	}
	_, _ = io.Copy(io.Discard, r.Body)
	if name == ActCallFailsOnce && nth == 1 {
		callStatus(w.Header(), r, codes.Unavailable)
		w.WriteHeader(http.StatusOK)
		return
	}
	w.Header().Set("Trailer", "Grpc-Status, Grpc-Message, "+UsageUnits)
	w.WriteHeader(http.StatusOK)
	flush(w)
	end := codes.OK
	switch name {
	case ActCallFails:
		end = codes.NotFound
	case ActCallStream:
		messages(w, 3)
	case ActCallSlow:
		for range 8 {
			messages(w, 1)
			pause(r.Context(), 200*time.Millisecond)
		}
	case ActCallPart:
		messages(w, 2)
		<-r.Context().Done()
		return
	default:
		messages(w, 1)
	}
	callStatus(w.Header(), r, end)
}

// callStatus says how a call ended and what it used.
func callStatus(fields http.Header, r *http.Request, code codes.Code) {
	fields.Set("Grpc-Status", strconv.Itoa(int(code)))
	fields.Set("Grpc-Message", "as the test wants it")
	if use := r.Header.Get(TestUse); use != "" {
		fields.Set(UsageUnits, use)
	}
}

func messages(w http.ResponseWriter, n int) {
	for range n {
		_, _ = io.WriteString(w, emptyMessage)
		flush(w)
	}
}

// pause lets time pass, unless the caller leaves.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
