package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/journal"
)

// dismissFor bounds how long the keys of dead incarnations are tried to be deleted;
// they run out by themselves.
const dismissFor = 5 * time.Second

// openJournal takes the journal's directory, with what killed processes left in it.
func (m *mete) openJournal(ctx context.Context, _ process) (err error) {
	dir := m.cfg.Journal
	switch dir {
	case journalOff:
		return nil
	case "":
		dir = filepath.Join(m.cfg.DataDir, "journal")
	}
	var left journal.Left
	if m.journal, left, err = journal.Open(dir); err != nil {
		return fmt.Errorf("open the journal: %w", err)
	}
	m.orphans = left.Orphans
	for _, problem := range left.Problems {
		m.log.Error().Err(problem).Msg("a file of the journal cannot be read, or not whole")
	}
	if left.Damaged > 0 {
		m.log.Warn().Int("entries", left.Damaged).Msg("damaged entries of the journal are passed over")
	}
	m.parts.atStop(ctx, "journal", m.journal.Close)
	if err := m.openPages(ctx); err != nil {
		return err
	}
	m.tellRoom()
	return nil
}

// remembers returns the journal for a keeper; nil if there is none.
func (m *mete) remembers() quota.Journal {
	if m.journal == nil {
		return nil
	}
	return m.journal
}

// recover reports what killed processes had not.
func (m *mete) recover(ctx context.Context) error {
	orphans := m.recovery.Stats().Left
	if n := orphans; n > 0 {
		m.log.Info().Int("accounts", n).Msg("reporting what a killed process had used")
	}
	if m.journal == nil {
		<-ctx.Done()
		return nil
	}
	if err := m.recovery.Run(ctx); err != nil {
		m.log.Warn().Err(err).Msg("stopped before all was reported")
		return nil
	}
	m.recovered(ctx)
	if orphans > 0 {
		s := m.recovery.Stats()
		m.log.Info().Int64("reported", s.Reported).Int64("lost", s.Lost).Int64("dropped", s.Dropped).
			Msg("what a killed process had used is settled")
	}
	<-ctx.Done()
	return nil
}

// recovered lets the journal forget, then the others: in the other order a kill in
// between would make what is reported look lost.
func (m *mete) recovered(ctx context.Context) {
	if err := m.journal.Settled(); err != nil {
		m.log.Warn().Err(err).Msg("files of the journal that are settled could not be removed")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, dismissFor)
	defer cancel()
	if err := store.Dismiss(ctx, m.etcd, m.settled...); err != nil {
		m.log.Warn().Err(err).Msg("keys of a killed process stay until they run out")
	}
}

// troubleLook is how often it is looked whether something keeps the journal from its
// work.
const troubleLook = time.Minute

// tellTrouble tells what keeps the journal from its work: nothing else would be heard
// of it.
func (m *mete) tellTrouble(ctx context.Context) error {
	for pause(ctx, troubleLook) {
		if s := m.recovery.Stats(); s.Left > 0 && s.Err != nil {
			m.log.Warn().Err(s.Err).Int("accounts", s.Left).Int64("failed", s.Failed).
				Msg("what killed processes had used is not reported yet; trying again")
		}
		m.tellRoom()
	}
	return ctx.Err()
}

func (m *mete) tellRoom() {
	if s := m.journal.Stats(); s.Err != nil {
		m.log.Warn().Err(s.Err).Int64("purses", s.WithoutRoom).
			Msg("the journal has no room: what purses without it have used is lost if this process is killed")
	}
	if m.pages == nil {
		return
	}
	if s := m.pages.Stats(); s.Err != nil {
		m.log.Warn().Err(s.Err).Int64("times", s.WithoutRoom).
			Msg("the journal has no room for what is settled: after a restart a log entry that comes again may be settled again")
	}
}
