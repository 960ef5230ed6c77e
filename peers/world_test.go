package peers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/meteproject/mete/admin"
	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/peers"
)

// A number is a reservation's, of one process.
type number struct{ process, number uint64 }

// reserved is what each request of these tests was charged.
const reserved = 10

func (n number) token() string {
	return fmt.Sprintf("sealed %d %d %d", n.process, n.number, reserved)
}

// A ledger has what was settled by any replica.
type ledger struct {
	mu      sync.Mutex
	settled map[number][]settled
}

type settled struct {
	by   uint64
	used int64
	how  authz.Measured // but for Used
}

func (l *ledger) of(n number) []settled {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled[n]
}

// mustBe fails the test unless n was settled once, by that process and for so much.
func (l *ledger) mustBe(t *testing.T, n number, by uint64, used int64) {
	t.Helper()
	if got := l.of(n); len(got) != 1 || got[0].by != by || got[0].used != used {
		t.Errorf("%v was settled %+v, want once, by %d, with %d", n, got, by, used)
	}
}

func (l *ledger) mustNotBe(t *testing.T, n number) {
	t.Helper()
	if got := l.of(n); len(got) != 0 {
		t.Errorf("%v was settled %+v, want never", n, got)
	}
}

// A desk is the Decider of one process: it settles in the ledger, and remembers numbers as
// authz does.
type desk struct {
	process uint64
	ledger  *ledger

	mu     sync.Mutex
	seen   map[number]bool
	panics int // so many calls of Settle panic
}

func (d *desk) Open(token string, r *authz.Reservation) authz.Settled {
	r.Reset()
	var units int64
	if _, err := fmt.Sscanf(token, "sealed %d %d %d", &r.Replica, &r.Number, &units); err != nil {
		return authz.SettledForged
	}
	r.App = token // points into it, as a real one does
	r.Charges = append(r.Charges, authz.Charged{Unit: "tokens", Units: units})
	return 0
}

func (d *desk) Measure(_ *authz.Reservation, e *authz.Ending, m *authz.Measured) {
	m.Used, m.Free, m.Long, m.Replayed = append(m.Used[:0], int64(e.Status)), e.Status == 0, e.Duration > time.Hour, e.Unfinished
}

func (d *desk) MeasureUnits(r *authz.Reservation, unit string, n int64, giveBack bool, m *authz.Measured) authz.Settled {
	*m = authz.Measured{Used: m.Used[:0]}
	switch {
	case unit != "tokens":
		return authz.SettledMalformed
	case giveBack:
		n = r.Charges[0].Units - n
	}
	m.Used = append(m.Used, n)
	return 0
}

func (d *desk) Here(r *authz.Reservation) bool { return r.Replica == d.process }

func (d *desk) Settle(_ time.Time, r *authz.Reservation, m *authz.Measured) authz.Settled {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.panics > 0 {
		d.panics--
		panic("settle")
	}
	n := number{r.Replica, r.Number}
	if len(m.Used) != len(r.Charges) {
		return authz.SettledMalformed
	}
	if d.seen[n] {
		return authz.SettledBefore
	}
	d.seen[n] = true
	d.ledger.mu.Lock()
	d.ledger.settled[n] = append(d.ledger.settled[n], settled{d.process, m.Used[0], authz.Measured{Free: m.Free, Long: m.Long, Replayed: m.Replayed}})
	d.ledger.mu.Unlock()
	switch used, reserved := m.Used[0], r.Charges[0].Units; {
	case m.Free && used == 0:
		return authz.SettledFree
	case used > reserved:
		return authz.SettledMore
	case used < reserved:
		return authz.SettledLess
	}
	return authz.SettledAsReserved
}

func (d *desk) Report(_ context.Context, _ time.Time, id authz.ID, units map[string]int64) (map[string]int64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := (number{uint64(id.Tag()), uint64(id[0])}); d.seen[n] {
		return map[string]int64{"tokens": units["tokens"], "by": int64(d.process)}, nil //nolint:gosec // a test's
	}
	return nil, authz.ErrUnknownDecision
}

