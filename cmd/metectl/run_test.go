package main

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out, errs strings.Builder
	args := []string{"get", "plans", "--endpoints", "127.0.0.1:1"}
	code := run(ctx, args, strings.NewReader(""), &out, &errs, func(string) string { return "" })
	if code != exitInterrupted || out.String() != "" {
		t.Errorf("got exit code %d, stdout %q, stderr %q; want %d", code, out.String(), errs.String(), exitInterrupted)
	}
}

// Somebody else writes a document between our read and our write.
func TestApplyLosesARace(t *testing.T) {
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: t.TempDir(), ClientURL: "127.0.0.1:0", Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	const text = "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: free}\nspec: {limits: {a: {kind: rate, amount: 1, window: 1s}}}\n"
	docs, problems := plan.Decode("plan.yaml", []byte(text))
	if len(docs) != 1 {
		t.Fatal(problems)
	}
	c := &cli{stderr: io.Discard}
	steps, err := c.prepare(t.Context(), s.Client(), &batch{docs: docs})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().Put(t.Context(), store.DocumentKey(plan.KindPlan, "free"), "theirs"); err != nil {
		t.Fatal(err)
	}
	for _, dryRun := range []string{"server", ""} {
		err = c.send(t.Context(), s.Client(), steps, dryRun)
		var f *failure
		if !errors.As(err, &f) || f.code != exitConflict {
			t.Errorf("dry run %q: got %v; want exit code %d", dryRun, err, exitConflict)
		}
	}
	got, err := s.Client().Get(t.Context(), store.DocumentKey(plan.KindPlan, "free"))
	if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != "theirs" {
		t.Errorf("the other's document is gone: %v, %v", got, err)
	}
}

// A stream that cannot be written is told, and is no mistake in the command line.
func TestOutputThatCannotBeWritten(t *testing.T) {
	var errs strings.Builder
	code := run(t.Context(), []string{"schema"}, strings.NewReader(""), brokenPipe{}, &errs, func(string) string { return "" })
	if code != exitUnreachable || !strings.Contains(errs.String(), "disk is full") {
		t.Errorf("got exit code %d, stderr %q", code, errs.String())
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("disk is full") }

// The etcd of a mete on a unix socket is found by its data folder.
func TestDataDirLeadsToAUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "mete") //nolint:usetesting // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	l, err := new(net.ListenConfig).Listen(t.Context(), "unix", filepath.Join(dir, "etcd.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, Listener: l, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	if err := os.WriteFile(filepath.Join(dir, "addresses.json"), []byte(`{"etcd": "`+s.Endpoint()+`"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Client().Put(t.Context(), store.DocumentKey(plan.KindPlan, "free"), "theirs"); err != nil {
		t.Fatal(err)
	}
	var out, errs strings.Builder
	code := run(t.Context(), []string{"get", "plan", "free", "--raw", "--data-dir", dir}, strings.NewReader(""), &out, &errs, func(string) string { return "" })
	if code != 0 || !strings.Contains(out.String(), "theirs") {
		t.Errorf("exit code %d, stdout %q, stderr %q", code, out.String(), errs.String())
	}
}
