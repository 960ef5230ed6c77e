package e2e_test

import (
	"bufio"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/test/rig"
)

// byOrg is a descriptor of the header x-org.
const byOrg = "- actions: [{request_headers: {header_name: x-org, descriptor_key: org}}]"

// The headers that Envoy makes of the statuses, and ours, on answers that go on and on
// those that do not.
func TestDescriptors_P11_R1_R4_R5_C127_Headers(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - {key: org, rate_limit: {name: per_org, unit: minute, requests_per_unit: 3}}
  - {key: team, rate_limit: {unit: year, requests_per_unit: 1}}`,
		[]string{"enable_x_ratelimit_headers: DRAFT_VERSION_03", "enable_retry_after_header: true"},
		perRoute("/", byOrg, "- actions: [{request_headers: {header_name: x-team, descriptor_key: team}}]"))

	r := g.want(t, 1, http.StatusOK, "/", "X-Org: a")
	wantHeader(t, r, "X-Ratelimit-Limit", `3, 3;w=60;name="per_org"`)
	wantHeader(t, r, "X-Ratelimit-Remaining", "2")
	wantHeader(t, r, "Ratelimit-Policy", `"per_org";q=3;w=60`)
	wantHeader(t, r, "Ratelimit", `"per_org";r=2;t=20`)
	g.want(t, 2, http.StatusOK, "/", "X-Org: a")

	r = g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a")
	wantHeader(t, r, "X-Ratelimit-Limit", `3, 3;w=60;name="per_org"`)
	wantHeader(t, r, "X-Ratelimit-Remaining", "0")
	wantHeader(t, r, "X-Envoy-Ratelimited", "true")
	wantHeader(t, r, "Content-Type", "application/json")
	if wait, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || wait < 1 || wait > 20 || len(r.header.Values("Retry-After")) != 1 {
		t.Errorf("Retry-After = %q, want one from 1 to 20", r.header.Values("Retry-After"))
	}
	if !strings.Contains(r.body, `"error":"rate_limited"`) || !strings.Contains(r.body, "per_org") {
		t.Errorf("body %s", r.body)
	}

	g.want(t, 1, http.StatusOK, "/", "X-Org: b", "X-Team: x")
	r = g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: b", "X-Team: x")
	if !strings.Contains(r.header.Get("X-Ratelimit-Limit"), "1;w=31536000") || !strings.Contains(r.body, `"error":"quota_exceeded"`) {
		t.Errorf("refused by the year: %v %s", r.header, r.body)
	}
	// All or nothing (C030): the refusal took nothing of the minute.
	wantHeader(t, g.want(t, 1, http.StatusOK, "/", "X-Org: b"), "X-Ratelimit-Remaining", "1")
}

// A byte that is not UTF-8 in a header is limited like any other value, and does not
// void the limits of its request: stock gRPC servers refuse the message, and Envoy then
// lets the request through.
func TestDescriptors_C027_BytesThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - {key: org, rate_limit: {unit: year, requests_per_unit: 2}}
  - {key: all, rate_limit: {unit: year, requests_per_unit: 100}}`, nil,
		perRoute("/", byOrg, "- actions: [{generic_key: {descriptor_key: all, descriptor_value: all}}]"))
	for _, value := range []string{"caf\xe9", "\xff", "\xff\xfe"} {
		for i, want := range []int{http.StatusOK, http.StatusOK, http.StatusTooManyRequests, http.StatusTooManyRequests} {
			if got := raw(t, g.listener, "/", "x-org: "+value); got != want {
				t.Errorf("%q, request %d: %d, want %d", value, i+1, got, want)
			}
		}
	}
}

