package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/journal"
)

// maxBefore is how many processes before this one are told to the others, the latest.
const maxBefore = 16

// openPages opens what is remembered of settled reservations, with what earlier processes
// have left.
func (m *mete) openPages(ctx context.Context) (err error) {
	var problems []error
	if m.pages, m.before, problems, err = m.journal.OpenPages(time.Now()); err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	for _, problem := range problems {
		m.log.Error().Err(problem).Msg("a file of the journal cannot be read")
	}
	var full error
	if m.reserved, full, err = m.journal.OpenReserved(); err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	if full != nil {
		m.log.Warn().Err(full).Msg("the journal has no room for reservations: if this process is killed, those that it leaves unsettled are counted, and cannot be listed")
	}
	m.parts.atStop(ctx, "settled reservations", func() error {
		if m.decider != nil { // the start has come so far
			m.decider.End()
		}
		m.pages.Close()
		return nil
	})
	return nil
}

const (
	// missAfter is how long after it was ready a replica waits for the log of what killed
	// processes have left: Envoy sends it once a second, to the process that is there.
	missAfter = time.Minute
	// missAllAfter is how long a reservation can be settled.
	missAllAfter = 24 * time.Hour
)

// missKilled counts as missing what processes before this one have left unsettled: those
// that were killed after a minute, the others once nobody can settle it any more.
func (m *mete) missKilled(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-m.settling:
	}
	if n := m.decider.Killed(); n > 0 {
		m.log.Warn().Int64("reservations", n).
			Msg("a killed process has left reservations unsettled: their requests run on, or Envoy's log of them was lost with it; waiting a minute for the log")
	}
	if !pause(ctx, missAfter) {
		return ctx.Err()
	}
	if n := m.decider.Miss(false); n > 0 {
		m.log.Warn().Int64("reservations", n).
			Msg("reservations of a killed process are missing: no word of their requests has come, and what was reserved counts as used; metectl reservations lists and forgives them")
	}
	if pause(ctx, missAllAfter-missAfter) {
		m.decider.Miss(true)
		<-ctx.Done()
	}
	return ctx.Err()
}

// roomForPages returns what finds room for pages of numbers; nil: there is no journal.
func (m *mete) roomForPages() func(authz.PageName) *authz.Page {
	if m.pages == nil {
		return nil
	}
	return func(n authz.PageName) *authz.Page {
		p := m.pages.Page(n.Process, n.Index, n.Began, n.Own)
		if p == nil {
			return nil
		}
		return pageOf(p)
	}
}

// keeps returns what keeps tokens beyond the end of this process; nil: there is no journal.
func (m *mete) keeps() func(token []byte) {
	if m.reserved == nil {
		return nil
	}
	return m.reserved.Keep
}

func pageOf(p *journal.Page) *authz.Page {
	return &authz.Page{
		PageName: authz.PageName{Process: p.Process, Index: p.Index, Began: p.Began, Own: p.Own},
		Taken:    p.Taken, Left: p.Left, Settled: p.Settled, Reported: p.Reported, Free: p.Close,
	}
}

func pagesOf(left []*journal.Page) []*authz.Page {
	all := make([]*authz.Page, 0, len(left))
	for _, p := range left {
		all = append(all, pageOf(p))
	}
	return all
}

// processesBefore returns the processes that have taken the numbers of pages, the latest
// first, as a presence names them.
func processesBefore(left []*journal.Page) []string {
	left = slices.Clone(left)
	slices.SortFunc(left, func(a, b *journal.Page) int { return cmp.Compare(b.Began.UnixNano(), a.Began.UnixNano()) })
	var names []string
	for _, p := range left {
		if name := processName(p.Process); p.Own && !slices.Contains(names, name) && len(names) < maxBefore {
			names = append(names, name)
		}
	}
	return names
}

// processName writes a process as a presence does.
func processName(process uint64) string { return fmt.Sprintf("%016x", process) }
