// Command get prints the path of an Envoy for the tests, fetching one if need be.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/meteproject/mete/test/envoy"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	path, err := envoy.Binary(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(path)
}
