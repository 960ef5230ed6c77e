package servers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/meteproject/mete/test/envoy"
)

// ErrNoVenv says that Python, or what it makes virtual environments with, is not there.
var ErrNoVenv = errors.New("python3 with venv is not there (Debian, Ubuntu: apt-get install python3-venv)")

// Python returns a folder for PYTHONPATH that has the packages of wsgi/requirements.txt,
// which it installs into .cache/ on first use. Without python3 and venv it fails with ErrNoVenv.
func Python(ctx context.Context) (string, error) {
	return fetched(ctx, "wsgi", []string{"requirements.txt"}, func(ctx context.Context, dir string) error {
		if err := exec.CommandContext(ctx, "python3", "-c", "import venv, ensurepip").Run(); err != nil {
			return ErrNoVenv
		}
		if err := run(ctx, dir, "python3", "-m", "venv", "venv"); err != nil {
			return err
		}
		err := run(ctx, dir, filepath.Join("venv", "bin", "python3"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
			"--no-deps", "-r", "requirements.txt", "--target", "packages")
		return errors.Join(err, os.RemoveAll(filepath.Join(dir, "venv")))
	}, "packages")
}

// Node returns a folder that has node_modules as express/package-lock.json says, which
// it installs into .cache/ on first use. It needs npm.
func Node(ctx context.Context) (string, error) {
	return fetched(ctx, "express", []string{"package.json", "package-lock.json"}, func(ctx context.Context, dir string) error {
		return run(ctx, dir, "npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund")
	}, "")
}

// fetched returns the folder sub of what install makes of some files of a folder here,
// once for each content of them. It works in a folder of its own and ends with a rename,
// so that several may fetch at once.
func fetched(ctx context.Context, from string, files []string, install func(ctx context.Context, dir string) error, sub string) (string, error) {
	root, err := envoy.Root()
	if err != nil {
		return "", err
	}
	texts, sum := map[string][]byte{}, sha256.New()
	for _, name := range files {
		if texts[name], err = os.ReadFile(filepath.Join(root, "test", "servers", from, name)); err != nil {
			return "", err
		}
		_, _ = sum.Write(texts[name]) // a hash takes everything
	}
	cache := filepath.Join(root, ".cache", "servers")
	done := filepath.Join(cache, from+"-"+hex.EncodeToString(sum.Sum(nil)[:6]))
	if _, err := os.Stat(done); err == nil {
		return filepath.Join(done, sub), nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(work) }()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(work, name), text, 0o600); err != nil {
			return "", err
		}
	}
	if err := install(ctx, work); err != nil {
		return "", err
	}
	if err := os.Rename(work, done); err != nil {
		if _, other := os.Stat(done); other != nil {
			return "", err
		}
	}
	return filepath.Join(done, sub), nil
}

// run runs a command in a folder; its error holds the last line that the command wrote.
func run(ctx context.Context, dir, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	if strings.Contains(name, "/") {
		cmd.Path = filepath.Join(dir, name)
	}
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("fetching what %s needs: %s %s: %w: %s", filepath.Base(dir), name, strings.Join(args[:min(3, len(args))], " "), err, lines[len(lines)-1])
}
