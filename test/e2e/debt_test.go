package e2e_test

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/meteproject/mete/test/rig"
)

// C151 behind Envoy: 100 tokens an hour, reserve 10, and every answer says 500, in a
// header, in a trailer, in a report of the API, or on stream done: the first is served, and
// what comes next waits for 400 owed and 10 asked for, as Retry-After says.
func TestDebt_C151_BehindEnvoy(t *testing.T) {
	t.Parallel()
	w := newWorld(t, nil, unchanged)
	for name, serve := range map[string]func(t *testing.T, a *app){
		"header": func(t *testing.T, a *app) {
			if r := a.sendTo(t, a.ingress.Listener("ingress")+"/chat", "X-Api-Key: "+a.key, rig.TestRespond+": x-usage-tokens: 500"); r.status != http.StatusOK {
				t.Errorf("got %d %s", r.status, r.body)
			}
		},
		"trailer": func(t *testing.T, a *app) {
			if err := a.callGRPC(t, rig.TestAct, rig.ActCallOK, rig.TestUse, "500"); err != nil {
				t.Error(err)
			}
		},
		"report": func(t *testing.T, a *app) {
			r := a.get(t, "/job")
			if r.status != http.StatusOK {
				t.Fatalf("got %d %s", r.status, r.body)
			}
			if code, text := a.call(t, "Settle", `{"decision":"`+r.seen[0].Header.Get("X-Quota-Decision")+`","units":{"tokens":500}}`); code != http.StatusOK {
				t.Errorf("report: %d %s", code, text)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { // one after the other: what is unsettled is told of all together
			a := newApp(t, w, "tph: {kind: rate, unit: tokens, amount: 100, window: 1h}", "units: {tokens: {title: tokens}}", "headers: {x_quota: true}")
			a.put(t, map[string]string{"routes/" + a.name: document("Routes", a.name, `  app: `+a.name+`
  rules:
    - {name: chat, match: {path: /chat}, units: {tokens: {reserve: 10, use: [{response_header: x-usage-tokens}]}}}
    - {name: call, match: {path_prefix: /api.v1.Service/}, units: {tokens: {reserve: 10, use: [{response_trailer: x-usage-units}]}}}
    - {name: job, match: {path: /job}, units: {tokens: {reserve: 10, use: [{report: true}]}}}`)})
			a.awaitRoutes(t)
			serve(t, a)
			eventually(t, "the call is settled", func() bool { return a.metric(t, "mete_reservations_unsettled") == 0 })
			for range 20 { // a refused request owes nothing
				wantOwed(t, a.get(t, "/chat"))
			}
			if got := status.Code(a.callGRPC(t)); got != codes.ResourceExhausted {
				t.Errorf("a gRPC call: %s", got)
			}
			if n := a.metric(t, "mete_rate_debt_forgiven_units_total"); n != 0 {
				t.Errorf("%d forgiven", n)
			}
		})
	}
}

// wantOwed fails unless a request was refused for 400 that are owed and 10 that it asks for,
// of 100 an hour; the debt shrinks while the test runs.
func wantOwed(t *testing.T, r *reply) {
	t.Helper()
	const all, slack = 3600 * 410 / 100, 300
	wait, err := strconv.Atoi(r.header.Get("Retry-After"))
	if r.status != http.StatusTooManyRequests || len(r.seen) != 0 || err != nil || wait > all || wait < all-slack {
		t.Errorf("got %d, Retry-After %q, the API saw %d; want 429 and %d s", r.status, r.header.Get("Retry-After"), len(r.seen), all)
	}
	if state := r.header.Get("RateLimit"); !strings.HasPrefix(state, `"tph";r=0;t=`+r.header.Get("Retry-After")) {
		t.Errorf("RateLimit: %s with Retry-After %d", state, wait)
	}
}

// callGRPC makes a gRPC call that no server knows by name, with more metadata in pairs.
func (a *app) callGRPC(t *testing.T, more ...string) error {
	t.Helper()
	conn, err := grpc.NewClient(a.ingress.Listener("ingress"), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(a.host))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	a.sent++
	ctx := metadata.AppendToOutgoingContext(context.WithoutCancel(t.Context()), append(more, "x-api-key", a.key, rig.TestID, fmt.Sprintf("%s/%d", a.name, a.sent))...)
	var answer struct{}
	return conn.Invoke(ctx, "/api.v1.Service/Call", &answer, &answer, grpc.ForceCodec(nothing{}))
}

// nothing is a codec of messages without content.
type nothing struct{}

func (nothing) Name() string                { return "proto" }
func (nothing) Marshal(any) ([]byte, error) { return nil, nil }
func (nothing) Unmarshal([]byte, any) error { return nil }

// C153 behind Envoy, the files as they are: 10,000 tokens a year in calls of 4,000 that are
// told on stream done. The third is the last one, and what is refused after it costs nothing:
// a 429 says no number, and then Envoy does not call.
func TestBudget_C153_EndsBehindEnvoy(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 10000}}`, nil, perRoute("/", toldOnStreamDone(`{format: "%RESP(x-usage-units)%"}`)...))
	for call := 1; call <= 3; call++ {
		g.want(t, 1, http.StatusOK, "/", "X-Org: a", rig.TestRespond+": X-Usage-Units: 4000")
		g.counted(t, 4000*call)
	}
	g.refusedCalls(t, 1)
	if n := g.hits(t); n != 12_000 {
		t.Errorf("%d tokens are counted after 100 refused calls, want the 12,000 of three that were served", n)
	}
	g.want(t, 1, http.StatusOK, "/", "X-Org: b")
}

// C151 behind Envoy, by descriptors: 600 tokens a minute, and an answer of 6,000. What was
// used is owed, for nine minutes, and refused calls owe nothing, charged or not.
func TestDebt_C151_OnStreamDone(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{"free", "charged"} {
		t.Run(refused, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, shared(t), `domain: DOMAIN
