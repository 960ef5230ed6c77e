package envoy_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

func TestCheckOverTheWire(t *testing.T) {
	d := always(authz.Allowed)
	s, conn := start(t, envoy.Options{Decider: d})
	r, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), fullCheck(t))
	if err != nil || r.GetOkResponse() == nil {
		t.Fatalf("%v, %v", r, err)
	}
	got := d.requests()
	if len(got) != 1 || got[0].Path != "/v1/things?q=1" || got[0].Peer != "spiffe://prod/ns/web" {
		t.Errorf("decided on %+v", got)
	}
	if v, _ := got[0].Extension("mete-app"); v != "shop" {
		t.Errorf("extension %q", v)
	}
	if st := s.Stats(); st.Checks[authz.Allowed] != 1 || st.Malformed+st.Gone+st.Panics != 0 {
		t.Errorf("stats %+v", st)
	}
}

// A check larger than one frame, and many at once over reused memory.
func TestCheckLargeAndConcurrent(t *testing.T) {
	d := &script{answer: func(_ context.Context, req *authz.Request, d *authz.Decision) {
		d.Outcome, d.App, d.Worst = authz.Allowed, app(), -1
		d.Tenant, _ = req.Header("x-who")
	}}
	_, conn := start(t, envoy.Options{Decider: d, MaxRequestHeaderBytes: 1 << 20})
	client := authv3.NewAuthorizationClient(conn)
	errs := make(chan error)
	for i := range 32 {
		go func() {
			for range 20 {
				m := fullCheck(t)
				who := strings.Repeat(string(rune('A'+i)), 1+i*2000)
				m.Attributes.Request.Http.Headers["x-who"] = who
				r, err := client.Check(t.Context(), m)
				if err == nil && headerOf(t, r.GetOkResponse().GetHeaders(), "x-mete-tenant") != who {
					err = errors.New("somebody else's answer")
				}
				if err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range 32 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
}

// raw sends bytes that no generated client would.
type raw struct{ encoding.CodecV2 }

func (raw) Name() string { return "proto" }
func (raw) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*v.(*[]byte))}, nil
}

func (raw) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func call(t *testing.T, conn *grpc.ClientConn, method string, in []byte) ([]byte, error) {
	t.Helper()
	var out []byte
	err := conn.Invoke(t.Context(), method, &in, &out, grpc.ForceCodecV2(raw{}))
	return out, err
}

const (
	checkMethod = "/envoy.service.auth.v3.Authorization/Check"
	limitMethod = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
)

// Bytes that are not UTF-8 are decided like any others, in both services: stock
// gRPC would refuse the message and Envoy would let the request through.
func TestNotUTF8(t *testing.T) {
	d := always(authz.Allowed)
	_, conn := start(t, envoy.Options{Decider: d})
	in := bytes.Replace(mustMarshal(t, fullCheck(t)), []byte("k_1"), []byte("k\xff1"), 1)
	if out, err := call(t, conn, checkMethod, in); err != nil || len(out) == 0 {
		t.Errorf("check: %x, %v", out, err)
	}
	in = bytes.Replace(mustMarshal(t, limitRequest("edge", 0, descriptor("tenant", "caf_"))), []byte("caf_"), []byte("caf\xe9"), 1)
	if out, err := call(t, conn, limitMethod, in); err != nil || len(out) == 0 {
		t.Errorf("rate limit: %x, %v", out, err)
	}
	if got := d.requests(); len(got) != 2 || got[1].Tenant != "caf\xe9" {
		t.Errorf("decided on %+v", got)
	}
}

func TestMalformedIsInvalidArgument(t *testing.T) {
	d := always(authz.Allowed)
	s, conn := start(t, envoy.Options{Decider: d})
	for _, method := range []string{checkMethod, limitMethod} {
		out, err := call(t, conn, method, []byte{0x08, 1})
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "wrong wire type") {
			t.Errorf("%s: %x, %v", method, out, err)
		}
	}
	if s.Stats().Malformed != 2 || len(d.requests()) != 0 {
		t.Errorf("stats %+v, decided %d", s.Stats(), len(d.requests()))
	}
}

