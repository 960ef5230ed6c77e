package envoy_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meteproject/mete/test/envoy"
)

func binary(t *testing.T) string {
	t.Helper()
	path, err := envoy.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestExamples has a real Envoy read every bootstrap that we tell people to copy.
func TestExamples(t *testing.T) {
	t.Parallel()
	root, err := envoy.Root()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(root, "examples", "envoy", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, file := range files {
		config, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(config), "static_resources:") {
			continue // a part of one: test/e2e runs it in its place
		}
		tried++
		if err := envoy.Validate(t.Context(), binary(t), string(config)); err != nil {
			t.Errorf("%s: %v", filepath.Base(file), err)
		}
	}
	if tried < 2 {
		t.Errorf("found %d bootstraps among %v, want 2 or more", tried, files)
	}
}

func TestStart(t *testing.T) {
	t.Parallel()
	p, err := envoy.Start(t.Context(), binary(t), `
admin: {address: {socket_address: {address: 127.0.0.1, port_value: 0}}}
static_resources:
  listeners:
    - name: in
      address: {socket_address: {address: 127.0.0.1, port_value: 0}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.echo
              typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.network.echo.v3.Echo}
`)
	if err != nil {
		t.Fatal(err)
	}
	if address := p.Listener("in"); !strings.HasPrefix(address, "127.0.0.1:") || strings.HasSuffix(address, ":0") {
		t.Errorf("Listener(in) = %q, want a port in use", address)
	}
	if page, err := p.Get(t.Context(), "/server_info"); err != nil || !strings.Contains(page, "LIVE") {
		t.Errorf("Get(/server_info) = %q, %v, want LIVE", page, err)
	}
	for range 2 {
		if err := p.Stop(); err != nil {
			t.Errorf("Stop: %v", err)
		}
	}
}

func TestStart_badConfig(t *testing.T) {
	t.Parallel()
	_, err := envoy.Start(t.Context(), binary(t), "static_resources: {lissteners: []}\n")
	if err == nil || !strings.Contains(err.Error(), "lissteners") {
		t.Errorf("Start = %v, want an error that names the unknown field", err)
	}
}

func TestPorts(t *testing.T) {
	t.Parallel()
	got, err := envoy.Ports("{port_value: 80} {port_value: 8000} {port_value: 80}", map[int]int{80: 0})
	if want := "{port_value: 0} {port_value: 8000} {port_value: 0}"; err != nil || got != want {
		t.Errorf("Ports = %q, %v, want %q", got, err, want)
	}
	if _, err := envoy.Ports("{port_value: 80}", map[int]int{8080: 0}); err == nil {
		t.Error("Ports accepts a port that the config has not")
	}
}

func TestBinary_ENVOY(t *testing.T) {
	t.Setenv("ENVOY", "/nonexistent/envoy")
	if path, err := envoy.Binary(t.Context()); err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("Binary = %q, %v, want an error of one line: ENVOY must not be passed over", path, err)
	}
}
