package main

import (
	"net/http"

	"github.com/meteproject/mete/admin"
)

// adminMux is the admin API, with what more adds. schema may be nil.
func adminMux(schema []byte, status func() any, quotas *admin.Service, more ...func(*http.ServeMux)) http.Handler {
	mux := http.NewServeMux()
	mux.Handle(admin.Handler(quotas))
	mux.HandleFunc("GET /schema/v1/document.json", func(w http.ResponseWriter, r *http.Request) {
		if schema == nil {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/schema+json")
		_, _ = w.Write(schema)
	})
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, status())
	})
	for _, add := range more {
		add(mux)
	}
	return mux
}
