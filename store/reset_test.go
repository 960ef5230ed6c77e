package store_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/embedded"
)

// A backup that is younger than the last edit is a reset all the same: the store has told
// of later revisions, of accounts.
func TestDocuments_ABackupYoungerThanTheLastEditIsAReset(t *testing.T) {
	t.Parallel()
	cfg := embedded.Config{Dir: filepath.Join(t.TempDir(), "now"), ClientURL: "127.0.0.1:0"}
	s, err := embedded.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	cfg.ClientURL = s.Endpoint()
	c, err := store.NewCluster(store.Config{Endpoints: []string{cfg.ClientURL}, Log: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	put(t, s.Client(), store.DocumentKey(plan.KindPlan, "pro"), planText("pro", 1))
	r := startDocumentsOf(t, c, zerolog.Nop())
	r.until("what is published", hasAmount("pro", 1))
	r.stop()
	s.Close()
	backup := filepath.Join(t.TempDir(), "backup")
	if err := os.CopyFS(backup, os.DirFS(cfg.Dir)); err != nil {
		t.Fatal(err)
	}
	if s, err = embedded.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	r = startDocumentsOf(t, c, zerolog.Nop())
	r.until("what is stored", hasAmount("pro", 1))
	for range 20 {
		put(t, s.Client(), store.AccountsPrefix+"00/acme/monthly/2026", "")
	}
	told := time.Now().Add(10 * r.Progress)
	eventually(t, "told of the accounts", func() bool { return r.Stats().Contact.After(told) })
	if r.resetCount() != 0 {
		t.Errorf("%d resets before it was restored", r.resetCount())
	}
	s.Close()
	cfg.Dir = backup
	if s, err = embedded.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	eventually(t, "a reset", func() bool { return r.resetCount() > 0 })
}
