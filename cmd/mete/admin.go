package main

import (
	"encoding/json"
	"net/http"

	"github.com/meteproject/mete/admin"
)

// adminMux is the admin API. schema may be nil.
func adminMux(schema []byte, status func() any, quotas *admin.Service) http.Handler {
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
		text, err := json.MarshalIndent(status(), "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(append(text, '\n'))
	})
	return mux
}
