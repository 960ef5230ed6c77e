package envoy_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
)

// noon is 10 December 2026, 12:00 in Berlin.
var noon = time.Date(2026, time.December, 10, 11, 0, 0, 0, time.UTC)

var decisionID = authz.ID{0x01, 0x9b, 0x08, 0x4b, 0x8c, 0xfa, 0x04, 0x8a, 0x2d, 0xf1, 0x3c, 0x2c, 0x2c, 0x3a, 0x9e, 0x2d}

func berlin(tb testing.TB) *time.Location {
	tb.Helper()
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		tb.Fatal(err)
	}
	return zone
}

// rate is a rate limit of amount requests in a window.
func rate(name string, amount int64, window time.Duration) *plan.EffectiveLimit {
	return &plan.EffectiveLimit{Limit: plan.Limit{
		Name: name, Kind: plan.Rate, Amount: amount, Burst: amount, Window: window,
		Unit: plan.DefaultUnit, Advertise: true, Disclose: plan.DiscloseUsage,
	}}
}

// quota is a quota of amount units in a window of the given kind.
func quota(name string, amount int64, unit string, kind plan.ResetKind) *plan.EffectiveLimit {
	return &plan.EffectiveLimit{Limit: plan.Limit{
		Name: name, Kind: plan.Quota, Amount: amount, Unit: unit,
		Reset: plan.Reset{Kind: kind}, Advertise: true, Disclose: plan.DiscloseUsage,
	}}
}

func app() *plan.App {
	return &plan.App{Name: "shop", Headers: plan.Headers{
		RateLimitName: "ratelimit", PolicyName: "ratelimit-policy", XEnvoyRateLimited: true,
	}}
}

// refusal is a decision that was refused by the limit at index worst.
func refusal(o authz.Outcome, a *plan.App, worst int, limits ...authz.LimitState) *authz.Decision {
	d := &authz.Decision{ID: decisionID, Outcome: o, App: a, Tenant: "org:acme", Limits: limits, Worst: worst}
	if worst >= 0 {
		d.Limits[worst].Refused = true
		d.RetryAfter = d.Limits[worst].Reset
	}
	return d
}

// monthly is a quota that is used up: 1,000 of 1,000 in December.
func monthly(tb testing.TB) authz.LimitState {
	tb.Helper()
	l := quota("monthly", 1000, plan.DefaultUnit, plan.CalendarMonth)
	l.Zone = berlin(tb)
	return authz.LimitState{
		Limit: l, Tenant: "org:acme", Leaf: true, Asked: 1, Used: 1000,
		Reset: 1857600 * time.Second, Window: 2678400 * time.Second,
		ResetsAt: time.Date(2026, time.December, 31, 23, 0, 0, 0, time.UTC), WindowID: "2026-12",
	}
}

// parse reads an answer with the generated types.
func parse[M proto.Message](tb testing.TB, b []byte, m M) M {
	tb.Helper()
	if err := proto.Unmarshal(b, m); err != nil {
		tb.Fatalf("generated types cannot read the answer: %v\n%x", err, b)
	}
	return m
}

func check(tb testing.TB, d *authz.Decision) *authv3.CheckResponse {
	tb.Helper()
	return parse(tb, envoy.Check(d, noon, "", false, nil, sealing("R-1")), &authv3.CheckResponse{})
}

// headerOf returns the value of a header that must be there at most once.
func headerOf(tb testing.TB, options []*corev3.HeaderValueOption, name string) string {
	tb.Helper()
	value, found := "", 0
	for _, o := range options {
		if o.GetHeader().GetKey() == name {
			value, found = o.GetHeader().GetValue(), found+1
		}
	}
	if found > 1 {
		tb.Errorf("header %s is there %d times", name, found)
	}
	return value
}

func hasHeader(options []*corev3.HeaderValueOption, name string) bool {
	return slices.ContainsFunc(options, func(o *corev3.HeaderValueOption) bool { return o.GetHeader().GetKey() == name })
}

// A script is a Decider that answers by a function and remembers what was asked
// and given back.
type script struct {
	answer func(ctx context.Context, req *authz.Request, d *authz.Decision)

	token string // what Seal makes of a decision

	unbound bool         // no app is bound to any domain
	units   []plan.Unit  // of the app that is
	domain  *plan.Domain // of every domain
	// counts answers for the domain's rules; nil: there are none.
	counts func(ctx context.Context, asks []authz.DescriptorAsk, onlyLook bool, c *authz.Count)

	countsBack int // how many counts were given back

	mu    sync.Mutex
	asked []authz.Request
	back  []authz.ID
	seals [][]authz.ID // the decisions of each Seal
}

// sealing is a Decider that makes token of each decision.
func sealing(token string) *script { return &script{token: token} }

func (s *script) Seal(dst []byte, _ time.Time, d *authz.Decision, more []authz.Decision) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := []authz.ID{d.ID}
	for i := range more {
		ids = append(ids, more[i].ID)
	}
	s.seals = append(s.seals, ids)
	return append(dst, s.token...)
}