func (d *desk) Extend(ctx context.Context, now time.Time, id authz.ID, units map[string]int64) (map[string]int64, error) {
	return d.Report(ctx, now, id, units)
}

// A world is several replicas on one network.
type world struct {
	t      *testing.T
	ledger *ledger
	log    syncBuffer

	mu      sync.Mutex
	hosts   map[string]*bufconn.Listener // by address; none: nobody listens there
	dialled map[string]int
}

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{
		t: t, ledger: &ledger{settled: map[number][]settled{}},
		hosts: map[string]*bufconn.Listener{}, dialled: map[string]int{},
	}
}

func (w *world) dial(ctx context.Context, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialled[address]++
	host := w.hosts[address]
	w.mu.Unlock()
	if host == nil {
		return nil, errors.New("nobody listens")
	}
	return host.DialContext(ctx)
}

// A replica is one process of a world.
type replica struct {
	*peers.Router
	process uint64
	desk    *desk
	server  *grpc.Server
	address string
	lose    atomic.Int64 // so many answers are lost
	hang    atomic.Pointer[chan struct{}]
	calls   atomic.Int64
	end     func()
}

// start starts a process. It serves at an address of its number until it is cut, and
// runs until end is called.
func (w *world) start(process uint64, change ...func(*peers.Config)) *replica {
	w.t.Helper()
	a := w.make(process, change...)
	a.listen(w)
	w.run(a)
	return a
}

// run runs a until its end is called.
func (w *world) run(a *replica) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := a.Run(ctx); err != nil {
			w.t.Errorf("Run: %v", err)
		}
	}()
	a.end = sync.OnceFunc(func() { cancel(); <-done })
	w.t.Cleanup(a.end)
}

// make makes a process that nobody runs and that listens nowhere.
func (w *world) make(process uint64, change ...func(*peers.Config)) *replica {
	a := &replica{
		process: process, address: fmt.Sprint("replica-", process), end: func() {},
		desk: &desk{process: process, ledger: w.ledger, seen: map[number]bool{}},
	}
	cfg := peers.Config{
		Decider: a.desk, Process: process, Now: time.Now, Log: zerolog.New(&w.log),
		DialOptions: []grpc.DialOption{grpc.WithContextDialer(w.dial)},
	}
	for _, c := range change {
		c(&cfg)
	}
	a.Router = peers.New(cfg)
	return a
}

// listen makes a reachable.
func (a *replica) listen(w *world) {
	l := bufconn.Listen(1 << 20)
	a.serve(w.t, l)
	w.mu.Lock()
	w.hosts[a.address] = l
	w.mu.Unlock()
}

func (a *replica) serve(t *testing.T, l net.Listener) {
	server := grpc.NewServer(grpc.UnaryInterceptor(a.intercept))
	a.server = server
	a.Register(server)
	admin.Register(server, admin.NewService(admin.Config{Quota: a, Now: time.Now}))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() { server.Stop(); <-done })
}

func (a *replica) intercept(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	a.calls.Add(1)
	answer, err := handle(ctx, req)
	if hang := a.hang.Load(); hang != nil {
		<-*hang
	}
	if a.lose.Add(-1) >= 0 {
		return nil, status.Error(codes.Unavailable, "the answer is lost")
	}
	return answer, err
}

// cut makes a unreachable, and its connections end.
func (a *replica) cut(w *world) {
	w.mu.Lock()
	delete(w.hosts, a.address)
	w.mu.Unlock()
	a.server.Stop()
}

// know tells each of all who is live: these.
func know(all []*replica, live ...*replica) {
	addresses := map[uint64]string{}
	for _, a := range live {
		addresses[a.process] = a.address
	}
	for _, a := range all {
		a.SetPeers(addresses)
	}
}

// hear is what a log stream does.
func (a *replica) hear(n number, used int64) authz.Settled {
	return a.Settle(time.Now(), n.token(), &authz.Ending{Status: int(used)})
}

// sum adds up an array of Stats.
func sum[A ~[authz.SettledDropped + 1]uint64](a A) (n uint64) {
	for _, one := range a {
		n += one
	}
	return n
}

// syncBuffer is a log that several write to.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) count(text string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Count(b.buf.Bytes(), []byte(text))
}
