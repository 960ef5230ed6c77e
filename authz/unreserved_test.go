package authz_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

// unreservedDesk has routes that reserve nothing of what they measure.
func unreservedDesk(t *testing.T, limit string) *desk {
	t.Helper()
	return newDesk(t, app("units: {tokens: {title: tokens}, pages: {}}\n")+planDoc("free", limit)+tenantDoc("org:a", "{plan: free}")+
		routesDoc(`
- {name: chat, match: {path: /chat}, units: {tokens: {reserve: 0, use: [{response_header: x-usage}]}, pages: {reserve: 0}}}
- {name: job, match: {path: /job}, units: {tokens: {reserve: 0, use: [{report: true}]}}}
- {name: telemetry, match: {path: /telemetry}, check: false, reason: can not be sent again, units: {tokens: {reserve: 0, use: [{response_header: x-usage}]}}}
`)).seals()
}

// A request that reserves nothing is charged what it used, by any source that tells, and is
// refused once nothing is left.
func TestSettle_A37_C153_NothingReserved(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path   string
		settle func(k *desk, dec *authz.Decision, token string)
	}{
		"header": {"/chat", func(k *desk, _ *authz.Decision, token string) { k.end(token, tells(200, "x-usage", "400")) }},
		"report": {"/job", func(k *desk, dec *authz.Decision, token string) {
			if err := k.report(dec, 400); err != nil {
				t.Error(err)
			}
			k.end(token, answered(200))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := unreservedDesk(t, "tokens: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: month}}\npages: {kind: quota, amount: 0, unit: pages, reset: {calendar: month}}")
				events := int64(0)
				k.onUse = func(u *authz.Use) {
					if events += u.Units; u.Units == 0 {
						t.Error("an event of no units")
					}
				}
				for range 3 {
					dec := k.must(at(c.path), authz.Allowed)
					c.settle(k, dec, k.token(dec))
					time.Sleep(time.Second)
				}
				dec := k.must(at(c.path), authz.QuotaExceeded)
				if l := limit(t, dec, "tokens"); !l.Refused || l.Used != 1200 || l.Left != 0 || dec.RetryAfter <= time.Hour {
					t.Errorf("refused: %s, retry after %s", show(dec), dec.RetryAfter)
				}
				if got := k.used("tokens"); got != 1200 || events != 1200 {
					t.Errorf("%d are used, events say %d", got, events)
				}
			})
		})
	}
}

// Of a rate limit it owes what it used, and the next one waits for that.
func TestSettle_A37_C151_NothingReservedOfABucket(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := unreservedDesk(t, "tpm: {kind: rate, unit: tokens, amount: 100, window: 1m}")
		k.end(k.token(k.must(at("/chat"), authz.Allowed)), tells(200, "x-usage", "400"))
		dec := k.must(at("/chat"), authz.RateLimited)
		if got := fmt.Sprint(dec.RetryAfter, " ", limit(t, dec, "tpm").Left); got != "3m0.6s 0" { // 300 owed, and one to go on
			t.Errorf("retry after, left: %s", got)
		}
		time.Sleep(dec.RetryAfter)
		k.must(at("/chat"), authz.Allowed)
	})
}

// What failed is free, and a route that refuses nobody is charged past the end.
func TestSettle_A37_A8_NothingReservedOfWhatIsFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := unreservedDesk(t, "tokens: {kind: quota, amount: 10, unit: tokens, reset: {calendar: month}}")
		if got := k.end(k.token(k.must(at("/chat"), authz.Allowed)), tells(500, "x-usage", "400")); got != authz.SettledFree {
			t.Errorf("settled %q", got.Word())
		}
		for range 3 {
			k.end(k.token(k.ask(at("/telemetry"))), tells(200, "x-usage", "9"))
		}
		k.must(at("/chat"), authz.QuotaExceeded)
		if got := k.used("tokens"); got != 27 {
			t.Errorf("%d are used, want 27", got)
		}
	})
}
