package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/meteproject/mete/test/envoy"
	"github.com/meteproject/mete/test/rig"
)

// A stage is all that runs.
type stage struct {
	root, bin, envoy, version, dir string

	mete     *rig.Mete
	upstream *rig.Upstream
	proxy    *envoy.Process
	edge     *envoy.Process // asks by the rate limit filter alone
	key      string         // of org:acme
}

// prepare builds and fetches what the demo needs, all at once.
func (s *stage) prepare(ctx context.Context) error {
	var err error
	if s.root, err = envoy.Root(); err != nil {
		return err
	}
	s.bin = filepath.Join(s.root, "bin")
	if err := os.MkdirAll(s.bin, 0o755); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	// The same flags for all, and those of "go run": so they share what is compiled.
	g.Go(func() error { return rig.Build(ctx, s.root, s.bin, "-ldflags", "-s -w") })
	g.Go(func() error {
		_, err := command(ctx, "go", "build", "-C", filepath.Join(s.root, "tools", "etcdctl"),
			"-ldflags", "-s -w", "-o", filepath.Join(s.bin, "etcdctl"), ".")
		return err
	})
	g.Go(func() error {
		var err error
		if s.envoy, err = envoy.Binary(ctx); err != nil {
			return err
		}
		s.version, err = envoy.Version(ctx, s.envoy)
		return err
	})
	return g.Wait()
}

// up starts everything and puts the quickstart's documents and a key in place.
func (s *stage) up(ctx context.Context) error {
	var err error
	if s.dir, err = os.MkdirTemp("", "mete-demo-"); err != nil {
		return err
	}
	if s.mete, err = rig.StartMete(ctx, filepath.Join(s.bin, "mete"), s.dir,
		"--etcd-listen", "unix://"+filepath.Join(s.dir, "etcd.sock")); err != nil {
		return err
	}
	if s.upstream, err = rig.StartUpstream(ctx); err != nil {
		return err
	}
	if s.proxy, err = s.startEnvoy(ctx, "envoy.yaml", 9901, 10000); err != nil {
		return err
	}
	if _, err := s.metectl(ctx, "apply", "-f", s.quickstart("")); err != nil {
		return err
	}
	out, err := s.metectl(ctx, "key", "create", "--tenant", "org:acme")
	if err != nil {
		return err
	}
	// The key alone is on stdout.
	s.key = strings.TrimSpace(out)
	if s.key == "" || strings.ContainsAny(s.key, " \n") {
		return fmt.Errorf("metectl key create printed %q: want the key and nothing else", out)
	}
	return nil
}

// startEnvoy runs an example's Envoy on free ports in place of its own two.
func (s *stage) startEnvoy(ctx context.Context, file string, admin, listener int) (*envoy.Process, error) {
	example, err := os.ReadFile(filepath.Join(s.root, "examples", "envoy", file))
	if err != nil {
		return nil, err
	}
	config, err := envoy.Ports(string(example), map[int]int{
		admin: 0, listener: 0, 9001: rig.Port(s.mete.GRPC), 8000: rig.Port(s.upstream.Address),
	})
	if err != nil {
		return nil, err
	}
	return envoy.Start(ctx, s.envoy, config)
}

// down stops whatever runs, Envoy first: nobody then asks a mete that is gone.
func (s *stage) down() error {
	var errs []error
	for _, p := range []*envoy.Process{s.edge, s.proxy} {
		if p != nil {
			errs = append(errs, p.Stop())
		}
	}
	if s.upstream != nil {
		errs = append(errs, s.upstream.Stop())
	}
	if s.mete != nil {
		errs = append(errs, s.mete.Stop())
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

func (s *stage) quickstart(file string) string {
	return filepath.Join(s.root, "examples", "quickstart", file)
}

func (s *stage) metectl(ctx context.Context, args ...string) (string, error) {
	return command(ctx, filepath.Join(s.bin, "metectl"), append([]string{"--data-dir", s.dir}, args...)...)
}

func (s *stage) etcdctl(ctx context.Context, args ...string) (string, error) {
	return command(ctx, filepath.Join(s.bin, "etcdctl"), append([]string{"--endpoints", s.mete.Etcd}, args...)...)
}

// command runs a command and returns what it wrote to stdout.
func command(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(out), nil
}
