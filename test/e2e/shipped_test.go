package e2e_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// C154, C164: the shipped Envoy configurations settle what servers read differently, and
// say in Envoy's log what was decided.
func TestShipped_C154_C164_EveryConfiguration(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("../../examples/envoy/*.yaml")
	if err != nil || len(files) < 4 {
		t.Fatalf("%q, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "http_connection_manager") {
			continue
		}
		for _, line := range []string{
			"normalize_path: true", "merge_slashes: true", "path_with_escaped_slashes_action: REJECT_REQUEST",
			"headers_with_underscores_action: REJECT_REQUEST", "%DYNAMIC_METADATA(envoy.filters.http.",
		} {
			if !strings.Contains(string(text), line) {
				t.Errorf("%s lacks %s", file, line)
			}
		}
		if strings.Contains(string(text), "remote_address: {}") && !strings.Contains(string(text), "use_remote_address: true") {
			t.Errorf("%s limits by an address that the client writes", file)
		}
	}
}

// C154, C164, behind the shipped configuration: no spelling of a header or a path gets past
// Envoy that the API would read as another one.
func TestShipped_C154_C164_BehindEnvoy(t *testing.T) {
	t.Parallel()
	a := newApp(t, shared(t), "hourly: {kind: rate, amount: 100, window: 1h}")
	if r := a.send(t, a.key, "x_mete_class: internal"); r.status != http.StatusBadRequest {
		t.Errorf("a header with underscores: %d", r.status)
	}
	if r := a.get(t, "/public/..%2fv1/render"); r.status != http.StatusBadRequest {
		t.Errorf("a path with an escaped slash: %d", r.status)
	}
	if r := a.send(t, a.key); r.status != http.StatusOK {
		t.Errorf("a plain request: %d %s", r.status, r.body)
	}
}
