// Command demo shows mete at work: it starts mete with its embedded etcd, an API
// and a real Envoy in front of it, applies examples/quickstart, sends requests
// through Envoy and says what came back. It fails if anything is not as promised,
// and leaves nothing running. With -keep it stays up to be played with.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // the demo reckons in the App's zone
)

func main() {
	keep := flag.Bool("keep", false, "stay up after the demo, until Ctrl-C")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *keep)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo failed:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, keep bool) (err error) {
	began := time.Now()
	out := &printer{w: os.Stdout}
	s := &stage{}
	defer func() { err = errors.Join(err, s.down()) }()

	out.say("Building mete and etcdctl, getting Envoy ...")
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := s.up(ctx); err != nil {
		return err
	}
	out.say("Up in %.1f s: mete with its own etcd, an API, and Envoy %s in front of it.", time.Since(began).Seconds(), s.version)

	p := &play{stage: s, out: out}
	if err := p.run(ctx); err != nil {
		return err
	}
	if keep {
		p.invite()
		<-ctx.Done()
		return out.err
	}
	out.say("\nAll as promised, in %.0f s. Try it yourself with: make demo KEEP=1", time.Since(began).Seconds())
	return out.err
}
