package authz_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

// reportingDesk is a desk of an app whose routes take reports, with sealing keys.
func reportingDesk(t *testing.T) *desk {
	t.Helper()
	return newDesk(t, app("units: {tokens: {}}\ndefaults: {plan: free}")+
		planDoc("free", "tokens: {kind: quota, unit: tokens, amount: 900000000000, reset: {calendar: day}}")+routesDoc(`
- {name: work, match: {path: /}, units: {tokens: {reserve: 10, use: [{report: true}]}}}
`)).seals()
}

// admit decides a request and makes its token.
func (k *desk) admit(tenant string) authz.ID {
	k.t.Helper()
	dec := k.must(from(tenant), authz.Allowed)
	k.token(dec)
	return dec.ID
}

// One tenant's requests do not push out the open reports of the others, however many
// they are, and what it pushes out of its own is counted.
func TestReport_P64_OneTenantPushesOutItsOwnReportsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := reportingDesk(t)
		var others []authz.ID
		for i := range 20 {
			others = append(others, k.admit(fmt.Sprint("org:quiet", i)))
		}
		first := k.admit("org:loud")
		for range 110_000 {
			k.admit("org:loud")
		}
		for i, id := range others {
			if _, err := k.d.Report(context.Background(), time.Now(), id, map[string]int64{"tokens": 3}); err != nil {
				t.Fatalf("report on the request of quiet tenant %d: %v", i, err)
			}
		}
		if _, err := k.d.Report(context.Background(), time.Now(), first, map[string]int64{"tokens": 3}); err == nil {
			t.Error("the oldest reservation of the tenant with the most is still open")
		}
		if s := k.d.Stats(); s.Reportable != 100_000 || s.PushedOut != 110_001+20-100_000 {
			t.Errorf("%d open and %d pushed out, want 100,000 and %d", s.Reportable, s.PushedOut, 110_001+20-100_000)
		}
	})
}

// What the app has reported is not counted when it is forgotten, nor is what was given
// back: nothing is lost with it.
func TestReport_P64_OnlyWhatIsNotReportedIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := reportingDesk(t)
		reported := k.admit("org:a")
		if _, err := k.d.Report(context.Background(), time.Now(), reported, map[string]int64{"tokens": 3}); err != nil {
			t.Fatal(err)
		}
		gone := k.must(from("org:a"), authz.Allowed)
		k.d.Seal(nil, time.Now(), gone, nil)
		k.d.GiveBack(time.Now(), gone)
		k.admit("org:a") // nobody reports
		if s := k.d.Stats(); s.Reportable != 2 {
			t.Fatalf("%d open, want the two that were not given back", s.Reportable)
		}
		time.Sleep(25 * time.Hour)
		k.admit("org:a")
		if s := k.d.Stats(); s.Reportable != 1 || s.PushedOut != 0 || s.Expired != 1 {
			t.Errorf("%d open, %d pushed out, %d expired, want 1, 0 and 1", s.Reportable, s.PushedOut, s.Expired)
		}
	})
}
