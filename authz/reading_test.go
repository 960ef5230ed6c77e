package authz_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

// An allowed reading is good for as many requests as it had headroom for, and for a
// minute: that is a lease. The store is asked once for all of them.
func TestDecide_C18_AReadingIsGoodForItsHeadroom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("1000", ", lease: {renew_at_used: 100%}"))+tenantDoc("org:a", "{plan: free}"))
		k.must(from("org:a"), authz.Allowed)
		asked := k.store.count()
		for range 8 {
			k.must(from("org:a"), authz.Allowed)
		}
		if got := k.store.count(); asked != 1 || got != asked {
			t.Errorf("9 requests on a lease of 10 have asked the store %d times, want once", got)
		}
		for range 30 {
			k.must(from("org:a"), authz.Allowed)
		}
		if got := k.store.count(); got == asked {
			t.Error("39 requests on a lease of 10 have not asked again")
		}
		k.store.slow(time.Hour) // out of reach
		time.Sleep(61 * time.Second)
		k.must(from("org:a"), authz.UnavailableAllowed)
	})
}

// A denied reading is kept, at most a minute, and an upgrade is honoured at once.
func TestDecide_C19_ADeniedReadingDoesNotOutliveAnUpgrade(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("2", ""))+tenantDoc("org:a", "{plan: free}"))
		for range 2 {
			k.must(from("org:a"), authz.Allowed)
		}
		k.must(from("org:a"), authz.QuotaExceeded)
		asked := k.store.count()
		for range 9 {
			time.Sleep(time.Second)
			k.must(from("org:a"), authz.QuotaExceeded)
		}
		if got := k.store.count(); got != asked {
			t.Errorf("refused for 9 s, the store was asked %d times more", got-asked)
		}
		k.put(planDoc("free", monthly("3", "")))
		k.must(from("org:a"), authz.Allowed)
		k.must(from("org:a"), authz.QuotaExceeded)
		asked = k.store.count()
		time.Sleep(time.Minute)
		k.must(from("org:a"), authz.QuotaExceeded)
		if got := k.store.count(); got == asked {
			t.Error("a minute after a refusal the store was not asked again")
		}
	})
}

// Of a request that reached into the grace band, what it did not use comes back from
// there: the last units go first.
func TestSettle_C095_C4_TheGraceBandComesBackFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("units: {tokens: {title: tokens}}")+
			planDoc("free", "tokens: {kind: quota, amount: 100, unit: tokens, when_used_up: {grace: 10%}, reset: {calendar: month}}")+
			tenantDoc("org:a", "{plan: free}")+routesDoc(`
- {name: most, match: {path: /most}, units: {tokens: {reserve: 98}}}
- {name: chat, match: {path: /chat}, units: {tokens: {reserve: 8, use: [{response_header: x-usage}]}}}
- {name: one, match: {path: /one}, units: {tokens: {reserve: 1}}}`)).seals()
		k.must(at("/most"), authz.Allowed)
		dec := k.must(at("/chat"), authz.Grace)
		if l := limit(t, dec, "tokens"); l.Used != 106 || l.Left != 0 || l.GraceLeft != 4 {
			t.Errorf("reserved: used %d, left %d, in grace %d, want 106, 0 and 4", l.Used, l.Left, l.GraceLeft)
		}
		k.end(k.token(dec), tells(200, "x-usage", "5"))
		dec = k.must(at("/one"), authz.Grace)
		if l := limit(t, dec, "tokens"); l.Used != 104 || l.Left != 0 || l.GraceLeft != 6 {
			t.Errorf("settled and one more: used %d, left %d, in grace %d, want 104, 0 and 6", l.Used, l.Left, l.GraceLeft)
		}
		if got := k.used("tokens"); got != 104 {
			t.Errorf("%d are used, want 104", got)
		}
	})
}
