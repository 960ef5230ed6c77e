package e2e_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// patienceOfAPI is how long Envoy waits for the API on the routes that wait at all:
// long enough for a busy machine to have begun an answer.
const patienceOfAPI = 3 * time.Second

// outcomesRoutes are routes of Envoy that a request picks by a header. They go
// before the example's own.
const outcomesRoutes = `
- match: {prefix: /, headers: [{name: x-test-route, string_match: {exact: refused}}]}
  route: {cluster: nobody}
- match: {prefix: /, headers: [{name: x-test-route, string_match: {exact: timeout}}]}
  route: {cluster: api, timeout: PATIENCE}
- match: {prefix: /, headers: [{name: x-test-route, string_match: {exact: idle}}]}
  route: {cluster: api, timeout: 60s, idle_timeout: PATIENCE}
- match: {prefix: /, headers: [{name: x-test-route, string_match: {exact: longest}}]}
  route: {cluster: api, timeout: 60s, max_stream_duration: {max_stream_duration: PATIENCE}}
- match: {prefix: /, headers: [{name: x-test-route, string_match: {exact: retry}}]}
  route: {cluster: api, timeout: 60s, retry_policy: {retry_on: "5xx,unavailable", num_retries: 2, retry_back_off: {base_interval: 0.01s}}}
- match: {prefix: /, headers: [{name: x-test-route, string_match: {exact: followed}}]}
  route: {cluster: api, internal_redirect_policy: {max_internal_redirects: 1, redirect_response_codes: [302], allow_cross_scheme_redirect: true}}
- match: {prefix: /, headers: [{name: x-test-route, string_match: {exact: direct}}]}
  direct_response: {status: 200, body: {inline_string: direct}}
- match: {prefix: /, headers: [{name: x-test-route, string_match: {exact: redirect}}]}
  redirect: {path_redirect: /elsewhere}
`

// A file tells what Envoy says of each outcome: what is settled must be that.
const outcomesLog = `
- name: envoy.access_loggers.file
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog
    path: FILE
    log_format:
      text_format_source:
        inline_string: "%REQ(x-test-id)% %ACCESS_LOG_TYPE% %RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %DYNAMIC_METADATA(envoy.filters.http.ext_authz:decision)%\n"
`

// outcomesEdge is a rate limit filter that asks mete, too, in an app of its own.
const outcomesEdge = `
- name: envoy.filters.http.ratelimit
  typed_config:
    "@type": type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit
    domain: outcomes-edge
    timeout: 10s
    failure_mode_deny: true
    rate_limits: [{actions: [{request_headers: {header_name: x-test-edge, descriptor_key: tenant}}]}]
    rate_limit_service: {transport_api_version: V3, grpc_service: {envoy_grpc: {cluster_name: mete}, timeout: 10s}}
`

// outcomesClusters are an API that nobody listens for, and the proxy before mete.
const outcomesClusters = `
- name: nobody
  type: STATIC
  connect_timeout: 1s
  load_assignment:
    cluster_name: nobody
    endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 1}}}}]}]
- name: proxy
  type: STATIC
  connect_timeout: 1s
  circuit_breakers: {thresholds: [{max_retries: 1000}]}
  typed_extension_protocol_options:
    envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
      "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
      explicit_http_config: {http2_protocol_options: {}}
  load_assignment:
    cluster_name: proxy
    endpoints: [{lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: PROXY}}}}]}]
`

// An edit is a text of a config and what comes in its place.
type edit struct{ old, new string }

// apply makes edits, each of which must find its place.
func apply(config string, edits ...edit) (string, error) {
	var errs []error
	for _, e := range edits {
		if !strings.Contains(config, e.old) {
			errs = append(errs, fmt.Errorf("the Envoy config has no %q", e.old))
		}
		config = strings.ReplaceAll(config, e.old, e.new)
	}
	return config, errors.Join(errs...)
}

// above is the edit that puts items of a list above one of them.
func above(item, items string) edit {
	indent := item[:len(item)-len(strings.TrimLeft(item, " "))]
	var b strings.Builder
	for line := range strings.Lines(strings.TrimPrefix(items, "\n")) {
		b.WriteString(indent + line)
	}
	return edit{item, b.String() + item}
}

