package store_test

import (
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// treeTexts are an organisation of 100 a month and a user below it.
func treeTexts(cascade string) map[string]string {
	return map[string]string{
		store.DocumentKey(plan.KindApp, "shop"):        appText("shop", "UTC"),
		store.DocumentKey(plan.KindPlan, "org"):        "apiVersion: mete/v1\nkind: Plan\nmetadata: {name: org}\nspec:\n  limits:\n    monthly: {kind: quota, amount: 100, reset: {calendar: month}" + cascade + "}\n",
		store.DocumentKey(plan.KindTenant, "org:acme"): tenantText("org:acme", "org", ""),
		store.DocumentKey(plan.KindTenant, "user:ada"): "apiVersion: mete/v1\nkind: Tenant\nmetadata: {name: \"user:ada\"}\nspec: {parent: \"org:acme\"}\n",
	}
}

// charges reports whether what user:ada uses is charged to the organisation.
func charges(s *plan.Snapshot) bool {
	return len(s.Terms(time.Unix(0, 0), "shop", "user:ada").Nodes) == 2
}

// Q11, S24: a new store needs the level of its first replica, so limits cascade there;
// in one that older versions made they do once the store needs level 5, at every
// replica at the same moment.
func TestEpoch_Q11_S24_CascadeByTheStoresLevel(t *testing.T) {
	t.Parallel()
	t.Run("new", func(t *testing.T) {
		t.Parallel()
		c := ownServer(t).Client()
		for key, text := range treeTexts("") {
			put(t, c, key, text)
		}
		r := startDocuments(t, c, zerolog.Nop())
		r.until("the organisation is charged", charges)
		if level, _ := minimum(t, c); level != plan.FeatureLevel {
			t.Errorf("minimum %d", level)
		}
	})
	t.Run("old", func(t *testing.T) {
		t.Parallel()
		c := oldStore(t)
		for key, text := range treeTexts("") {
			put(t, c, key, text)
		}
		a, b := startDocuments(t, c, zerolog.Nop()), startDocuments(t, c, zerolog.Nop())
		known := func(s *plan.Snapshot) bool {
			return s.Tenant("user:ada") != nil && s.Plan("org") != nil && s.App("shop") != nil
		}
		a.until("all documents", known)
		b.until("all documents", known)
		if charges(a.Snapshot()) || charges(b.Snapshot()) {
			t.Error("charged in a store that older replicas may share")
		}
		put(t, c, store.MinimumKey, `{"feature_level": 5}`)
		a.until("the organisation is charged", charges)
		b.until("the organisation is charged", charges)
		catalog, _, err := store.LoadCatalog(t.Context(), c)
		if err != nil || !charges(catalog.Snapshot()) {
			t.Errorf("metectl sees it otherwise: %v", err)
		}
	})
	t.Run("new beside an old replica", func(t *testing.T) {
		t.Parallel()
		c := oldStore(t)
		del(t, c, store.EpochKey)
		putReplica(t, c, "old", `{"version": "1.9.0", "feature_level": 4}`)
		if _, err := store.EnsureEpoch(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if level, _ := minimum(t, c); level != 0 {
			t.Errorf("minimum %d though a live replica has 4", level)
		}
	})
}
