package authz_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

// One request that Envoy asks about three times is charged three times: which requests are
// one mete cannot know, for their id is the caller's to choose. The log settles the
// decision that it names; the others stay reserved, and are counted as missing once nobody
// can settle them any more.
func TestSettle_C166_OneRequestCheckedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("100000", ""))+tenantDoc("org:a", "{plan: free}")).seals()
		var last string
		for range 3 {
			req := from("org:a")
			req.Headers = append(req.Headers, authz.Field{Name: "x-request-id", Value: "5f1c"})
			last = k.token(k.must(req, authz.Allowed))
			time.Sleep(20 * time.Millisecond)
		}
		if got := k.end(last, answered(200)); got != authz.SettledAsReserved {
			t.Errorf("the last decision: %q", got.Word())
		}
		if s := k.d.Stats(); s.Sealed != 3 || s.Unsettled != 2 || s.Missing != 0 {
			t.Errorf("%d sealed, %d unsettled, %d missing; want 3, 2 and 0", s.Sealed, s.Unsettled, s.Missing)
		}
		if n := k.used("monthly"); n != 3 {
			t.Errorf("%d used, want 3: one served, and two reserved", n)
		}
		for range 2 { // later requests, all settled; the second time a day has passed
			for range authz.PageNumbers {
				k.end(k.token(k.must(from("org:a"), authz.Allowed)), answered(500))
			}
			time.Sleep(25 * time.Hour)
		}
		if s := k.d.Stats(); s.Unsettled != 0 || s.Missing != 2 {
			t.Errorf("after a day %d are unsettled and %d missing, want 0 and 2", s.Unsettled, s.Missing)
		}
	})
}
