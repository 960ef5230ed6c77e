package e2e_test

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	ratelimitcommonv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/meteproject/mete/test/envoy"
	"github.com/meteproject/mete/test/rig"
)

// A gateway is an Envoy of one test that asks mete by the rate limit filter, for a
// domain of its own.
type gateway struct {
	*world
	domain   string
	config   string // of its Envoy, without the ports
	listener string
	envoy    *envoy.Process // behind listener
	sent     int
}

// descriptorsConfig is an Envoy with ROUTES, and FILTER fields of the rate limit filter.
const descriptorsConfig = `
admin:
  address: {socket_address: {address: 127.0.0.1, port_value: 9901}}
static_resources:
  listeners:
    - name: edge
      address: {socket_address: {address: 127.0.0.1, port_value: 10000}}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: edge
                codec_type: AUTO
                INTERNAL
                route_config:
                  name: edge
                  virtual_hosts:
                    - name: edge
                      domains: ["*"]
                      routes:
ROUTES
                http_filters:
FILTER
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
  clusters:
    - name: api
      type: STATIC
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          use_downstream_protocol_config: {http2_protocol_options: {}}
      load_assignment:
        cluster_name: api
        endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8000}}}}]}]
    - name: quota_service
      type: STATIC
      connect_timeout: 0.2s
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          explicit_http_config: {http2_protocol_options: {}}
      load_assignment:
        cluster_name: quota_service
        endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 9001}}}}]}]
`

// rateLimitFilter is the filter as most have it, with more fields.
func rateLimitFilter(domain string, more ...string) string {
	return strings.Join(append([]string{
		"- name: envoy.filters.http.ratelimit",
		"  typed_config:",
		`    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit`,
		"    domain: " + domain,
		"    timeout: 10s",
		"    rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: quota_service}}}",
	}, indented("    ", more)...), "\n")
}

func indented(by string, lines []string) []string {
	out := make([]string, 0, len(lines))
	for _, line := range lines {
		out = append(out, by+line)
	}
	return out
}

// perRoute is a route for a prefix with rate limits of its own: descriptors in the form
// of Envoy, one a line.
func perRoute(prefix string, limits ...string) string {
	return strings.Join(append([]string{
		"- match: {prefix: " + prefix + "}",
		"  route: {cluster: api}",
		"  typed_per_filter_config:",
		"    envoy.filters.http.ratelimit:",
		`      "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimitPerRoute`,
		"      rate_limits:",
	}, indented("        ", limits)...), "\n")
}

// newGateway puts a document of descriptors into force and starts an Envoy. In what is
// given DOMAIN stands for the domain of the test.
func newGateway(t *testing.T, w *world, document string, filter []string, routes ...string) *gateway {
	t.Helper()
	return newGatewayBehind(t, w, "", document, filter, routes...)
}

// setMetadata is a filter that writes dynamic metadata.
func setMetadata(namespace, value string) string {
	return strings.Join([]string{
		"- name: envoy.filters.http.set_metadata",
		"  typed_config:",
		`    "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config`,
		"    metadata: [{metadata_namespace: " + namespace + ", value: " + value + "}]",
		"",
	}, "\n")
}

// newGatewayBehind is newGateway with another filter before the one that asks mete.
func newGatewayBehind(t *testing.T, w *world, before, document string, filter []string, routes ...string) *gateway {
	t.Helper()
	g := &gateway{world: w, domain: fmt.Sprintf("%.60s-%d", strings.ToLower(t.Name()), apps.Add(1))}
	g.edit(t, document)
	g.config = strings.ReplaceAll(strings.NewReplacer(
		"ROUTES", strings.Join(indented(strings.Repeat(" ", 24), strings.Split(strings.Join(routes, "\n"), "\n")), "\n"),
		"FILTER", strings.Join(indented(strings.Repeat(" ", 18), strings.Split(before+rateLimitFilter("DOMAIN", filter...), "\n")), "\n"),
		"INTERNAL\n", "\n").Replace(descriptorsConfig), "DOMAIN", g.domain)
	g.listener = g.start(t, g.config)
	return g
}

// listenerAt starts another Envoy like g's that asks the mete of w, and returns its
// listener's address.
func (g *gateway) listenerAt(t *testing.T, w *world) string {
	t.Helper()
	other := &gateway{world: w}
	return other.start(t, g.config)
}

// start runs an Envoy and returns its listener's address.
func (g *gateway) start(t *testing.T, config string) string {
	t.Helper()
	config, err := envoy.Ports(config, map[int]int{9901: 0, 10000: 0, 9001: rig.Port(g.mete.GRPC), 8000: rig.Port(g.upstream.Address)})
	if err != nil {
		t.Fatal(err)
	}
	binary, err := envoy.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := envoy.Start(context.Background(), binary, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	})
	g.envoy = p
	return p.Listener("edge")
}

// edit puts the document of the domain into force, as etcdctl would. It must end with
// its descriptors.
func (g *gateway) edit(t *testing.T, document string) {
	t.Helper()
	version := fmt.Sprint("v", apps.Add(1))
	document = strings.ReplaceAll(document, "DOMAIN", g.domain) + "\n  - {key: in_force, value: " + version + ", rate_limit: {unlimited: true}}\n"
	if _, err := g.etcd.Put(t.Context(), "/mete/v1/ratelimits/"+g.domain, document); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the descriptors are in force", func() bool {
		r := g.ask(t, &ratelimitv3.RateLimitRequest{Domain: g.domain, Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{
			{Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: "in_force", Value: version}}},
		}})
		return r.GetStatuses()[0].GetLimitRemaining() == math.MaxUint32
	})
}

// ask asks mete directly.
func (g *gateway) ask(t *testing.T, in *ratelimitv3.RateLimitRequest) *ratelimitv3.RateLimitResponse {
	t.Helper()
	conn, err := grpc.NewClient(g.mete.GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// get sends a GET for a path with headers, "Name: value".
func (g *gateway) get(t *testing.T, path string, headers ...string) *reply {
	t.Helper()
	a := &app{world: g.world, name: g.domain, host: "edge.test", sent: g.sent}
	r := a.sendTo(t, g.listener+path, headers...)
	g.sent = a.sent
	return r
}

// want sends n requests that must be answered with a status.
func (g *gateway) want(t *testing.T, n, status int, path string, headers ...string) *reply {
	t.Helper()
	var r *reply
	for i := range n {
		r = g.get(t, path, headers...)
		if seen := len(r.seen); r.status != status || seen > 0 != (status == http.StatusOK) {
			t.Fatalf("request %d of %d for %s %q: got %d %s, the API saw %d; want %d", i+1, n, path, headers, r.status, r.body, seen, status)
		}
	}
	return r
}

// example reads a file of examples.
func example(t *testing.T, path ...string) string {
	t.Helper()
	root, err := envoy.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(append([]string{root, "examples"}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// look asks what is left of a counter, and charges nothing.
func look(domain, key, value string) *ratelimitv3.RateLimitRequest {
	return &ratelimitv3.RateLimitRequest{Domain: domain, Descriptors: []*ratelimitcommonv3.RateLimitDescriptor{{
		Entries: []*ratelimitcommonv3.RateLimitDescriptor_Entry{{Key: key, Value: value}}, HitsAddend: wrapperspb.UInt64(0),
	}}}
}