// below is the edit that puts text below a line.
func below(line, text string) edit { return edit{line, line + text} }

// outcomesConfig makes the example's config into one with a listener for each
// setting of Envoy that outcomes depend on. Metes are the ports of all replicas.
func outcomesConfig(config, file string, proxy int, metes []int) (string, error) {
	patience := strconv.FormatFloat(patienceOfAPI.Seconds(), 'f', -1, 64) + "s"
	config, err := apply(config,
		edit{"buffer_flush_interval: 1s", "buffer_flush_interval: 0.2s"},
		below("                stat_prefix: ingress\n", "                upgrade_configs: [{upgrade_type: websocket}]\n"),
		above("                    - name: api\n                      domains:", "- {name: nowhere, domains: [nowhere.outcomes.test]}\n"),
		above("                        - match: {prefix: /}\n", strings.ReplaceAll(outcomesRoutes, "PATIENCE", patience)),
		above("                  - name: envoy.access_loggers.http_grpc\n", strings.ReplaceAll(outcomesLog, "FILE", file)),
		below("    - name: api\n      type: STRICT_DNS\n", "      circuit_breakers: {thresholds: [{max_retries: 1000}]}\n"),
		above("    # Your API.\n", strings.ReplaceAll(outcomesClusters, "PROXY", strconv.Itoa(proxy))),
	)
	if err != nil {
		return "", err
	}
	config, err = replicated(config, metes)
	if err != nil {
		return "", err
	}
	return withListeners(config, outcomesListeners())
}

// outcomesListeners are the edits that make further listeners of the example's.
func outcomesListeners() map[string][]edit {
	const (
		manager  = "                stat_prefix: ingress\n"
		filter   = "                      stat_prefix: mete\n"
		question = "                        envoy_grpc: {cluster_name: mete}\n"
		timeout  = "                        timeout: 10s\n"
		router   = "                  - name: envoy.filters.http.router\n"
	)
	viaProxy := func(more ...edit) []edit {
		return append(more, edit{question, strings.Replace(question, "mete", "proxy", 1)})
	}
	short := edit{timeout, strings.Replace(timeout, "10s", "1s", 1)}
	return map[string][]edit{
		"periodic": {below(manager, "                access_log_options: {access_log_flush_interval: 0.5s, flush_access_log_on_new_request: true, flush_log_on_tunnel_successfully_established: true}\n")},
		"proxied":  viaProxy(below(timeout, "                        retry_policy: {retry_on: unavailable, num_retries: 2}\n")),
		"closed":   viaProxy(short),
		"open":     viaProxy(short, edit{"failure_mode_allow: false", "failure_mode_allow: true"}),
		"shadow":   viaProxy(below(filter, "                      shadow_mode: true\n")),
		"noing":    {below(filter, "                      enable_dynamic_metadata_ingestion: false\n")},
		"edge":     {above(router, outcomesEdge)},
	}
}

// withListeners copies the config's first listener for each name, with edits.
func withListeners(config string, edits map[string][]edit) (string, error) {
	const first, end = "    - name: ingress\n", "\n  clusters:\n"
	from, to := strings.Index(config, first), strings.Index(config, end)
	if from < 0 || to < from {
		return "", errors.New("the Envoy config has no listener ingress before its clusters")
	}
	var errs []error
	more := ""
	for name, edits := range edits {
		text, err := apply(config[from:to], append(edits, edit{first, "    - name: " + name + "\n"})...)
		errs = append(errs, err)
		more += text
	}
	return config[:to] + more + config[to:], errors.Join(errs...)
}

// replicated gives the clusters of mete all its replicas.
func replicated(config string, metes []int) (string, error) {
	endpoint := func(port int) string {
		return fmt.Sprintf("{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: %d}}}}", port)
	}
	var all []string
	for _, port := range metes {
		all = append(all, endpoint(port))
	}
	return apply(config, edit{"[" + endpoint(metes[0]) + "]", "[" + strings.Join(all, ", ") + "]"})
}
