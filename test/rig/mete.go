package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	startWithin = time.Minute // an embedded etcd on a busy machine
	stopWithin  = 20 * time.Second
	pollEvery   = 10 * time.Millisecond
)

// Addresses is where a mete listens; mete writes them to addresses.json. Etcd is
// empty if none is embedded.
type Addresses struct {
	GRPC    string `json:"grpc"`
	Admin   string `json:"admin"`
	Metrics string `json:"metrics"`
	Etcd    string `json:"etcd"`
}

// A Mete is a running mete process.
type Mete struct {
	Addresses
	DataDir string

	cmd    *exec.Cmd
	log    lockedBuffer
	exited chan struct{}
	err    error // of the exit; read only once exited is closed
}

// Build builds the commands at the module's root into dir. Flags go to go build.
func Build(ctx context.Context, root, dir string, flags ...string) error {
	args := append([]string{"build"}, flags...)
	cmd := exec.CommandContext(ctx, "go", append(args, "-o", dir+string(filepath.Separator), "./cmd/...")...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build mete: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// StartMete runs "mete serve" on dataDir, on ports that the system chooses, and
// returns once it is ready. Args come last, so that they win. The caller must Stop it.
func StartMete(ctx context.Context, binary, dataDir string, args ...string) (*Mete, error) {
	return StartMeteWith(ctx, nil, binary, dataDir, args...)
}

// StartMeteWith is StartMete with variables, "NAME=value", beside those of this
// process.
func StartMeteWith(ctx context.Context, env []string, binary, dataDir string, args ...string) (*Mete, error) {
	file := filepath.Join(dataDir, "addresses.json")
	if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err // of an earlier run: it would be taken for this one's
	}
	m := &Mete{DataDir: dataDir, exited: make(chan struct{})}
	m.cmd = exec.Command(binary, slices.Concat([]string{ //nolint:noctx // it outlives the start: Stop ends it
		"serve", "--data-dir", dataDir, "--grpc-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0",
		"--metrics-listen", "127.0.0.1:0", "--drain-delay", "0s",
	}, embed(args), args)...)
	m.cmd.Stdout, m.cmd.Stderr = &m.log, &m.log
	m.cmd.Env = append(os.Environ(), env...)
	// A group of its own: Ctrl-C is for the caller, who stops things in order.
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := m.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		m.err = m.cmd.Wait()
		close(m.exited)
	}()
	if err := m.await(ctx, file); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
}

// embed is the address of the embedded etcd, unless args name a cluster.
func embed(args []string) []string {
	if slices.Contains(args, "--etcd-endpoints") {
		return nil
	}
	return []string{"--etcd-listen", "127.0.0.1:0"}
}

// Log returns what mete has written.
func (m *Mete) Log() string { return m.log.String() }

// Pid returns the process id of mete.
func (m *Mete) Pid() int { return m.cmd.Process.Pid }

// Stop ends mete in order and waits for it. It fails if mete does, or if the race
// detector has found something. A second Stop does nothing.
func (m *Mete) Stop() error {
	select {
	case <-m.exited:
		return m.verdict()
	default:
	}
	if err := m.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-m.exited:
		return m.verdict()
	case <-time.After(stopWithin):
		return errors.Join(fmt.Errorf("mete did not end within %v of SIGTERM:\n%s", stopWithin, m.Log()), m.Kill())
	}
}

// Reload has mete reread its TLS files now.
func (m *Mete) Reload() error { return m.cmd.Process.Signal(syscall.SIGHUP) }

// Pause makes mete stand still, as a machine does that is out of processor time,
// until Resume. A mete that stands still can be killed, and not stopped.
func (m *Mete) Pause() error { return m.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume lets a paused mete go on.
func (m *Mete) Resume() error { return m.cmd.Process.Signal(syscall.SIGCONT) }

// Kill ends mete at once, as the out-of-memory killer would.
func (m *Mete) Kill() error {
	err := m.cmd.Process.Kill()
	<-m.exited
	return err
}

// verdict tells what is wrong with how an exited mete ended.
func (m *Mete) verdict() error {
	if strings.Contains(m.Log(), "WARNING: DATA RACE") {
		return fmt.Errorf("mete has a data race:\n%s", m.Log())
	}
	if m.err != nil {
		return fmt.Errorf("mete: %w:\n%s", m.err, m.Log())
	}
	return nil
}

// await returns once mete has told its addresses.
func (m *Mete) await(ctx context.Context, file string) error {
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		text, err := os.ReadFile(file)
		if err == nil && json.Unmarshal(text, &m.Addresses) == nil && m.GRPC != "" {
			return nil
		}
		select {
		case <-time.After(pollEvery):
		case <-m.exited:
			return errors.New("mete ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("mete is not ready: %w:\n%s", ctx.Err(), m.Log())
		}
	}
}

// Port returns the port of an address, or 0 if it has none.
func Port(address string) int {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return port
}

// A lockedBuffer is a bytes.Buffer for a process to write and a test to read.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
