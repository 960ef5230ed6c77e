package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
	"github.com/meteproject/mete/store/journal"
)

// journalOf returns a journal's directory as a process leaves it that is killed with
// use of so many accounts.
func journalOf(t *testing.T, holder string, accounts int) string {
	t.Helper()
	dir := t.TempDir()
	j, _, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range accounts {
		j.Open(quota.Key{Root: "org:a", Tenant: fmt.Sprint(i), Limit: "monthly", Window: "w"}, "api", holder).Used(3, time.Now().UnixNano())
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A stop that has been asked for does not keep the keys of a killed process: who drains
// goes on to work.
func TestRecovery_A47_KeysAreDismissedWhileItDrains(t *testing.T) {
	t.Parallel()
	dir, addr := t.TempDir(), freeAddress(t)
	etcd := func() *embedded.Server {
		s, err := embedded.Start(t.Context(), embedded.Config{Dir: dir, ClientURL: addr, Log: zerolog.Nop()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	s := etcd()
	if _, err := s.Client().Put(t.Context(), store.LiablePrefix+"dead", ""); err != nil {
		t.Fatal(err)
	}
	s.Close()
	cfg, err := load(t, "", nil, anyPort(t.TempDir(), "--etcd-endpoints=http://"+addr, "--journal="+journalOf(t, "dead", 1))...)
	if err != nil {
		t.Fatal(err)
	}
	log := &buffer{}
	logger, level := newLogger(log, zerolog.InfoLevel, time.Now)
	m := newMete(cfg, logger, level)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := m.start(ctx, process{env: env(nil), stderr: log}); err != nil {
		t.Fatal(err)
	}
	cancel() // the signal comes before all is reported
	s = etcd()
	eventually(t, "settled", func() bool { return strings.Contains(log.String(), "had used is settled") })
	if r, err := s.Client().Get(t.Context(), store.LiablePrefix+"dead"); err != nil || len(r.Kvs) != 0 {
		t.Errorf("keys of the dead process: %v, %v; want none", r, err)
	}
	if err := m.parts.stop(); err != nil || strings.Contains(log.String(), "stay until") {
		t.Errorf("%v\n%s", err, log)
	}
}

// What keeps the journal from its work is told: nothing else would be heard of it.
func TestJournal_ItsTroubleIsTold(t *testing.T) {
	t.Parallel()
	dir := journalOf(t, "dead", 2)
	j, left, err := journal.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	for j.Stats().WithoutRoom == 0 {
		j.Open(quota.Key{Tenant: "t"}, "api", "h")
	}
	synctest.Test(t, func(t *testing.T) {
		log := &buffer{}
		m := &mete{log: zerolog.New(log), journal: j, recovery: quota.NewRecovery(quota.RecoveryConfig{Store: failing{}, Now: time.Now}, left.Orphans)}
		ctx, cancel := context.WithTimeout(t.Context(), 3*troubleLook)
		defer cancel()
		go func() { _ = m.tellTrouble(ctx) }()
		_ = m.recovery.Run(ctx)
		synctest.Wait()
		for _, want := range []string{`"accounts":2`, "what killed processes had used is not reported yet", "the journal has no room"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("%q is not told:\n%s", want, log)
			}
		}
	})
}
