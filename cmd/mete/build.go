package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/rs/zerolog"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/reflection"
)

// mete is the whole process. It is read top to bottom: start starts the parts in
// this order, and they are stopped in the reverse of it.
type mete struct {
	cfg     settings
	log     zerolog.Logger
	level   *levelGate
	probes  *probes
	metrics *metrics
	parts   *parts

	inUse  addresses
	secure *serverTLS // nil: no TLS
	health *health.Server
	etcd   *clientv3.Client
}

// newMete returns a mete of which nothing runs yet.
func newMete(s settings, log zerolog.Logger, level *levelGate) *mete {
	m := &mete{cfg: s, log: log, level: level, metrics: newMetrics(), parts: newParts(), health: health.NewServer()}
	m.probes = &probes{loaded: func() bool { return false }, storeUp: func() bool { return false }}
	m.health.SetServingStatus("", grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	return m
}

// start starts the parts. After an error those that run are still to be stopped.
func (m *mete) start(ctx context.Context, p process) error {
	if err := makeDataDir(m.cfg.DataDir); err != nil {
		return err
	}
	l, err := m.openListeners(ctx)
	if err != nil {
		return err
	}
	m.metricsPart(l.metrics)
	return nil
}

// listeners are the open sockets.
type listeners struct{ metrics, admin, grpc net.Listener }

// openListeners opens all sockets before anything else happens: a start that
// cannot end well ends here.
func (m *mete) openListeners(ctx context.Context) (l listeners, err error) {
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	for _, one := range []struct {
		name, addr string
		to         *net.Listener
		inUse      *string
	}{
		{"metrics-listen", m.cfg.MetricsListen, &l.metrics, &m.inUse.Metrics},
		{"admin-listen", m.cfg.AdminListen, &l.admin, &m.inUse.Admin},
		{"grpc-listen", m.cfg.GRPCListen, &l.grpc, &m.inUse.GRPC},
	} {
		if *one.to, err = listen(ctx, one.name, one.addr); err != nil {
			return l, err
		}
		*one.inUse = (*one.to).Addr().String()
	}
	return l, nil
}

func (l listeners) close() {
	for _, one := range []net.Listener{l.metrics, l.admin, l.grpc} {
		if one != nil {
			_ = one.Close()
		}
	}
}

func (m *mete) metricsPart(l net.Listener) {
	mux := metricsMux(m.probes, m.level, m.metrics.handler(), m.cfg.Pprof)
	m.parts.start("metrics listener", func(ctx context.Context) error { return serveHTTP(ctx, l, mux, nil, m.log) })
}

// drain tells everybody that this replica ends and gives them drain-delay to
// notice. Requests are answered as before.
func (m *mete) drain() {
	m.probes.draining.Store(true)
	m.health.Shutdown()
	time.Sleep(m.cfg.DrainDelay)
}

var _ = fmt.Sprint
var _ = grpc.NewServer
var _ = reflection.Register
