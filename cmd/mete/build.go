package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"google.golang.org/grpc"

	"github.com/meteproject/mete/admin"
	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/ledger"
	"github.com/meteproject/mete/peers"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/journal"
)

// learnFor is how long no lease is asked for after the store was restored: as long as the
// others may spend one that it has forgotten (P43).
const learnFor = time.Minute

// settleFor is how long accounts may take to be settled at a stop.
const settleFor = 5 * time.Second

// mete is the whole process. It is read top to bottom: start starts the parts in
// this order, and they are stopped in the reverse of it.
type mete struct {
	cfg     settings
	log     zerolog.Logger
	level   *levelGate
	probes  *probes
	metrics *metrics
	parts   *parts
	tracer  tracer

	open     listeners
	inUse    addresses
	secure   *serverTLS  // nil: no TLS
	tokens   *tokenFile  // of the admin API; nil: none is asked for
	etcdPair *clientPair // nil: no client certificate
	etcd     *store.Cluster
	looked   chan string // paths of rules for tellLooked

	journal  *journal.Journal  // nil: none
	pages    *journal.Pages    // nil: none
	before   []*journal.Page   // that earlier processes have left
	reserved *journal.Reserved // nil: none
	orphans  []quota.Orphan
	recovery *quota.Recovery
	settled  []string // holders whose orphans are; owned by recover

	documents *store.Documents
	accounts  *store.Accounts
	board     *store.Board
	sweeper   *store.Sweeper
	writes    *store.Writes
	leases    *leaseWatch
	gate      *gate
	members   *store.Members
	keeper    *quota.Keeper
	decider   *authz.Decider
	seals     *store.Seals
	router    *peers.Router
	events    *ledger.Events // nil: none are written
	envoy     *envoy.Server

	began    time.Time     // when run began
	known    atomic.Bool   // met has been true
	settling chan struct{} // closed once the replica is ready: from then on it settles

	process uint64           // names this process among all replicas
	hangups []chan os.Signal // of those who reread something at SIGHUP
}

// newMete returns a mete of which nothing runs yet.
func newMete(s settings, log zerolog.Logger, level *levelGate) *mete {
	return &mete{cfg: s, log: log, level: level, metrics: newMetrics(), parts: newParts(), settling: make(chan struct{}), process: rand.Uint64()}
}

// start starts the parts. After an error those that run are still to be stopped.
// The replica answers from the start and turns ready once it has documents.
func (m *mete) start(ctx context.Context, p process) error {
	for _, step := range []func(context.Context, process) error{
		m.prepare, m.openJournal, m.startTracing, m.startTLS, m.startTokens, m.startEvents, m.startEtcd, m.assemble, m.run, m.startHangups,
	} {
		if err := step(ctx, p); err != nil {
			m.open.close()
			return err
		}
	}
	return nil
}

// prepare opens all sockets before anything else happens: a start that cannot end
// well ends here.
func (m *mete) prepare(ctx context.Context, _ process) error {
	if err := makeDataDir(m.cfg.DataDir); err != nil {
		return err
	}
	for _, one := range []struct {
		name, addr string
		to         *net.Listener
		inUse      *string
	}{
		{"metrics-listen", m.cfg.MetricsListen, &m.open.metrics, &m.inUse.Metrics},
		{"admin-listen", m.cfg.AdminListen, &m.open.admin, &m.inUse.Admin},
		{"peer-listen", m.cfg.PeerListen, &m.open.peers, &m.inUse.Peers},
		{"grpc-listen", m.cfg.GRPCListen, &m.open.grpc, &m.inUse.GRPC},
	} {
		if one.addr == "" { // peer-listen alone may be
			continue
		}
		l, err := listen(ctx, one.name, one.addr)
		if err != nil {
			return err
		}
		*one.to, *one.inUse = l, addressOf(l)
	}
	var err error
	m.open.etcd, err = listenEtcd(ctx, m.cfg.config)
	return err
}

func (m *mete) startTracing(ctx context.Context, p process) (err error) {
	if m.tracer, err = newTracer(ctx, p.env); err != nil {
		return err
	}
	m.parts.atStop(ctx, "tracing", func() error {
		if err := m.tracer.close(context.WithoutCancel(ctx)); err != nil {
			m.log.Warn().Err(err).Msg("spans are lost")
		}
		return nil
	})
	return nil
}