// C117: what cannot be decided is a gRPC error, never an empty answer.
func TestUndecidedIsAnError(t *testing.T) {
	for o, want := range map[authz.Outcome]codes.Code{
		authz.NotReady: codes.Unavailable, authz.Undecided: codes.Internal,
		authz.NotReady + 1: codes.Internal, -1: codes.Internal,
	} {
		_, conn := start(t, envoy.Options{Decider: always(o)})
		if r, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), &authv3.CheckRequest{}); status.Code(err) != want || r != nil {
			t.Errorf("%v: %v, %v, want %v", o, r, err, want)
		}
	}
}

func TestPanicIsAnError(t *testing.T) {
	d := &script{answer: func(context.Context, *authz.Request, *authz.Decision) { panic("broken plan") }}
	var log bytes.Buffer
	s, conn := start(t, envoy.Options{Decider: d, Log: zerolog.New(&log)})
	if r, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), fullCheck(t)); status.Code(err) != codes.Internal || r != nil || strings.Contains(err.Error(), "plan") {
		t.Errorf("check: %v, %v", r, err)
	}
	if r, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 0, descriptor("tenant", "a"))); status.Code(err) != codes.Internal || r != nil {
		t.Errorf("rate limit: %v, %v", r, err)
	}
	if s.Stats().Panics != 2 {
		t.Errorf("stats %+v", s.Stats())
	}
	if n := strings.Count(log.String(), "broken plan"); n != 2 || !strings.Contains(log.String(), "server_test.go") {
		t.Errorf("logged %d times: %s", n, log.String())
	}
}

// A charge that panicked only while its answer was written is given back.
func TestPanicAfterChargeGivesBack(t *testing.T) {
	d := &script{answer: func(_ context.Context, _ *authz.Request, d *authz.Decision) {
		d.Outcome, d.App = authz.Allowed, app()
		d.Limits = append(d.Limits, authz.LimitState{}) // without its Limit
	}}
	s, conn := start(t, envoy.Options{Decider: d})
	_, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), fullCheck(t))
	if status.Code(err) != codes.Internal || d.givenBack() != 1 || s.Stats().Panics != 1 {
		t.Errorf("%v, given back %d, stats %+v", err, d.givenBack(), s.Stats())
	}
}

// A decider that gives up because the call ends has not failed.
func TestGoneUndecided(t *testing.T) {
	d := &script{answer: func(ctx context.Context, _ *authz.Request, d *authz.Decision) { <-ctx.Done() }}
	s, conn := start(t, envoy.Options{Decider: d})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := authv3.NewAuthorizationClient(conn).Check(ctx, fullCheck(t)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("check: %v", err)
	}
	wait(t, func() bool { return s.Stats().Gone == 1 })
}

// C118: what a call charged whose caller has gone is given back.
func TestGoneGivesBack(t *testing.T) {
	d := &script{answer: func(ctx context.Context, _ *authz.Request, d *authz.Decision) {
		<-ctx.Done()
		d.Outcome, d.App, d.Worst = authz.Allowed, app(), -1
	}}
	s, conn := start(t, envoy.Options{Decider: d})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := authv3.NewAuthorizationClient(conn).Check(ctx, fullCheck(t)); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("check: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, limitRequest("edge", 0, descriptor("tenant", "a"), descriptor("tenant", "b"))); status.Code(err) != codes.Canceled {
		t.Errorf("rate limit: %v", err)
	}
	wait(t, func() bool { return s.Stats().Gone == 2 && d.givenBack() == 3 })
}

func wait(t *testing.T, done func() bool) {
	t.Helper()
	for range 500 {
		if done() {
			return
		}
		time.Sleep(2 * time.Millisecond)
	}
	t.Fatal("did not happen in a second")
}

func TestOnRefused(t *testing.T) {
	d := always(authz.TenantUnknown)
	var told []string
	_, conn := start(t, envoy.Options{Decider: d, OnRefused: func(_ context.Context, r *authz.Request, d *authz.Decision) {
		told = append(told, strings.Clone(r.Method)+r.Tenant+d.Outcome.Word())
	}})
	if _, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), fullCheck(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 0, descriptor("tenant", "a"))); err != nil {
		t.Fatal(err)
	}
	if strings.Join(told, " ") != "POSTtenant_unknown atenant_unknown" {
		t.Errorf("told %q", told)
	}
}

