package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/meteproject/mete/test/envoy"
	"github.com/meteproject/mete/test/rig"
)

// binaries is the folder of the built commands, made on first use.
var binaries = sync.OnceValues(func() (string, error) {
	root, err := envoy.Root()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mete-e2e-")
	if err != nil {
		return "", err
	}
	var flags []string
	if raceBuild {
		flags = []string{"-race"}
	}
	built.Store(dir)
	return dir, rig.Build(context.Background(), root, dir, flags...)
})

// built is the folder that binaries has made, a string, once it has.
var built atomic.Value

// common is the world of most tests, started on first use: a run that lists tests
// or runs benchmarks starts nothing.
var common struct {
	sync.Mutex

	world *world // guarded by the mutex
	err   error  // guarded by the mutex
}

// shared returns the world of most tests.
func shared(t *testing.T) *world {
	t.Helper()
	common.Lock()
	defer common.Unlock()
	if common.world == nil && common.err == nil {
		dir, err := binaries()
		w := &world{}
		if err == nil {
			err = w.start(context.Background(), filepath.Join(dir, "data"), nil, nil)
		}
		common.world, common.err = w, err
	}
	if common.err != nil {
		t.Fatal(common.err)
	}
	return common.world
}

// TestMain stops what was started, and fails if that fails: at a stop mete tells of
// data races.
func TestMain(m *testing.M) {
	code := m.Run()
	if err := stopAll(); err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func stopAll() error {
	common.Lock()
	defer common.Unlock()
	var err error
	if common.world != nil {
		err = common.world.stop()
	}
	if dir, made := built.Load().(string); made {
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return err
}

// A world is one mete with everything around it.
type world struct {
	mete     *rig.Mete
	upstream *rig.Upstream
	ingress  *envoy.Process   // examples/envoy/envoy.yaml: asks by ext_authz
	internal *envoy.Process   // examples/envoy/ratelimit.yaml: asks by the rate limit filter
	etcd     *clientv3.Client // nil if mete embeds none
}

// newWorld starts a world for one test. Args go to mete; edit, if not nil, changes
// the config of the ingress Envoy.
func newWorld(t *testing.T, args []string, edit func(config string) string) *world {
	t.Helper()
	w, dir := &world{}, t.TempDir() // removed after the cleanup below
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() && w.mete != nil {
			t.Logf("mete says:\n%s", w.mete.Log())
		}
	})
	// Not t.Context: that ends before the cleanup.
	if err := w.start(context.Background(), dir, args, edit); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) start(ctx context.Context, dataDir string, args []string, edit func(string) string) (err error) {
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return err
	}
	if err := w.startMete(ctx, dataDir, args...); err != nil {
		return err
	}
	if w.upstream, err = rig.StartUpstream(ctx); err != nil {
		return err
	}
	if w.mete.Etcd != "" {
		w.etcd, err = clientv3.New(clientv3.Config{Endpoints: []string{w.mete.Etcd}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
		if err != nil {
			return err
		}
	}
	if w.ingress, err = w.startEnvoy(ctx, "envoy.yaml", 9901, 10000, edit); err != nil {
		return err
	}
	if edit != nil {
		return nil
	}
	w.internal, err = w.startEnvoy(ctx, "ratelimit.yaml", 9902, 10001, nil)
	return err
}

func (w *world) startMete(ctx context.Context, dataDir string, args ...string) error {
	dir, err := binaries()
	if err != nil {
		return err
	}
	m, err := rig.StartMete(ctx, filepath.Join(dir, "mete"), dataDir, append(patience(), args...)...)
	if err == nil {
		w.mete = m
	}
	return err
}

// patience keeps a busy machine out of the tests: a lease that takes longer than
// the default 300 ms makes on_unavailable decide, which by default lets requests on
// (A57), and a check that takes longer than the example's 0.4 s makes Envoy's
// failure mode decide. Both are right, and neither is what these tests ask. The
// demo runs with the defaults.
func patience() []string {
	return []string{"--lease-wait", "5s", "--unavailable-for", "5s"}
}

// patient does for Envoy what patience does for mete.
func patient(config string) string {
	return strings.ReplaceAll(config, "timeout: 0.4s", "timeout: 10s")
}

// defaultWaits undoes patience, for tests that ask about the waits themselves.
func defaultWaits() []string {
	return []string{"--lease-wait", "300ms", "--unavailable-for", "5s"}
}

// defaultTimeout undoes patient.
func defaultTimeout(config string) string {
	return strings.ReplaceAll(config, "timeout: 10s", "timeout: 0.4s")
}

// startEnvoy runs an example on free ports.
func (w *world) startEnvoy(ctx context.Context, example string, admin, listener int, edit func(string) string) (*envoy.Process, error) {
	config, err := envoy.Ports(readExample(example), map[int]int{
		admin: 0, listener: 0, 9001: rig.Port(w.mete.GRPC), 8000: rig.Port(w.upstream.Address),
	})
	if err != nil {
		return nil, err
	}
	config = patient(config)
	if edit != nil {
		config = edit(config)
	}
	binary, err := envoy.Binary(ctx)
	if err != nil {
		return nil, err
	}
	return envoy.Start(ctx, binary, config)
}

func (w *world) stop() error {
	var errs []error
	for _, p := range []*envoy.Process{w.ingress, w.internal} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	if w.etcd != nil {
		errs = append(errs, w.etcd.Close())
	}
	if w.upstream != nil {
		errs = append(errs, w.upstream.Stop())
	}
	if w.mete != nil {
		errs = append(errs, w.mete.Stop())
	}
	return errors.Join(errs...)
}

// readExample reads a file of examples/envoy. One that is missing is empty, which
// no Envoy starts with.
func readExample(name string) string {
	root, err := envoy.Root()
	if err != nil {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(root, "examples", "envoy", name))
	if err != nil {
		return ""
	}
	return string(text)
}

// part returns an example that is a part of another, indented to fit there and
// without its comments.
func part(name, indent string) string {
	var b strings.Builder
	for line := range strings.Lines(readExample(name)) {
		if !strings.HasPrefix(line, "#") {
			b.WriteString(indent + line)
		}
	}
	return b.String()
}
