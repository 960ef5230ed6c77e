package e2e_test

import (
	"net/http"
	"testing"

	"github.com/meteproject/mete/test/rig"
)

// Envoy's rate limit filter tells by a second call how many units a response says were
// used (P64, S39); where it says nothing, what was reserved stays used.
func TestSettlement_P64_A26_RateLimitFilter(t *testing.T) {
	t.Parallel()
	a := newApp(t, newWorld(t, nil, nil), "monthly: {kind: quota, amount: 100000, reset: {calendar: year}, lease: {report_every: 1s}}", "domain: api")
	send := func(more ...string) {
		t.Helper()
		r := a.sendTo(t, a.internal.Listener("internal"), append(more, "X-Verified-Tenant: "+a.tenant)...)
		if r.status != http.StatusOK || len(r.seen) != 1 {
			t.Fatalf("got %d %s, the API saw %d; want 200 and 1", r.status, r.body, len(r.seen))
		}
	}
	uses := func(want int64) {
		t.Helper()
		eventually(t, "the account has what was used", func() bool { return a.account(t).Used() == want })
	}
	send(rig.TestRespond + ": X-Usage-Units: 700")
	uses(700)
	send()
	uses(701)
	send(rig.TestRespond + ": X-Usage-Units: 0")
	send(rig.TestRespond + ": X-Usage-Units: 20")
	uses(721)
}