mete: {refused_hits: `+refused+`}
descriptors:
  - {key: tokens, rate_limit: {unit: minute, requests_per_unit: 600}}`, nil, perRoute("/", toldOnStreamDone(`{format: "%RESP(x-usage-units)%"}`)...))
			g.want(t, 1, http.StatusOK, "/", "X-Org: a", rig.TestRespond+": X-Usage-Units: 6000")
			g.counted(t, 6000)
			g.refusedCalls(t, 1)
			if n := g.hits(t); n != 6000 {
				t.Errorf("%d tokens are counted after 100 refused calls, want the 6,000 of the one that was served", n)
			}
			r := g.want(t, 1, http.StatusTooManyRequests, "/", "X-Org: a")
			if wait, err := strconv.Atoi(r.header.Get("Retry-After")); err != nil || wait < 5*60 || wait > 541 {
				t.Errorf("Retry-After %q, want what is left of nine minutes", r.header.Get("Retry-After"))
			}
		})
	}
}

// What docs/from-envoy-ratelimit.md warns of: charged by a fixed number, refused calls cost
// like served ones, since Envoy calls on stream done for them as well and says nothing of how
// they ended (C153).
func TestBudget_C153_ByAFixedNumber(t *testing.T) {
	t.Parallel()
	g := newGateway(t, shared(t), `domain: DOMAIN
descriptors:
  - {key: tokens, rate_limit: {unit: year, requests_per_unit: 20}}`, nil, perRoute("/", toldOnStreamDone("{number: 9}")...))
	for call := 1; call <= 3; call++ { // 20 are used up by the third; the fourth is refused
		g.want(t, 1, http.StatusOK, "/", "X-Org: a")
		g.counted(t, 9*call)
	}
	g.refusedCalls(t, 2)
	g.counted(t, 9*103)
}

// toldOnStreamDone are descriptors of a look before a request and of what is charged when it
// has ended.
func toldOnStreamDone(hits string) []string {
	const byOrg = "actions: [{request_headers: {header_name: x-org, descriptor_key: tokens}}]"
	return []string{"- {hits_addend: {number: 0}, " + byOrg + "}", "- {apply_on_stream_done: true, hits_addend: " + hits + ", " + byOrg + "}"}
}

// hits are those of the rule "tokens" of the domain.
func (g *gateway) hits(t *testing.T) int {
	t.Helper()
	return g.metric(t, fmt.Sprintf("mete_ratelimit_hits_total{domain=%q,rule=\"tokens\"}", g.domain))
}

func (g *gateway) counted(t *testing.T, hits int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d hits are counted", hits), func() bool { return g.hits(t) == hits })
}

// refusedCalls makes 100 calls that are refused, for each of which Envoy asks mete so many
// times.
func (g *gateway) refusedCalls(t *testing.T, asks int) {
	t.Helper()
	const refused, asked = 100, "cluster.quota_service.upstream_rq_total"
	before := stat(t, g.envoy, asked)
	g.want(t, refused, http.StatusTooManyRequests, "/", "X-Org: a")
	eventually(t, fmt.Sprintf("Envoy asks %d times for each refused call", asks), func() bool { return stat(t, g.envoy, asked) >= before+asks*refused })
	if n := stat(t, g.envoy, asked); n != before+asks*refused {
		t.Errorf("Envoy has asked %d times for %d refused calls, want %d for each", n-before, refused, asks)
	}
}
