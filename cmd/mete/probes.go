package main

import (
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"
	"sync/atomic"
)

// probes answers /livez and /readyz. Being alive and being ready are never the
// same check: a replica that drains is alive, and one that is not ready is not
// helped by a restart. A replica without etcd stays ready once it has documents,
// for unreadying all replicas at once makes a small outage a full one (P34).
type probes struct {
	loaded   func() bool // documents have been read once
	sealing  func() bool // there is a key: what is admitted can be settled
	met      func() bool // the others know this one, and it knows them: settlements get where they belong
	entered  func() bool // this mete is new enough for the store
	behind   func() bool // the store has come to need a newer one since
	storeUp  func() bool
	refusal  func() string // what etcd says to writes; "": it takes them
	serving  atomic.Bool   // the listeners are up
	draining atomic.Bool
}

// ready reports whether requests should come here.
func (p *probes) ready() bool {
	return p.loaded() && p.sealing() && p.met() && p.entered() && p.serving.Load() && !p.draining.Load()
}

func (p *probes) livez(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, "ok")
}

func (p *probes) readyz(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	ready := p.ready()
	if !ready {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if r.URL.Query().Has("verbose") {
		_, _ = fmt.Fprint(w, p.report())
	}
	if ready {
		_, _ = fmt.Fprintln(w, "ready")
		return
	}
	_, _ = fmt.Fprintln(w, "not ready")
}

// report is one line a check.
func (p *probes) report() string {
	var b strings.Builder
	line := func(ok bool, mark, name string) {
		if ok {
			mark = "ok"
		}
		fmt.Fprintf(&b, "[%s] %s\n", mark, name)
	}
	line(p.loaded(), "fail", "documents read once")
	line(p.sealing(), "fail", "keys for reservations")
	line(p.met(), "fail", "registered among the replicas")
	line(p.entered(), "fail", "let into the store")
	line(p.serving.Load(), "fail", "listeners up")
	line(!p.draining.Load(), "fail", "not draining")
	line(p.storeUp(), "degraded", "etcd reachable")
	refusal := p.refusal()
	line(refusal == "", "degraded", strings.TrimSuffix("etcd takes writes: "+refusal, ": "))
	line(!p.behind(), "degraded", "new enough for the store")
	return b.String()
}

// metricsMux is all that the metrics listener serves. What changes or reveals the
// process is for callers on this machine alone: the listener may be open to a
// cluster.
func metricsMux(p *probes, level http.Handler, metrics http.Handler, withPprof bool) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", p.livez)
	mux.HandleFunc("GET /healthz", p.livez)
	mux.HandleFunc("GET /readyz", p.readyz)
	mux.Handle("GET /metrics", metrics)
	mux.Handle("GET /debug/loglevel", localOnly(level))
	mux.Handle("PUT /debug/loglevel", localOnly(level))
	if withPprof {
		mux.Handle("/debug/pprof/", localOnly(http.HandlerFunc(pprof.Index)))
		mux.Handle("/debug/pprof/cmdline", localOnly(http.HandlerFunc(pprof.Cmdline)))
		mux.Handle("/debug/pprof/profile", localOnly(http.HandlerFunc(pprof.Profile)))
		mux.Handle("/debug/pprof/symbol", localOnly(http.HandlerFunc(pprof.Symbol)))
		mux.Handle("/debug/pprof/trace", localOnly(http.HandlerFunc(pprof.Trace)))
	}
	return mux
}

// localOnly refuses callers from other machines, and pages in a browser that got
// here under a foreign name (DNS rebinding).
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if bySocket(r) {
			next.ServeHTTP(w, r)
			return
		}
		if !isLoopback(hostOf(r.RemoteAddr)) || !isLoopback(hostOf(r.Host)) {
			http.Error(w, "only for callers on this machine, by a loopback address", http.StatusForbidden)
			return
		}
		if !sameOrigin(r) {
			http.Error(w, "not for pages of another origin", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}
