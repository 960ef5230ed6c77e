// Command chaos runs mete as it will be run on a bad day: several replicas on an
// etcd of three members, with load, while members and replicas are killed and
// paused, links are cut, replies are lost and plans are edited. Then it checks that
// nothing that mete promises was broken: by the books of every revision of etcd, by
// the histories that replicas write of their own operations, and by what callers
// were told, of tenants and of the counters of rate limit descriptors. It makes up names by the
// thousands. Behind a real Envoy
// it breaks the stream of the access log and restarts metes, and holds accounts against how
// each request ended. It fails if anything is not as promised, and leaves nothing running.
//
// "make chaos" is its short form. Every run prints its seed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/meteproject/mete/test/envoy"
	"github.com/meteproject/mete/test/rig"
)

func main() {
	r := &run{out: os.Stdout, least: 100}
	var only, again string
	flag.Uint64Var(&r.seed, "seed", 0, "`number` that decides the faults; 0: any")
	flag.BoolVar(&r.long, "long", false, "the long form: true lease lives, more rounds")
	flag.DurationVar(&r.length, "for", 0, "how long the faults go on; more than a minute implies -long")
	flag.StringVar(&only, "only", "", "`names` of scenarios, with commas between: "+strings.Join(names(), ", "))
	flag.StringVar(&again, "recheck", "", "check the books and histories that a failed run left in a `directory`, and nothing else")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if again != "" {
		err = r.recheck(again)
	} else {
		err = r.all(ctx, only)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos failed:", err)
		os.Exit(1)
	}
}

// A run is one run of scenarios.
type run struct {
	seed   uint64
	long   bool
	length time.Duration // of the faults
	least  float64       // operations a second, or the faults prove nothing
	out    io.Writer

	printing   sync.Mutex
	dir        string // of everything that is kept on failure
	mete, etcd string // binaries
}

// A scenario plays something and checks it. It returns its figures, also if it
// fails.
type scenario struct {
	name string
	play func(context.Context, *run) (figures string, err error)
}

// scenarios returns what there is, in groups: those of one group run at the same
// time, as most of what they do is wait.
func scenarios() [][]scenario {
	return [][]scenario{
		{{"faults", playFaults}},
		{{"killed", playKilled}, {"paused", playPaused}},
		{{"lost", playLost}, {"skew", playSkew}},
		{{"log", playLog}, {"restart", playRestart}, {"counters", playCounters}},
		{{"hot", playHot}}, // these need the machine for themselves
		{{"flood", playFlood}},
	}
}

func names() []string {
	var all []string
	for _, group := range scenarios() {
		for _, s := range group {
			all = append(all, s.name)
		}
	}
	return all
}

// chosen returns the scenarios that only names; all if it is empty.
func chosen(only string) ([][]scenario, error) {
	if only == "" {
		return scenarios(), nil
	}
	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("there is no scenario %q; there are %s", name, strings.Join(names(), ", "))
		}
	}
	groups := scenarios()
	for i := range groups {
		groups[i] = slices.DeleteFunc(groups[i], func(s scenario) bool { return !slices.Contains(wanted, s.name) })
	}
	return groups, nil
}

// all builds what is needed and runs the scenarios that only names.
func (r *run) all(ctx context.Context, only string) error {
	groups, err := chosen(only)
	if err != nil {
		return err
	}
	r.settings()
	began := time.Now()
	r.say("chaos with seed %d", r.seed)
	if err := r.prepare(ctx); err != nil {
		return err
	}
	r.say("built in %.0f s", time.Since(began).Seconds())
	var failed []error
	for _, group := range groups {
		errs := make([]error, len(group))
		var all sync.WaitGroup
		for i, s := range group {
			all.Go(func() { errs[i] = r.one(ctx, s) })
		}
		all.Wait()
		if ctx.Err() != nil {
			return errors.Join(errors.New("interrupted"), r.finish(errors.Join(failed...)))
		}
		failed = append(failed, errs...)
	}
	if err := r.finish(errors.Join(failed...)); err != nil {
		return err
	}
	r.say("All as promised, in %.0f s.", time.Since(began).Seconds())
	return nil
}

// settings fills in what the flags leave open.
func (r *run) settings() {
	if r.seed == 0 {
		r.seed = rand.Uint64N(1_000_000) + 1 //nolint:gosec // any will do
	}
	r.long = r.long || r.length > time.Minute
	switch {
	case r.length > 0:
	case r.long:
		r.length = 5 * time.Minute
	default:
		r.length = 15 * time.Second
	}
}

// prepare builds mete, with its history, and etcd, at the version that mete embeds.
func (r *run) prepare(ctx context.Context) error {
	root, err := envoy.Root()
	if err != nil {
		return err
	}
	if r.dir, err = os.MkdirTemp("", "mete-chaos-"); err != nil {
		return err
	}
	bin := filepath.Join(r.dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		return err
	}
	r.mete, r.etcd = filepath.Join(bin, "mete"), filepath.Join(bin, "etcd")
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return rig.Build(ctx, root, bin, "-tags", "chaos", "-ldflags", "-s -w") })
	g.Go(func() error { return goBuild(ctx, root, r.etcd, "go.etcd.io/etcd/server/v3") })
	if err := g.Wait(); err != nil {
		return errors.Join(err, os.RemoveAll(r.dir))
	}
	return nil
}

// one runs a scenario and prints what it found.
func (r *run) one(ctx context.Context, s scenario) error {
	began := time.Now()
	figures, err := s.play(ctx, r)
	verdict := "ok"
	if err != nil {
		verdict, err = "FAILED", fmt.Errorf("%s: %w", s.name, err)
	}
	r.say("%-8s %-6s %3.0f s  %s", s.name, verdict, time.Since(began).Seconds(), figures)
	return err
}

// A part is one of several worlds of a scenario.
type part struct {
	name string
	play func() (figures string, err error)
}

// atOnce plays parts at the same time. It returns the figures of all, a paragraph each.
func atOnce(parts ...part) (figures string, err error) {
	said, errs := make([]string, len(parts)), make([]error, len(parts))
	var all sync.WaitGroup
	for i, p := range parts {
		all.Go(func() {
			if said[i], errs[i] = p.play(); errs[i] != nil {
				errs[i] = fmt.Errorf("%s: %w", p.name, errs[i])
			}
			said[i] = "\n  " + p.name + ": " + said[i]
		})
	}
	all.Wait()
	return strings.Join(said, ""), errors.Join(errs...)
}

// finish removes everything, or after a failure tells where it is.
func (r *run) finish(failed error) error {
	if failed == nil {
		return os.RemoveAll(r.dir)
	}
	return fmt.Errorf("%w\nlogs, histories and revisions are in %s; the same faults again: SEED=%d", failed, r.dir, r.seed)
}

// recheck checks what a world has left in dir.
func (r *run) recheck(dir string) error {
	events, err := readBooks(filepath.Join(dir, booksFile))
	if err != nil {
		return err
	}
	calls, err := readHistory(filepath.Join(dir, historyFile))
	if err != nil {
		return err
	}
	_, proof, err := prove(events, calls, dir)
	r.say("%s", proof)
	return err
}

func (r *run) say(format string, args ...any) {
	r.printing.Lock()
	defer r.printing.Unlock()
	_, _ = fmt.Fprintf(r.out, format+"\n", args...) // a reader that is gone has the exit code
}