// Interceptors work as with generated servers.
func TestInterceptor(t *testing.T) {
	var seen []string
	icept := func(ctx context.Context, req any, info *grpc.UnaryServerInfo, h grpc.UnaryHandler) (any, error) {
		seen = append(seen, info.FullMethod)
		return h(ctx, req)
	}
	measured := 0
	_, conn := start(t, envoy.Options{
		Decider: always(authz.Allowed), Extra: []grpc.ServerOption{grpc.UnaryInterceptor(icept)},
		OnDecided: func(time.Duration) { measured++ },
	})
	if _, err := authv3.NewAuthorizationClient(conn).Check(t.Context(), fullCheck(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := ratelimitv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), limitRequest("edge", 0, descriptor("tenant", "a"))); err != nil {
		t.Fatal(err)
	}
	if strings.Join(seen, " ") != checkMethod+" "+limitMethod || measured != 2 {
		t.Errorf("seen %q, measured %d", seen, measured)
	}
}

// P31: health for "" and all services.
func TestHealth_P31(t *testing.T) {
	s, conn := start(t, envoy.Options{Decider: always(authz.Allowed)})
	client := healthpb.NewHealthClient(conn)
	all := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, name := range []string{"", "envoy.service.auth.v3.Authorization", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.accesslog.v3.AccessLogService"} {
			if r, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name}); err != nil || r.GetStatus() != want {
				t.Errorf("%q: %v, %v, want %v", name, r.GetStatus(), err, want)
			}
		}
	}
	all(healthpb.HealthCheckResponse_NOT_SERVING)
	s.SetServing(true)
	all(healthpb.HealthCheckResponse_SERVING)
	s.SetServing(false)
	all(healthpb.HealthCheckResponse_NOT_SERVING)
	s.SetServing(true)
	s.Shutdown()
	s.SetServing(true) // too late
	all(healthpb.HealthCheckResponse_NOT_SERVING)
}

// P31: reflection lists the services and shows their files.
func TestReflection_P31(t *testing.T) {
	_, conn := start(t, envoy.Options{Decider: always(authz.Allowed)})
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ask := func(r *reflectionpb.ServerReflectionRequest) *reflectionpb.ServerReflectionResponse {
		t.Helper()
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	list := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}})
	names := map[string]bool{}
	for _, s := range list.GetListServicesResponse().GetService() {
		names[s.GetName()] = true
	}
	for _, name := range []string{"envoy.service.auth.v3.Authorization", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.accesslog.v3.AccessLogService", "grpc.health.v1.Health"} {
		if !names[name] {
			t.Errorf("%s is not listed in %v", name, names)
		}
		file := ask(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}})
		if len(file.GetFileDescriptorResponse().GetFileDescriptorProto()) == 0 {
			t.Errorf("%s has no file: %v", name, file)
		}
	}
}

func TestNewServerNeedsItsParts(t *testing.T) {
	for _, o := range []envoy.Options{
		{Now: time.Now, Settler: &settler{}},
		{Now: time.Now, Decider: always(authz.Allowed)},
		{Decider: always(authz.Allowed), Settler: &settler{}},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("a server of %+v", o)
				}
			}()
			envoy.NewServer(o)
		}()
	}
}

// benchmarkDecider decides like one with three limits, without any work.
func benchmarkDecider(o authz.Outcome) *quick {
	second, minute, month := rate("per_second", 10, time.Second), rate("per_minute", 300, time.Minute), quota("monthly", 1000, plan.DefaultUnit, plan.CalendarMonth)
	a := app()
	a.Identity.Tenant = []plan.Source{{Kind: plan.SourceAPIKey, Name: "x-api-key"}}
	return &quick{app: a, outcome: o, limits: []authz.LimitState{
		{Limit: second, Tenant: "org:acme", Leaf: true, Asked: 1, Left: 9, Reset: 100 * time.Millisecond, Window: time.Second},
		{Limit: minute, Tenant: "org:acme", Leaf: true, Asked: 1, Left: 299, Reset: 200 * time.Millisecond, Window: time.Minute},
		{Limit: month, Tenant: "org:acme", Leaf: true, Asked: 1, Left: 588, Used: 412, Reset: 1857600 * time.Second, Window: 2678400 * time.Second, WindowID: "2026-12", ResetsAt: noon.Add(1857600 * time.Second)},
	}}
}

type quick struct {
	app     *plan.App
	outcome authz.Outcome
	limits  []authz.LimitState
}

func (q *quick) Decide(_ context.Context, now time.Time, _ *authz.Request, d *authz.Decision) {
	d.ID, d.Outcome, d.App, d.Tenant, d.Class, d.Route = authz.NewID(now), q.outcome, q.app, "org:acme", "people", "upload"
	d.Limits = append(d.Limits, q.limits...)
	if !q.outcome.Admits() {
		d.Worst = 0
		d.Limits[0].Refused, d.Limits[0].Left = true, 0
		d.RetryAfter = 100 * time.Millisecond
	}
}