func (m *mete) startTLS(ctx context.Context, _ process) (err error) {
	if m.secure, err = newServerTLS(m.cfg.config, m.log); err != nil || m.secure == nil {
		return err
	}
	if len(m.cfg.EtcdEndpoints) > 0 {
		m.secure.calledAs = m.cfg.PeerName
		if at := m.advertised(); !isSocket(at) {
			m.secure.calledAs = cmp.Or(m.cfg.PeerName, hostOf(at))
		}
		m.secure.warnOfPeers()
	}
	hup := m.hangup()
	m.parts.start(ctx, "TLS files", func(ctx context.Context) error { return m.secure.Run(ctx, hup) })
	return nil
}

func (m *mete) startEtcd(ctx context.Context, _ process) (err error) {
	if len(m.cfg.EtcdEndpoints) == 0 {
		s, err := startEtcd(ctx, m.cfg.config, m.open.etcd, m.log)
		if err != nil {
			return err
		}
		m.etcd, m.inUse.Etcd = store.ClusterOf(s.Client()), s.Endpoint()
		m.accounts = store.NewAccounts(m.etcd)
		m.accounts.SetBatching(m.batching(store.Nested))
		m.parts.start(ctx, "embedded etcd", func(ctx context.Context) error { return runEtcd(ctx, s) })
		return nil
	}
	if m.etcd, m.etcdPair, err = connectEtcd(m.cfg.config, m.log); err != nil {
		return err
	}
	m.parts.atStop(ctx, "etcd clients", m.etcd.Close)
	m.accounts = store.NewAccounts(m.etcd)
	m.accounts.SetBatching(m.batching(store.Single)) // until its version is known
	m.parts.start(ctx, "etcd version", m.checkEtcd)
	return nil
}

// batching returns how operations on accounts travel, found where the settings leave it
// open.
func (m *mete) batching(found store.Batching) store.Batching {
	switch m.cfg.EtcdBatch {
	case batchNested:
		return store.Nested
	case batchSingle:
		return store.Single
	}
	return found
}

// storeUp reports whether etcd answers, by what was last asked of it.
func (m *mete) storeUp() bool { return m.documents.Stats().Up && m.etcd.Health().Up }

// run starts what assemble made.
func (m *mete) run(ctx context.Context, _ process) error {
	m.began = time.Now()
	closing := make(chan struct{})
	m.envoy = envoy.NewServer(m.envoyOptions(closing))
	m.router.Register(m.envoy)
	quotas := admin.NewService(admin.Config{Quota: m.router, Now: time.Now, Log: m.log})
	admin.Register(m.envoy, quotas)
	mux := metricsMux(m.probes, m.level, m.metrics.handler(), m.cfg.Pprof)
	m.parts.start(ctx, "metrics listener", func(ctx context.Context) error {
		return serveHTTP(ctx, m.open.metrics, mux, nil, m.log)
	})
	m.parts.start(ctx, "documents", m.documents.Run)
	m.parts.start(ctx, "version gate", m.gate.run)
	m.parts.start(ctx, "members", m.gate.after(m.members.Run))
	if m.cfg.Recalls {
		m.parts.start(ctx, "recalls", m.board.Run)
	}
	m.parts.start(ctx, "sweep", m.sweeper.Run)
	m.parts.start(ctx, "leases close to lease-wait", m.leases.run)
	m.parts.start(ctx, "rules settled later", m.tellLooked)
	m.parts.start(ctx, "whether etcd takes writes", m.gate.after(m.writes.Run))
	m.parts.start(ctx, "memory", m.tidy)
	m.parts.start(ctx, "seals", m.gate.after(m.seals.Run))
	m.parts.start(ctx, "recovery", m.recover)
	if m.journal != nil {
		m.parts.start(ctx, "what killed processes have left", m.missKilled)
		m.parts.start(ctx, "journal's troubles", m.tellTrouble)
	}
	m.parts.start(ctx, "keeper", m.runKeeper)
	// It ends after the gRPC listener and before the keeper: what came last is passed on, or
	// settled here, before accounts are.
	m.parts.start(ctx, "settlements for peers", m.router.Run)
	m.parts.start(ctx, "admin listener", func(ctx context.Context) error {
		secure := m.secure.listenerConfig(m.secure.adminCheck(), "h2", "http/1.1")
		return serveHTTP(ctx, m.open.admin, m.guarded(adminMux(plan.Schema(), m.status, quotas, m.serveLeft)), secure, m.log)
	})
	if m.open.peers != nil {
		m.parts.start(ctx, "peer listener", func(ctx context.Context) error { return servePeers(ctx, m.open.peers, m.envoy) })
	}
	// Its end is that of the server, and so of the peer listener, too.
	m.parts.start(ctx, "gRPC listener", func(ctx context.Context) error {
		return serveGRPC(ctx, m.open.grpc, m.envoy, func() { close(closing) }, m.log)
	})
	m.probes.serving.Store(true)
	m.parts.start(ctx, "readiness", m.announce)
	return nil
}

