package store_test

import (
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store"
)

// A watch that loses events is found out when everything is read again: what it did not
// tell of is logged and counted, and what was changed since its last word is not.
func TestDocuments_C180_UntoldChanges(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	var log strings.Builder
	d := store.NewDocuments(store.ClusterOf(c))
	d.Log = zerolog.New(&log)
	put(t, c, store.DocumentKey(plan.KindApp, "shop"), appText("shop", "UTC"))
	put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 100))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:a"), tenantText("org:a", "free", ""))
	put(t, c, store.DocumentKey(plan.KindTenant, "org:b"), tenantText("org:b", "free", ""))
	read := func(told int64, wantUntold int64) {
		t.Helper()
		if err := d.Reread(t.Context(), told); err != nil {
			t.Fatal(err)
		}
		if got := d.Stats().Untold; got != wantUntold {
			t.Errorf("%d changes were not told of, want %d: %s", got, wantUntold, log.String())
		}
	}
	read(0, 0)
	told := put(t, c, store.DocumentKey(plan.KindTenant, "org:c"), tenantText("org:c", "free", ""))
	read(told-1, 0) // it came after the watch's last word
	del(t, c, store.DocumentKey(plan.KindTenant, "org:a"))
	told = put(t, c, store.DocumentKey(plan.KindPlan, "free"), planText("free", 200))
	del(t, c, store.DocumentKey(plan.KindTenant, "org:b"))
	read(told, 2)
	if s := d.Snapshot(); s.Tenant("org:a") != nil || s.Tenant("org:b") != nil || amount(s, "free") != 200 {
		t.Errorf("not in force: %+v", s)
	}
	for _, want := range []string{"did not tell of changes", `"keys":2`, store.DocumentKey(plan.KindPlan, "free")} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in the log %s", want, log.String())
		}
	}
	read(told, 2)
}
