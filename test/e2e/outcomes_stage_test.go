package e2e_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/meteproject/mete/test/envoy"
	"github.com/meteproject/mete/test/rig"
)

// A stage is where outcomes are played: one Envoy, the replicas behind it, an API
// that misbehaves as it is told, and a proxy for what mete itself does not do.
type stage struct {
	dir      string
	base     *rig.Mete // whose etcd it is; no Envoy asks it
	replicas []*rig.Mete
	etcd     *clientv3.Client
	upstream *rig.Upstream
	proxy    *rig.CheckProxy
	envoy    *envoy.Process
	figures  map[string]float64 // the sums of the replicas' metrics, once all is settled

	mu    sync.Mutex
	stubs []rig.Stub // of callers; guarded by mu
}

// newStage starts a stage. It must be stopped.
func newStage(ctx context.Context, replicas int) (*stage, error) {
	dir, err := os.MkdirTemp("", "mete-outcomes-")
	if err != nil {
		return nil, err
	}
	s := &stage{dir: dir}
	if err := s.start(ctx, replicas); err != nil {
		return nil, errors.Join(err, s.stop())
	}
	return s, nil
}

func (s *stage) start(ctx context.Context, replicas int) (err error) {
	if s.base, err = s.mete(ctx, "base"); err != nil {
		return err
	}
	for i := range replicas {
		m, err := s.mete(ctx, string(rune('a'+i)), "--etcd-endpoints", "http://"+s.base.Etcd)
		if err != nil {
			return err
		}
		s.replicas = append(s.replicas, m)
	}
	s.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{s.base.Etcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	if s.upstream, err = rig.StartUpstream(ctx); err != nil {
		return err
	}
	if s.proxy, err = rig.StartCheckProxy(ctx, s.replicas[0].GRPC); err != nil {
		return err
	}
	return s.startEnvoy(ctx)
}

func (s *stage) mete(ctx context.Context, name string, args ...string) (*rig.Mete, error) {
	bin, err := binaries()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	return rig.StartMete(ctx, filepath.Join(bin, "mete"), dir, append(patience(), args...)...)
}

func (s *stage) startEnvoy(ctx context.Context) error {
	var ports []int
	for _, m := range s.replicas {
		ports = append(ports, rig.Port(m.GRPC))
	}
	config, err := envoy.Ports(readExample("envoy.yaml"), map[int]int{9901: 0, 10000: 0, 9001: ports[0], 8000: rig.Port(s.upstream.Address)})
	if err != nil {
		return err
	}
	if config, err = outcomesConfig(patient(config), s.file(), rig.Port(s.proxy.Address), ports); err != nil {
		return err
	}
	binary, err := envoy.Binary(ctx)
	if err != nil {
		return err
	}
	s.envoy, err = envoy.Start(ctx, binary, config)
	return err
}

// file is where Envoy says how requests ended.
func (s *stage) file() string { return filepath.Join(s.dir, "outcomes.log") }

// stopAsking ends Envoy and then the replicas, which report what was used.
func (s *stage) stopAsking() error {
	s.mu.Lock()
	for _, stub := range s.stubs {
		_ = stub.Close() // some callers have
	}
	s.mu.Unlock()
	var errs []error
	if s.envoy != nil {
		errs = append(errs, s.envoy.Stop())
	}
	for _, m := range s.replicas {
		errs = append(errs, m.Stop())
	}
	return errors.Join(errs...)
}

// stop ends all.
func (s *stage) stop() error {
	errs := []error{s.stopAsking()}
	if s.proxy != nil {
		errs = append(errs, s.proxy.Stop())
	}
	if s.upstream != nil {
		errs = append(errs, s.upstream.Stop())
	}
	if s.etcd != nil {
		errs = append(errs, s.etcd.Close())
	}
	if s.base != nil {
		errs = append(errs, s.base.Stop())
	}
	return errors.Join(append(errs, os.RemoveAll(s.dir))...)
}