// raw sends a GET as it is written and returns the status.
func raw(t *testing.T, address, path string, headers ...string) int {
	t.Helper()
	c, err := rig.DialHTTP1(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Send(rig.Head(http.MethodGet, path, "edge.test", headers...)); err != nil {
		t.Fatal(err)
	}
	r, err := c.Receive(http.MethodGet)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Body.Close()
	return r.StatusCode
}

// A gRPC caller over the limit reads RESOURCE_EXHAUSTED (C123, real-configs 31).
func TestDescriptors_C123_ResourceExhausted(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - {key: org, descriptors: [{key: content_type, rate_limit: {unit: year, requests_per_unit: 1}}]}`,
		[]string{"rate_limited_as_resource_exhausted: true"},
		perRoute("/", "- actions: [{request_headers: {header_name: x-org, descriptor_key: org}}, {request_headers: {header_name: content-type, descriptor_key: content_type}}]"))
	conn, err := grpc.NewClient(g.listener, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	client, ctx := grpc_health_v1.NewHealthClient(conn), metadata.AppendToOutgoingContext(t.Context(), "x-org", "a")
	if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	_, err = client.Check(ctx, &grpc_health_v1.HealthCheckRequest{})
	if s := status.Convert(err); s.Code() != codes.ResourceExhausted || s.Message() == "" || len(s.Details()) == 0 {
		t.Errorf("got %v with %d details, want RESOURCE_EXHAUSTED in words", err, len(s.Details()))
	}
}

// Tokens of a response are counted once it is over; the next request only asks whether
// any are left (P13, P64).
func TestDescriptors_P13_P64_StreamDone(t *testing.T) {
	t.Parallel()
	tokens := "actions: [{request_headers: {header_name: x-org, descriptor_key: tokens}}]"
	g := newGateway(t, shared(t), `domain: DOMAIN
mete: {refused_hits: charged}
descriptors:
  - {key: tokens, rate_limit: {name: tokens, unit: year, requests_per_unit: 1000}}`,
		[]string{"enable_x_ratelimit_headers: DRAFT_VERSION_03"},
		perRoute("/", "- {hits_addend: {number: 0}, "+tokens+"}",
			`- {apply_on_stream_done: true, hits_addend: {format: "%RESP(x-usage-units)%"}, `+tokens+"}"))
	use := func(units string) {
		t.Helper()
		g.want(t, 1, http.StatusOK, "/", "X-Org: a", rig.TestRespond+": X-Usage-Units: "+units)
	}
	left := func(want string) {
		t.Helper()
		eventually(t, want+" tokens are left", func() bool {
			return g.get(t, "/", "X-Org: a", rig.TestRespond+": X-Usage-Units: 0").header.Get("X-Ratelimit-Remaining") == want
		})
	}
	use("700")
	left("300")
	use("299")
	left("1")
	use("5000") // more than is left: counted, as the domain says
	eventually(t, "nothing is left", func() bool {
		return g.get(t, "/", "X-Org: a").status == http.StatusTooManyRequests
	})
}

// What was taken too much goes back (is_negative_hits).
func TestDescriptors_P13_Refund(t *testing.T) {
	t.Parallel()
	units := "actions: [{request_headers: {header_name: x-org, descriptor_key: units}}]"
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - {key: units, rate_limit: {name: units, unit: year, requests_per_unit: 100}}`,
		[]string{"enable_x_ratelimit_headers: DRAFT_VERSION_03"},
		perRoute("/", "- {hits_addend: {number: 40}, "+units+"}",
			`- {apply_on_stream_done: true, hits_addend: {format: "%RESP(x-usage-units)%", is_negative_hits: true}, `+units+"}"),
	)
	r := g.want(t, 1, http.StatusOK, "/", "X-Org: a", rig.TestRespond+": X-Usage-Units: 30")
	wantHeader(t, r, "X-Ratelimit-Remaining", "60")
	eventually(t, "30 of 40 have come back, so that 50 are left after the next", func() bool {
		return g.get(t, "/", "X-Org: b", rig.TestRespond+": X-Usage-Units: 40").status == http.StatusOK
	})
	eventually(t, "90 units are left", func() bool {
		s := g.ask(t, look(g.domain, "units", "a")).GetStatuses()[0]
		return s.GetLimitRemaining() == 90
	})
}

// P14: a limit that Envoy sends along.
func TestDescriptors_P14_S31_C051_Override(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - {key: org, rate_limit: {unit: minute, requests_per_unit: 1}}`,
		[]string{"enable_x_ratelimit_headers: DRAFT_VERSION_03"},
		perRoute("/five", "- {limit: {rate_limit: {requests_per_unit: 5, unit: HOUR}}, actions: [{request_headers: {header_name: x-org, descriptor_key: org}}]}"),
		perRoute("/", byOrg))
	g.want(t, 1, http.StatusOK, "/", "X-Org: a")
	g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a")
	wantHeader(t, g.want(t, 1, http.StatusOK, "/five", "X-Org: a"), "X-Ratelimit-Limit", "5, 5;w=3600")
	g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a")
}

// C156: a limit that Envoy sends along and that is none: the rule holds, though the filter
// fails open, and what has no rule is refused.
func TestDescriptors_C156_OverrideThatCannotBeRead(t *testing.T) {
	t.Parallel()
	none := func(key string) string {
		return "- {limit: {dynamic_metadata: {metadata_key: {key: limits, path: [{key: none}]}}}, actions: [{request_headers: {header_name: x-org, descriptor_key: " + key + "}}]}"
	}
	g := newGatewayBehind(t, shared(t), setMetadata("limits", `{none: {requests_per_unit: 1000, unit: UNKNOWN}}`), `domain: DOMAIN
descriptors:
  - {key: org, rate_limit: {unit: minute, requests_per_unit: 3}}`,
		[]string{"failure_mode_deny: false"}, perRoute("/free", none("unconfigured")), perRoute("/", none("org")))
	g.want(t, 3, http.StatusOK, "/", "X-Org: a")
	g.want(t, 7, http.StatusTooManyRequests, "/", "X-Org: a")
	g.want(t, 1, http.StatusTooManyRequests, "/free", "X-Org: a")
}

// A descriptor without entries, which Envoy sends where skip_if_absent finds nothing, is
// answered and limits nothing; its neighbours are.
func TestDescriptors_C014_Empty(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - {key: generic_key, value: z, rate_limit: {unit: year, requests_per_unit: 2}}`, nil,
		perRoute("/only", "- actions: [{request_headers: {header_name: x-none, descriptor_key: none, skip_if_absent: true}}]"),
		perRoute("/", "- actions: [{request_headers: {header_name: x-none, descriptor_key: none, skip_if_absent: true}}]", "- actions: [{generic_key: {descriptor_value: z}}]"))
	g.want(t, 5, http.StatusOK, "/only")
	g.want(t, 2, http.StatusOK, "/")
	g.want(t, 1, http.StatusTooManyRequests, "/")
	g.want(t, 1, http.StatusOK, "/only")
}

