package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/meteproject/mete/test/rig"
)

// A cell is one outcome in one column, with a tenant of its own.
type cell struct {
	outcome *outcome
	column  *column
	app     string

	saw     string // what the caller got
	err     error
	base    int64 // what was used before
	seen    []logLine
	account usage  // what is in the tenant's account
	shown   *usage // what metectl shows; nil: it was not asked
}

func (c *cell) name() string   { return c.outcome.name + "-" + c.column.name }
func (c *cell) id() string     { return c.app + "/" + c.name() }
func (c *cell) tenant() string { return c.app + ":" + c.name() }
func (c *cell) key() string    { return "mk_" + c.app + "_" + c.name() }

func (c *cell) plan() string {
	if c.outcome.full {
		return c.column.tight
	}
	return c.column.plan
}

// fills is how many requests are sent before, so that the quota is used up, or its
// grace has begun.
func (c *cell) fills() int {
	switch {
	case c.outcome.full:
		return c.column.fills
	case c.column.grace:
		return 1
	}
	return 0
}

// A logLine is what Envoy's own log says of a request.
type logLine struct{ kind, code, flags, details, decision string }

// atOnce is how many cells are played at the same time.
const atOnce = 64

// play plays all cells on a stage and then stops it, but for the store. A cell's own
// failure is in the cell.
func (s *stage) play(ctx context.Context, cells []*cell) error {
	var g errgroup.Group
	g.SetLimit(atOnce)
	for _, c := range cells {
		g.Go(func() error {
			c.err = s.playOne(ctx, c)
			return nil
		})
	}
	_ = g.Wait()
	return errors.Join(s.settled(ctx, byBoth(cells)), s.stopAsking(), s.readLog(cells))
}

func (s *stage) playOne(ctx context.Context, c *cell) error {
	for i := range c.fills() {
		filling := s.caller(c, &script{path: "/fill", act: rig.ActStatus + "200"})
		filling.id += fmt.Sprint("/fill/", i)
		if saw, err := get(ctx, filling); err != nil || saw != "200" {
			return fmt.Errorf("use up the quota: %s, %w", saw, err)
		}
		c.base += tightAmount
	}
	by := c.outcome.how.by
	if by == nil {
		by = get
	}
	var err error
	c.saw, err = by(ctx, s.caller(c, &c.outcome.how))
	return err
}

func (s *stage) caller(c *cell, how *script) *caller {
	listener := how.listener
	if listener == "" {
		listener = "ingress"
	}
	return &caller{stage: s, script: *how, app: c.app, id: c.id(), key: c.key(), column: c.column, target: s.envoy.Listener(listener)}
}

// byBoth reports whether two filters of Envoy have mete charge c's request.
func (c *cell) byBoth() bool {
	return !c.column.exempt && strings.HasPrefix(c.outcome.how.edge, "edge:open")
}

// byBoth counts such cells.
func byBoth(cells []*cell) int {
	n := 0
	for _, c := range cells {
		if c.byBoth() {
			n++
		}
	}
	return n
}

// settled returns once all requests have ended and mete has heard of all of them, with
// the replicas' metrics in s.figures. Of so many requests mete counts the log entry
// twice, since it has two reservations.
func (s *stage) settled(ctx context.Context, twice int) error {
	last := "nothing was heard of it"
	for ctx.Err() == nil {
		written, active, err := s.logged(ctx)
		if err == nil {
			s.figures, err = s.metrics(ctx)
		}
		if err != nil {
			return errors.Join(errors.New(last), err)
		}
		entries, underway := heard(s.figures)
		if active == 0 && written > 0 && entries == written+twice && underway == 0 {
			return nil
		}
		last = fmt.Sprintf("%d requests have not ended; of %d log entries mete has heard %d, of which %d are underway", active, written, entries, underway)
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("%s: %w", last, ctx.Err())
}

// readLog reads Envoy's own log into the cells.
func (s *stage) readLog(cells []*cell) error {
	text, err := os.ReadFile(s.file())
	if err != nil {
		return err
	}
	lines := map[string][]logLine{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 6 {
			return fmt.Errorf("Envoy logs %q, want six words", line)
		}
		lines[f[0]] = append(lines[f[0]], logLine{kind: f[1], code: f[2], flags: f[3], details: f[4], decision: f[5]})
	}
	for _, c := range cells {
		c.seen = lines[c.id()]
	}
	return nil
}
