package main

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
)

// A levelGate drops log events below a level that may change at run time.
type levelGate struct{ level atomic.Int32 }

func (g *levelGate) set(l zerolog.Level) { g.level.Store(int32(l)) }

func (g *levelGate) get() zerolog.Level { return zerolog.Level(g.level.Load()) }

// Run implements zerolog.Hook.
func (g *levelGate) Run(e *zerolog.Event, level zerolog.Level, _ string) {
	if level < g.get() {
		e.Discard()
	}
}

// newLogger returns a logger that writes JSON lines to w.
func newLogger(w io.Writer, level zerolog.Level, now func() time.Time) (zerolog.Logger, *levelGate) {
	gate := &levelGate{}
	gate.set(level)
	stamp := zerolog.HookFunc(func(e *zerolog.Event, _ zerolog.Level, _ string) {
		e.Str("time", now().UTC().Format("2006-01-02T15:04:05.000Z07:00"))
	})
	return zerolog.New(w).Hook(gate, stamp), gate
}

// ServeHTTP tells the level, and with PUT sets it to the one in the body.
func (g *levelGate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPut {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
		if err != nil {
			http.Error(w, "the body is a level alone, such as debug", http.StatusRequestEntityTooLarge)
			return
		}
		level, err := logLevel(strings.Trim(string(body), "\" \r\n"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		g.set(level)
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = io.WriteString(w, g.get().String()+"\n")
}
