package envoy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	startWithin = 30 * time.Second // it takes a fifth of a second on an idle machine
	stopWithin  = 5 * time.Second
	pollEvery   = 20 * time.Millisecond
)

// A Process is a running Envoy.
type Process struct {
	Admin     string            // address of the admin interface
	listeners map[string]string // name to address

	dir    string
	cmd    *exec.Cmd
	output bytes.Buffer // read only once exited is closed
	exited chan struct{}
	err    error // of the exit; read only once exited is closed
}

// Start runs an Envoy with the bootstrap config, and returns once it is ready.
// Ports of 0 in config are chosen by the system. The caller must Stop it.
func Start(ctx context.Context, binary, config string) (*Process, error) {
	dir, err := os.MkdirTemp("", "mete-envoy-")
	if err != nil {
		return nil, err
	}
	p := &Process{dir: dir, exited: make(chan struct{})}
	if err := p.start(ctx, binary, config); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// Listener returns the address of a listener by its name in the config. A name
// that is not there is a mistake in the caller, and is told by an empty string.
func (p *Process) Listener(name string) string { return p.listeners[name] }

// Stop ends Envoy and removes its files. A second Stop does nothing.
func (p *Process) Stop() error {
	defer func() { _ = os.RemoveAll(p.dir) }()
	if p.cmd == nil || p.cmd.Process == nil {
		return nil
	}
	select {
	case <-p.exited:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(stopWithin):
		return errors.Join(errors.New("envoy did not end at SIGTERM"), p.cmd.Process.Kill())
	}
}

// Get reads a page of the admin interface, such as "/stats".
func (p *Process) Get(ctx context.Context, page string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Admin+page, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("envoy answers %s with %s: %s", page, resp.Status, body)
	}
	return string(body), err
}

func (p *Process) start(ctx context.Context, binary, config string) error {
	file, admin := filepath.Join(p.dir, "envoy.yaml"), filepath.Join(p.dir, "admin")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	p.cmd = exec.Command(binary, "-c", file, "--concurrency", "1", "--disable-hot-restart", //nolint:noctx // it outlives the start: Stop ends it
		"--admin-address-path", admin, "--log-level", "off")
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	// A group of its own: Ctrl-C is for the caller, who stops things in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		return err
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.exited)
	}()

	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	return p.poll(ctx, func() bool {
		address, err := os.ReadFile(admin)
		if err != nil || len(address) == 0 {
			return false
		}
		p.Admin = string(address)
		if _, err := p.Get(ctx, "/ready"); err != nil {
			return false
		}
		return p.readListeners(ctx) == nil
	})
}

// poll calls ready until it says yes, Envoy exits or ctx is done.
func (p *Process) poll(ctx context.Context, ready func() bool) error {
	for !ready() {
		select {
		case <-time.After(pollEvery):
		case <-p.exited:
			return fmt.Errorf("envoy exited: %w: %s", p.err, strings.TrimSpace(p.output.String()))
		case <-ctx.Done():
			return fmt.Errorf("envoy is not ready: %w", ctx.Err())
		}
	}
	return nil
}

func (p *Process) readListeners(ctx context.Context) error {
	page, err := p.Get(ctx, "/listeners?format=json")
	if err != nil {
		return err
	}
	var all struct {
		Listeners []struct {
			Name  string `json:"name"`
			Local struct {
				Socket struct {
					Address string `json:"address"`
					Port    int    `json:"port_value"`
				} `json:"socket_address"`
			} `json:"local_address"`
		} `json:"listener_statuses"`
	}
	if err := json.Unmarshal([]byte(page), &all); err != nil {
		return err
	}
	p.listeners = make(map[string]string, len(all.Listeners))
	for _, l := range all.Listeners {
		p.listeners[l.Name] = net.JoinHostPort(l.Local.Socket.Address, strconv.Itoa(l.Local.Socket.Port))
	}
	return nil
}

// Validate has Envoy check a bootstrap without running it.
func Validate(ctx context.Context, binary, config string) error {
	dir, err := os.MkdirTemp("", "mete-envoy-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file := filepath.Join(dir, "envoy.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, binary, "--mode", "validate", "-c", file, "--log-level", "error").CombinedOutput()
	if err != nil {
		return fmt.Errorf("envoy refuses the config: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// Ports returns config with other ports: each port_value that is a key of ports
// becomes its value. A key that is not in config is an error, so that an example
// cannot change and leave a test talking to nobody.
func Ports(config string, ports map[int]int) (string, error) {
	seen := make(map[int]bool, len(ports))
	out := regexp.MustCompile(`port_value: (\d+)`).ReplaceAllStringFunc(config, func(field string) string {
		old, err := strconv.Atoi(strings.TrimPrefix(field, "port_value: "))
		port, ok := ports[old]
		if err != nil || !ok {
			return field
		}
		seen[old] = true
		return "port_value: " + strconv.Itoa(port)
	})
	for old := range ports {
		if !seen[old] {
			return "", fmt.Errorf("the Envoy config has no port_value: %d", old)
		}
	}
	return out, nil
}