// An edit by etcdctl is in force at once; a bad one changes nothing (C001, P21).
func TestDescriptors_P21_C001_Edits(t *testing.T) {
	t.Parallel()
	rules := `domain: DOMAIN
descriptors:
  - {key: org, rate_limit: {unit: year, requests_per_unit: `
	g := newGateway(t, shared(t), rules+"2}}", nil, perRoute("/", byOrg))
	g.want(t, 2, http.StatusOK, "/", "X-Org: a")
	g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a")
	if _, err := g.etcd.Put(t.Context(), "/mete/v1/ratelimits/"+g.domain, strings.ReplaceAll(rules, "DOMAIN", g.domain)+"2}}\n  - {key: org}\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the bad edit is told", func() bool {
		r, err := g.etcd.Get(t.Context(), "/mete/v1/status/ratelimits/"+g.domain)
		return err == nil && len(r.Kvs) == 1 && strings.Contains(string(r.Kvs[0].Value), "twice at this level")
	})
	g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a")
	g.edit(t, rules+"3}}") // usage stays (C017)
	g.want(t, 1, http.StatusOK, "/", "X-Org: a")
	g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a")
}

// P1, P3, P8, P10: what files of envoyproxy/ratelimit say, in one of them.
func TestDescriptors_P1_P3_P8_P10_Rules(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - key: org
    descriptors:
      - {key: path, value: /api/*, rate_limit: {unit: year, requests_per_unit: 1}}
      - {key: path, value: /files/*, share_threshold: true, rate_limit: {unit: year, requests_per_unit: 2}}
      - {key: path, value: /shadow, shadow_mode: true, rate_limit: {unit: year, requests_per_unit: 1}}
      - {key: path, value: /free, rate_limit: {unlimited: true}}
      - {key: path, rate_limit: {unit: year, requests_per_unit: 3}}`, nil,
		perRoute("/", `- actions: [{request_headers: {header_name: x-org, descriptor_key: org}}, {request_headers: {header_name: ":path", descriptor_key: path}}]`))
	for path, n := range map[string]int{"/api/x": 1, "/api/y": 1, "/other": 3, "/api": 3} {
		g.want(t, n, http.StatusOK, path, "X-Org: a")
		g.want(t, 1, http.StatusTooManyRequests, path, "X-Org: a")
	}
	g.want(t, 1, http.StatusOK, "/files/1", "X-Org: a")
	g.want(t, 1, http.StatusOK, "/files/2", "X-Org: a")
	g.want(t, 1, http.StatusTooManyRequests, "/files/3", "X-Org: a")
	g.want(t, 4, http.StatusOK, "/shadow", "X-Org: a")
	g.want(t, 4, http.StatusOK, "/free", "X-Org: a")
	g.want(t, 1, http.StatusOK, "/api/x", "X-Org: b")
	page, err := metricsPage(t.Context(), g.mete)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`mete_ratelimit_shadow_mode_total{domain="` + g.domain + `",rule="org.path_/shadow"} 3`,
		`mete_ratelimit_over_limit_total{domain="` + g.domain + `",rule="org.path_/api/*"} 2`,
		`mete_ratelimit_hits_total{domain="` + g.domain + `",rule="org.path_/free"} 4`,
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("no line %s in\n%s", line, ratelimitLines(page))
		}
	}
}

func ratelimitLines(page string) string {
	var b strings.Builder
	for scan := bufio.NewScanner(strings.NewReader(page)); scan.Scan(); {
		if strings.HasPrefix(scan.Text(), "mete_ratelimit") {
			b.WriteString(scan.Text() + "\n")
		}
	}
	return b.String()
}

// The example is what its files and the guide say of it.
func TestDescriptors_Example(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, func(config string) string { return config })
	rules := example(t, "ratelimit", "edge.yaml")
	if _, err := w.etcd.Put(t.Context(), "/mete/v1/ratelimits/edge", rules); err != nil {
		t.Fatal(err)
	}
	p, err := w.startEnvoy(t.Context(), "descriptors.yaml", 9903, 10002, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stop() }()
	g := &gateway{world: w, domain: "edge", listener: p.Listener("edge")}
	eventually(t, "the rules are in force", func() bool {
		return g.get(t, "/", "X-Org: acme").header.Get("X-Ratelimit-Remaining") != ""
	})
	wantHeader(t, g.want(t, 1, http.StatusOK, "/export", "X-Org: acme"), "X-Ratelimit-Remaining", "4")
	g.want(t, 4, http.StatusOK, "/export", "X-Org: acme")
	g.want(t, 1, http.StatusTooManyRequests, "/export", "X-Org: acme")
	eventually(t, "another organisation has exports of its own", func() bool {
		return g.get(t, "/export", "X-Org: other").header.Get("X-Ratelimit-Remaining") == "4"
	})
}

// While mete is away Envoy's failure mode decides, and an hourly limit goes on where it
// was once mete is back (P68, real-configs 31).
func TestDescriptors_P68_C117_MeteStopped(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		filter []string
		away   int
	}{
		"fail open":          {nil, http.StatusOK},
		"deny":               {[]string{"failure_mode_deny: true"}, http.StatusInternalServerError},
		"deny with a status": {[]string{"failure_mode_deny: true", "status_on_error: {code: ServiceUnavailable}"}, http.StatusServiceUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, nil, func(config string) string { return config })
			g := newGateway(t, w, `domain: DOMAIN
descriptors:
  - {key: org, rate_limit: {unit: year, requests_per_unit: 3}}`, tt.filter, perRoute("/", byOrg))
			g.want(t, 2, http.StatusOK, "/", "X-Org: a")
			if err := w.mete.Stop(); err != nil {
				t.Fatal(err)
			}
			g.want(t, 4, tt.away, "/", "X-Org: a")
			old := w.mete
			if err := w.startMete(t.Context(), old.DataDir, "--grpc-listen", old.GRPC, "--etcd-listen", old.Etcd); err != nil {
				t.Fatal(err)
			}
			eventually(t, "mete is asked again, and has not forgotten two of three", func() bool {
				return g.get(t, "/", "X-Org: a").status == http.StatusTooManyRequests
			})
			if used := g.ask(t, look(g.domain, "org", "a")).GetStatuses()[0].GetLimitRemaining(); used != 0 {
				t.Errorf("%d of 3 left", used)
			}
		})
	}
}

// Two replicas count an hour and longer together: not one unit over, and all of them of
// use, whichever of them Envoy asks (A34).
func TestDescriptors_A34_P10_TwoReplicas(t *testing.T) {
	t.Parallel()
	first := newWorld(t, nil, unchanged)
	const rules = `domain: DOMAIN
mete: {on_unavailable: deny}
descriptors:
  - {key: org, rate_limit: {unit: year, requests_per_unit: 500}}
  - {key: spare, rate_limit: {unit: year, requests_per_unit: 100000}}`
	one := newGateway(t, first, rules, nil, perRoute("/", byOrg))
	second := newReplica(t, first)
	two := &gateway{world: second, domain: one.domain}
	two.edit(t, rules)
	two.listener = one.listenerAt(t, second)
	var admitted atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		g := *[]*gateway{one, two}[i%2]
		g.sent = (i + 1) * 1_000_000
		all.Go(func() {
			for range 100 {
				switch r := g.get(t, "/", "X-Org: a"); r.status {
				case http.StatusOK:
					admitted.Add(1)
				case http.StatusTooManyRequests:
				default:
					t.Errorf("got %d %s", r.status, r.body)
				}
			}
		})
	}
	all.Wait()
	if n := admitted.Load(); n != 500 {
		t.Errorf("%d requests admitted of a limit of 500", n)
	}
}

// A domain that is bound to an app runs the app's decision for descriptors with a tenant,
// and counts all others by its rules; all or nothing over both.
func TestDescriptors_C4_C019_AppAndRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, unchanged)
	const rules = `domain: DOMAIN
descriptors:
  - {key: org, rate_limit: {unit: year, requests_per_unit: 4}}`
	g := newGateway(t, w, rules, nil, perRoute("/", byOrg,
		"- actions: [{request_headers: {header_name: x-tenant, descriptor_key: tenant}}]",
		"- actions: [{request_headers: {header_name: x-automation, descriptor_key: tenant}}, {generic_key: {descriptor_key: class, descriptor_value: automation}}]",
		"- actions: [{request_headers: {header_name: x-five, descriptor_key: tenant}}, {generic_key: {descriptor_key: units, descriptor_value: '5'}}]"))
	a := newApp(t, w, "monthly: {kind: quota, amount: 10, reset: {calendar: year}}", "domain: "+g.domain)
	put := a.put(t, map[string]string{
		"apps/" + a.name: document("App", a.name, "  time_zone: Europe/Berlin\n  envoy: {domain: "+g.domain+"}\n"+
			"  identity: {tenant: [{api_key: x-api-key}], classes: [{name: automation, when: {credential_prefix: [bot_]}}]}"),
		"plans/" + a.name: a.plan(`
monthly: {kind: quota, amount: 10, reset: {calendar: year}, when_used_up: {grace: 10%}}
robots: {kind: rate, amount: 2, window: 1h, classes: [automation]}`),
	})
	eventually(t, "the plan is in force", func() bool {
		r, err := g.etcd.Get(t.Context(), "/mete/v1/effective/plans/"+a.name)
		return err == nil && len(r.Kvs) == 1 && r.Kvs[0].ModRevision > put
	})
	g.edit(t, rules) // what is in force in etcd before that mete follows before that
	tenant := "X-Tenant: " + a.tenant
	g.want(t, 3, http.StatusOK, "/", "X-Org: a", tenant)
	g.want(t, 1, http.StatusOK, "/", "X-Five: "+a.tenant)
	g.want(t, 1, http.StatusOK, "/", "X-Automation: "+a.tenant)
	g.want(t, 1, http.StatusOK, "/", "X-Automation: "+a.tenant)              // the tenth unit
	g.want(t, 1, http.StatusTooManyRequests, "/", "X-Automation: "+a.tenant) // by the class's rate
	g.want(t, 1, http.StatusOK, "/", tenant)                                 // C4: the grace band
	g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a", tenant)        // nothing is left of the band, and
	g.want(t, 1, http.StatusOK, "/", "X-Org: a")                             // the rule was not charged for it
	g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a")
	if used := a.account(t).Used(); used != 11 {
		t.Errorf("%d used, want 10 and the band", used)
	}
}

// real-configs 31: that very filter, with a domain whose rules are of mete.
func TestDescriptors_RealConfig31(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - {key: org, rate_limit: {name: per_org, unit: year, requests_per_unit: 2}}`, nil, perRoute("/", byOrg))
	filter := strings.ReplaceAll(realConfig(t, "31-filter-ratelimit.yaml"), "domain: edge", "domain: "+g.domain)
	g.listener = g.start(t, strings.NewReplacer(
		"ROUTES", strings.Join(indented(strings.Repeat(" ", 24), strings.Split(perRoute("/", byOrg), "\n")), "\n"),
		"FILTER", strings.Join(indented(strings.Repeat(" ", 18), strings.Split("- "+strings.ReplaceAll(strings.TrimSpace(filter), "\n", "\n  "), "\n")), "\n"),
		"INTERNAL\n", "use_remote_address: true\n                internal_address_config: {cidr_ranges: [{address_prefix: 127.0.0.0, prefix_len: 8}]}\n").Replace(descriptorsConfig))
	outside := "X-Forwarded-For: 203.0.113.9"
	for left := range 2 {
		r := g.want(t, 1, http.StatusOK, "/", "X-Org: a", outside)
		if r.header.Get("X-Ratelimit-Limit") != "" || !strings.HasPrefix(r.header.Get("Ratelimit"), `"per_org";r=`+strconv.Itoa(1-left)) || r.header.Get("Ratelimit-Policy") == "" {
			t.Errorf("headers %v, want ours alone", r.header)
		}
	}
	r := g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a", outside)
	if r.header.Get("X-Ratelimit-Limit") != "" || !strings.HasPrefix(r.header.Get("Ratelimit"), `"per_org";r=0`) {
		t.Errorf("headers %v, want ours alone", r.header)
	}
	g.want(t, 3, http.StatusOK, "/", "X-Org: a") // internal: not sent to the service
}

// realConfig reads a file of somebody's configuration.
func realConfig(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "real-configs", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