func (s *script) Decide(ctx context.Context, now time.Time, req *authz.Request, d *authz.Decision) {
	s.mu.Lock()
	kept := *req
	for _, p := range []*string{&kept.App, &kept.Domain, &kept.Method, &kept.Host, &kept.Path, &kept.Peer, &kept.Tenant, &kept.Route, &kept.Class} {
		*p = strings.Clone(*p)
	}
	kept.Units = slices.Clone(kept.Units)
	for i := range kept.Units {
		kept.Units[i].Unit = strings.Clone(kept.Units[i].Unit)
	}
	kept.Headers, kept.Extensions, kept.Metadata = fields(req.Headers), fields(req.Extensions), nil
	s.asked = append(s.asked, kept)
	s.mu.Unlock()
	d.ID = authz.NewID(now)
	s.answer(ctx, req, d)
}

func (s *script) Domain(string) (*plan.App, *plan.Domain) {
	if s.unbound {
		return nil, s.domain
	}
	a := app()
	a.Units = s.units
	return a, s.domain
}

func (s *script) CountDescriptors(ctx context.Context, _ time.Time, _ string, asks []authz.DescriptorAsk, onlyLook bool, c *authz.Count) {
	if s.counts == nil {
		c.Outcome = authz.NoApp
		return
	}
	s.counts(ctx, asks, onlyLook, c)
}

func (s *script) GiveBackCount(time.Time, *authz.Count) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.countsBack++
}

func fields(in []authz.Field) (out []authz.Field) {
	for _, f := range in {
		out = append(out, authz.Field{Name: strings.Clone(f.Name), Value: strings.Clone(f.Value)})
	}
	return out
}

func (s *script) GiveBack(_ time.Time, d *authz.Decision) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.ID != (authz.ID{}) && d.Outcome.Admits() && !slices.Contains(s.back, d.ID) {
		s.back = append(s.back, d.ID)
	}
}

func (s *script) requests() []authz.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked)
}

func (s *script) givenBack() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.back)
}

// A settlement is what a settler was told.
type settlement struct {
	token  string
	ending authz.Ending // without the response

	// Of SettleUnits.
	unit     string
	n        int64
	giveBack bool
}

// A settler remembers what it was told. All is as was reserved, unless settle says
// otherwise.
type settler struct {
	settle func(token string, e *authz.Ending) authz.Settled

	mu  sync.Mutex
	got []settlement
}

func (s *settler) Settle(_ time.Time, token string, e *authz.Ending) authz.Settled {
	kept := *e
	kept.Response = nil
	s.mu.Lock()
	s.got = append(s.got, settlement{token: strings.Clone(token), ending: kept})
	s.mu.Unlock()
	if s.settle != nil {
		return s.settle(token, e)
	}
	return authz.SettledAsReserved
}

func (s *settler) SettleUnits(_ time.Time, token, unit string, n int64, giveBack bool) authz.Settled {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got = append(s.got, settlement{token: strings.Clone(token), unit: strings.Clone(unit), n: n, giveBack: giveBack})
	return authz.SettledLess
}

func (s *settler) settled() []settlement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.got)
}

// always answers everything with one outcome.
func always(o authz.Outcome) *script {
	return &script{answer: func(_ context.Context, _ *authz.Request, d *authz.Decision) {
		d.Outcome, d.App, d.Worst = o, app(), -1
	}}
}

// start runs a server and returns a connection to it.
func start(tb testing.TB, o envoy.Options) (*envoy.Server, *grpc.ClientConn) {
	tb.Helper()
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Settler == nil {
		o.Settler = &settler{}
	}
	s := envoy.NewServer(o)
	lis := bufconn.Listen(1 << 20)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(lis); err != nil {
			tb.Errorf("serve: %v", err)
		}
	}()
	conn, err := grpc.NewClient("passthrough:///mete",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := conn.Close(); err != nil {
			tb.Error(err)
		}
		s.Stop()
		<-done
	})
	return s, conn
}

// unserved is a server that nobody calls over a network.
func unserved(tb testing.TB, o envoy.Options) *envoy.Server {
	tb.Helper()
	o.Workers = 1
	if o.Decider == nil {
		o.Decider = always(authz.Allowed)
	}
	if o.Now == nil {
		o.Now = noonAlways
	}
	s := envoy.NewServer(o)
	tb.Cleanup(s.Stop)
	return s
}

func noonAlways() time.Time { return noon }

// wireOf is m as gRPC hands it to a codec.
func wireOf(tb testing.TB, m proto.Message) mem.BufferSlice {
	tb.Helper()
	return mem.BufferSlice{mem.SliceBuffer(mustMarshal(tb, m))}
}

// buffers is b as gRPC hands it to a codec.
func buffers(b []byte) mem.BufferSlice { return mem.BufferSlice{mem.SliceBuffer(b)} }
