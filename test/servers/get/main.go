// Command get installs what the servers of the tests need, as far as the machine has the
// programs to do so.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"

	"github.com/meteproject/mete/test/servers"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := get(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func get(ctx context.Context) error {
	if _, err := servers.Python(ctx); errors.Is(err, servers.ErrNoVenv) {
		fmt.Fprintf(os.Stderr, "%v: tests that need it are skipped\n", err)
	} else if err != nil {
		return err
	}
	if _, err := exec.LookPath("npm"); err != nil {
		fmt.Fprintln(os.Stderr, "npm is not in PATH: tests that need it are skipped")
		return nil
	}
	_, err := servers.Node(ctx)
	return err
}
