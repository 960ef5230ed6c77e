package store_test

import (
	"slices"
	"testing"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// C153: what one replica has seen of a rule all others know, also after a restart.
func TestSettledLater_C153_AllReplicasKnow(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	r := startDocuments(t, c, zerolog.Nop())
	const path = "edge/a / org=a b / route"
	for range 2 {
		if err := store.PutSettledLater(t.Context(), c, path); err != nil {
			t.Fatal(err)
		}
	}
	knows := func(s *plan.Snapshot) bool { return s.SettledLater(path) }
	r.until("the rule is known", knows)
	startDocuments(t, c, zerolog.Nop()).until("the rule is known after a restart", knows)
	paths, err := store.SettledLater(t.Context(), c)
	if err != nil || !slices.Equal(paths, []string{path}) {
		t.Errorf("%q, %v", paths, err)
	}
	if r.Snapshot().SettledLater("edge/a / org=b") {
		t.Error("another rule is known, too")
	}
}
