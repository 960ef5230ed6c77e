package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// mono reads the clock that all processes of the machine share and that histories
// are written in, in nanoseconds.
func mono() int64 {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("chaos: read the monotonic clock: " + err.Error())
	}
	return now.Nano()
}

// A process is a program that can be killed and paused. What it writes is added to
// a file.
type process struct {
	cmd    *exec.Cmd
	log    *os.File
	exited chan struct{}
}

// startProcess runs binary. The caller must kill it.
func startProcess(logPath, binary string, args ...string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.Command(binary, args...), log: log, exited: make(chan struct{})} //nolint:noctx // it outlives the start
	p.cmd.Stdout, p.cmd.Stderr = log, log
	// A group of its own: Ctrl-C is for the caller, who ends things in order.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	go func() {
		_ = p.cmd.Wait() // how it ended is in its log
		_ = log.Close()
		close(p.exited)
	}()
	return p, nil
}

func (p *process) pause()  { _ = p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) resume() { _ = p.cmd.Process.Signal(syscall.SIGCONT) }

// kill ends the process at once. A second one does nothing.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended by itself
	<-p.exited
}

// freePorts returns ports of the loopback that nobody listens on, below those that
// the system gives to a process that asks for any: a member that is down for a moment finds
// its own ports free again.
func freePorts(n int) ([]int, error) {
	const lowest, count = 20_000, 12_000
	var ports []int
	for range 100 * n {
		port := lowest + rand.IntN(count)                           //nolint:gosec // not a secret
		l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)) //nolint:noctx // does not wait
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }() // all together: no port is given twice
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("find %d free ports between %d and %d: %d found", n, lowest, lowest+count, len(ports))
}