func (m *mete) envoyOptions(closing <-chan struct{}) envoy.Options {
	o := envoy.Options{
		Decider: m.decider, Settler: m.router, Now: time.Now, Log: m.log, Settling: m.settling, Closing: closing,
		TLS:                   m.secure.listenerConfig(nil, "h2"),
		Permits:               m.secure.permits(),
		MaxConcurrentStreams:  uint32(m.cfg.MaxStreams), //nolint:gosec // check bounds it
		MaxConnectionAge:      m.cfg.MaxConnectionAge,
		MaxConnections:        m.connections(),
		MaxMessage:            m.cfg.MaxMessageBytes,
		MaxUnfinished:         m.cfg.MaxUnfinishedBytes,
		MaxRequestHeaders:     m.cfg.MaxRequestHeaders,
		MaxRequestHeaderBytes: m.cfg.MaxRequestHeadersKB << 10,
		UnknownHostStatus:     m.cfg.UnknownHostStatus,
		OnDecided:             func(d time.Duration) { m.metrics.decision.Observe(d.Seconds()) },
		Extra:                 []grpc.ServerOption{grpc.ChainStreamInterceptor(endStreams(closing))},
	}
	if m.cfg.MaxConnectionAge == 0 {
		o.MaxConnectionAge = -1
	}
	if m.tracer.on {
		o.OnRefused = m.tracer.refused
	}
	return o
}

// runKeeper keeps purses filled until no more requests come, then settles all
// accounts.
func (m *mete) runKeeper(ctx context.Context) error {
	if err := m.keeper.Run(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	err := m.keeper.Settle(ctx)
	if err == nil || m.journal == nil {
		return err
	}
	m.members.Owe()
	if n := m.journal.Stats().WithoutRoom; n > 0 {
		return fmt.Errorf("%w; the journal has no room for %d of them, and what those have used is lost; "+
			"a start with the same data-dir and journal within 10 min reports the others", err, n)
	}
	m.log.Warn().Err(err).Msg("what they have used is in the journal: a start with the same data-dir and journal within 10 min reports it")
	return nil // nothing is lost
}

// announce waits until the replica is ready and tells everybody. It takes the
// addresses away again at the stop.
func (m *mete) announce(ctx context.Context) error {
	if err := removeAddresses(m.cfg.DataDir); err != nil { // of a process that was killed
		return err
	}
	tick := time.NewTicker(readyTick)
	defer tick.Stop()
	for !m.probes.ready() {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
	close(m.settling)
	m.envoy.SetServing(true)
	if err := m.inUse.write(m.cfg.DataDir); err != nil {
		return err
	}
	m.log.Info().Str("grpc", m.inUse.GRPC).Str("admin", m.inUse.Admin).Str("metrics", m.inUse.Metrics).
		Str("etcd", m.inUse.Etcd).Str("version", build().Version).Msg("ready")
	<-ctx.Done()
	return removeAddresses(m.cfg.DataDir)
}

// readyTick is how often a start is looked at. Nobody notices 20 ms, and it ends
// once the documents are there.
const readyTick = 20 * time.Millisecond

// drain tells everybody that this replica ends and gives them drain-delay to
// notice. Requests are answered as before. Of one that was not
// ready nobody has to notice anything.
func (m *mete) drain() {
	known := m.probes.ready()
	m.probes.draining.Store(true)
	m.envoy.Shutdown()
	if known {
		time.Sleep(m.cfg.DrainDelay)
	}
}

// listeners are the open sockets. A part that serves one closes it.
type listeners struct{ metrics, admin, peers, grpc, etcd net.Listener }

func (l listeners) close() {
	for _, one := range []net.Listener{l.metrics, l.admin, l.peers, l.grpc, l.etcd} {
		if one != nil {
			_ = one.Close()
		}
	}
}
