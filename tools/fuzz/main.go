// Command fuzz runs every fuzz target of the module for a while: "go test -fuzz"
// takes one target of one package at a time.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
)

func main() {
	fuzztime := flag.String("fuzztime", "10s", "how long each target runs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Stdout, *fuzztime)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		os.Exit(1)
	}
}

// A target is one fuzz function.
type target struct{ pkg, name string }

func run(ctx context.Context, out io.Writer, fuzztime string) error {
	all, err := targets(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for _, t := range all {
		cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-fuzz", "^"+t.name+"$", "-fuzztime", fuzztime, t.pkg)
		cmd.Stdout, cmd.Stderr = out, os.Stderr
		if err := cmd.Run(); err != nil {
			failed = append(failed, fmt.Errorf("%s %s: %w", t.pkg, t.name, err))
		}
		if ctx.Err() != nil {
			break
		}
	}
	_, err = fmt.Fprintf(out, "%d fuzz targets, %d failed\n", len(all), len(failed))
	return errors.Join(append(failed, err)...)
}

// targets lists the fuzz functions of the module.
func targets(ctx context.Context) ([]target, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-json", "-run", "^$", "-list", "^Fuzz", "./...")
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var all []target
	for lines := json.NewDecoder(out); ; {
		var event struct{ Action, Package, Output string }
		if err := lines.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, errors.Join(err, cmd.Wait())
		}
		if event.Action == "build-output" {
			fmt.Fprint(os.Stderr, event.Output)
		}
		if name := strings.TrimSpace(event.Output); event.Action == "output" && strings.HasPrefix(name, "Fuzz") {
			all = append(all, target{pkg: event.Package, name: name})
		}
	}
	return all, cmd.Wait()
}