func (*quick) GiveBack(time.Time, *authz.Decision) {}

func (q *quick) Domain(string) (*plan.App, *plan.Domain) { return q.app, nil }

func (*quick) CountDescriptors(_ context.Context, _ time.Time, _ string, _ []authz.DescriptorAsk, _ bool, c *authz.Count) {
	c.Outcome = authz.NoApp
}

func (*quick) GiveBackCount(time.Time, *authz.Count) {}

func (*quick) Seal(dst []byte, _ time.Time, _ *authz.Decision, _ []authz.Decision) []byte {
	return append(dst, sampleToken...)
}

// sampleToken is as long as that of a request with two charges.
const sampleToken = "0a1b2c3d.AAECAwQFBgcICQoLDA0ODw.1.019b084b8cfa048a2df13c2c2c3a9e2d.9f3c.4711.shop.org:acme.people.upload..org:acme.monthly.requests.2026-12.1.0"

// typicalCheck is what Envoy sends for a browser's request: about 900 bytes.
func typicalCheck(tb testing.TB) []byte {
	tb.Helper()
	m := fullCheck(tb)
	h := m.GetAttributes().GetRequest().GetHttp().GetHeaders()
	for k, v := range map[string]string{
		":authority": "api.example.com", ":method": "POST", ":scheme": "https", "accept": "application/json", "accept-encoding": "gzip, deflate, br",
		"user-agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36", "x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "https",
		"x-request-id": "c52f5a27-3a4b-4d2c-9c66-0f1d2f3a4b5c", "x-envoy-external-address": "203.0.113.7", "content-length": "12",
		"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "accept-language": "en",
	} {
		h[k] = v
	}
	return mustMarshal(tb, m)
}

// benchmarkCall runs bytes through codec and handler, all but HTTP/2.
func benchmarkCall(b *testing.B, d envoy.Decider, service string, in []byte) {
	b.Helper()
	s := unserved(b, envoy.Options{Decider: d, Settler: &settler{}, Now: time.Now})
	handler, codec := envoy.Handler(s, service), envoy.NewCodec(s)
	data := mem.BufferSlice{mem.SliceBuffer(in)}
	dec := func(v any) error { return codec.Unmarshal(data, v) }
	ctx := b.Context()
	b.SetBytes(int64(len(in)))
	b.ReportAllocs()
	for b.Loop() {
		out, err := handler(nil, ctx, dec, nil)
		if err != nil {
			b.Fatal(err)
		}
		wire, err := codec.Marshal(out)
		if err != nil {
			b.Fatal(err)
		}
		wire.Free()
	}
}

func BenchmarkCheck(b *testing.B) {
	in := typicalCheck(b)
	b.Run("allowed", func(b *testing.B) { benchmarkCall(b, benchmarkDecider(authz.Allowed), "check", in) })
	b.Run("refused", func(b *testing.B) { benchmarkCall(b, benchmarkDecider(authz.RateLimited), "check", in) })
	b.Run("generated types, no decision", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m authv3.CheckRequest
			if err := proto.Unmarshal(in, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRateLimit(b *testing.B) {
	in := mustMarshal(b, limitRequest("edge", 0, descriptor("tenant", "org:acme", "route", "upload")))
	b.Run("allowed", func(b *testing.B) { benchmarkCall(b, benchmarkDecider(authz.Allowed), "limit", in) })
	b.Run("refused", func(b *testing.B) { benchmarkCall(b, benchmarkDecider(authz.RateLimited), "limit", in) })
}

// The whole path but HTTP/2 allocates next to nothing: the slice that holds the
// answer's buffer.
func TestAllocations(t *testing.T) {
	if testing.Short() || raceEnabled {
		t.Skip("pools drop things at random under the race detector")
	}
	for _, o := range []authz.Outcome{authz.Allowed, authz.RateLimited} {
		r := testing.Benchmark(func(b *testing.B) { b.Helper(); benchmarkCall(b, benchmarkDecider(o), "check", typicalCheck(b)) })
		if got := r.AllocsPerOp(); got > 2 {
			t.Errorf("%v: %d allocations a call, want 2 at most", o, got)
		}
	}
}
