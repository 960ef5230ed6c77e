// Command start measures how long mete takes from its exec to ready: with an empty
// data directory, and again over many tenants and API keys.
//
//	go run ./bench/start -tenants 100000 -credentials 100000
//
// Times on a machine that does other things too say little; the processor time
// beside them says more.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

func main() {
	mete := flag.String("mete", "", "the binary; built again if not given")
	tenants := flag.Int("tenants", 100_000, "documents of tenants")
	credentials := flag.Int("credentials", 100_000, "documents of API keys")
	runs := flag.Int("runs", 3, "how often each start is measured")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *mete, *tenants, *credentials, *runs); err != nil {
		fmt.Fprintln(os.Stderr, "start:", err)
		os.Exit(1)
	}
}

// run prints one line for each start.
func run(ctx context.Context, mete string, tenants, credentials, runs int) error {
	dir, err := os.MkdirTemp("", "mete-start")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if mete == "" {
		mete = filepath.Join(dir, "mete")
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", mete, "./cmd/mete").CombinedOutput(); err != nil {
			return fmt.Errorf("build mete: %w\n%s", err, out)
		}
	}
	for i := range runs {
		if err := measure(ctx, mete, filepath.Join(dir, fmt.Sprint("empty", i)), "empty"); err != nil {
			return err
		}
	}
	data := filepath.Join(dir, "data")
	for _, stage := range []struct {
		n    int
		name string
		fill func(context.Context, string, int) error
	}{
		{tenants, "tenants", fillTenants},
		{credentials, "tenants and as many credentials", fillCredentials},
	} {
		if stage.n == 0 {
			continue
		}
		if err := stage.fill(ctx, data, stage.n); err != nil {
			return fmt.Errorf("fill %s with %d %s: %w", data, stage.n, stage.name, err)
		}
		for range runs {
			if err := measure(ctx, mete, data, fmt.Sprint(stage.n, " ", stage.name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure starts mete on data, waits until it is ready and stops it.
func measure(ctx context.Context, mete, data, what string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, mete, "serve", "--data-dir", data, "--log-level", "error",
		"--grpc-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
		"--etcd-listen", "127.0.0.1:0", "--drain-delay", "0s")
	cmd.Stderr = os.Stderr
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	err := ready(ctx, data)
	took := time.Since(began)
	spent := processorTime(cmd.Process.Pid)
	_ = cmd.Process.Signal(syscall.SIGTERM)
	if waitErr := cmd.Wait(); err == nil && waitErr != nil {
		err = waitErr
	}
	if err != nil {
		return fmt.Errorf("start over %s: %w", what, err)
	}
	usage, _ := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	_, _ = fmt.Fprintf(os.Stdout, "%-50s ready after %6.3f s, %6.3f s of processor time, at most %4d MB\n",
		what, took.Seconds(), spent.Seconds(), usage.Maxrss>>10)
	return nil
}

// ready waits for the file that mete writes once it is ready.
func ready(ctx context.Context, data string) error {
	for {
		if _, err := os.Stat(filepath.Join(data, "addresses.json")); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		case <-time.After(time.Millisecond):
		}
	}
}

// processorTime is what the threads of a process have used so far; 0 where the
// system does not tell.
func processorTime(pid int) time.Duration {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	var sum time.Duration
	for _, f := range files {
		var ns int64
		if text, err := os.ReadFile(f); err == nil {
			_, _ = fmt.Sscan(string(text), &ns)
		}
		sum += time.Duration(ns)
	}
	return sum
}
