package authz_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/storetest"
)

// lenient is a quota that lets on while etcd is away.
func lenient(amount string) string {
	return "hourly: {kind: quota, amount: " + amount + ", reset: {calendar: hour}, on_unavailable: allow}"
}

// flood asks for n made-up tenants a second, one request each, and goes on behind the
// caller's back until the returned stop.
func (k *desk) flood(kind string, perSecond int) (stop func()) {
	var running sync.WaitGroup
	var over atomic.Bool
	running.Go(func() {
		for i := 0; !over.Load(); i++ {
			running.Go(func() { k.ask(from(fmt.Sprint("made-up:", kind, i))) })
			time.Sleep(time.Second / time.Duration(perSecond))
		}
	})
	return func() { over.Store(true); running.Wait() }
}

// A flood of made-up names opens no quota: a tenant with a document gets its leases before
// them, and what waits in this process's own queue opens no breaker.
func TestDecide_C26_A61_AFloodOfNamesOpensNoQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := app("defaults: {plan: free}") + planDoc("free", lenient("100")) + planDoc("small", lenient("5"))
		for i := range 30 {
			docs += tenantDoc(fmt.Sprint("org:paying", i), "{plan: small}")
		}
		k := newDesk(t, docs)
		k.must(from("made-up:early"), authz.Allowed)
		time.Sleep(time.Minute)
		k.store.slow(250 * time.Millisecond)
		stop := k.flood("x", 4000)
		time.Sleep(1100 * time.Millisecond) // thousands wait for their first lease
		var admitted, early atomic.Int64
		var callers sync.WaitGroup
		for i := range 30 {
			callers.Go(func() {
				for range 20 {
					switch out := k.ask(from(fmt.Sprint("org:paying", i))).Outcome; {
					case out == authz.UnavailableAllowed:
						t.Error("a tenant with a document waited in vain: new names take up all that is under way")
					case out.Admits():
						admitted.Add(1)
					}
				}
			})
		}
		callers.Go(func() {
			for range 150 {
				if k.ask(from("made-up:early")).Outcome.Admits() {
					early.Add(1)
				}
			}
		})
		callers.Wait()
		if k.keeper.Away(k.keeper.Instant(time.Now())) {
			t.Error("the store counts as failing")
		}
		stop()
		if n := admitted.Load(); n != 150 {
			t.Errorf("%d of 600 requests of 30 tenants with 5 each admitted, want 150", n)
		}
		if n := early.Load(); n > 99 {
			t.Errorf("%d requests admitted of a name that was in use before the flood, want the 99 that were left", n)
		}
		if s := k.keeper.Stats(); s.LetOnUnits != 0 || s.QueuedUnits == 0 {
			t.Errorf("%d units let on as if etcd were away and %d from the queue, want 0 and some", s.LetOnUnits, s.QueuedUnits)
		}
	})
}

// New accounts of made-up names are bounded by the minute; those past it share slots, and
// an account that was there before does not count.
func TestDecide_C26_NewAccountsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := app("defaults: {plan: free}") + planDoc("free", lenient("100")) + tenantDoc("org:a", "{plan: free}")
		m := &storetest.Memory{}
		old := newDeskOn(t, m, "r0", docs, 0)
		for i := range 300 {
			old.must(from(fmt.Sprint("known:", i)), authz.Allowed)
		}
		k := newDeskRationed(t, m, "r1", docs, 100)
		for i := range 300 {
			k.must(from(fmt.Sprint("known:", i)), authz.Allowed)
		}
		if s := k.d.Stats(); s.Shared != 0 || s.Tenants != 300 {
			t.Fatalf("%d requests of names whose accounts were there before shared a slot", s.Shared)
		}
		for i := range 1000 {
			k.ask(from(fmt.Sprint("made-up:", i)))
		}
		k.must(from("org:a"), authz.Allowed)
		if s, n := k.d.Stats(), len(m.Accounts()); s.Shared != 900 || n != 401 || k.keeper.Stats().Rationed != 900 {
			t.Errorf("%d requests shared a slot and %d accounts, want 900 and the 300 before, 100 new ones and that of the tenant with a document", s.Shared, n)
		}
		time.Sleep(time.Minute)
		k.ask(from("made-up:1001"))
		if n := len(m.Accounts()); n != 402 {
			t.Errorf("%d accounts, want one more in the next minute", n)
		}
	})
}

// What a flood leaves behind is gone a minute later; what is of worth stays.
func TestDecide_R31_C041_AMinuteAfterAFlood(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("defaults: {plan: free}")+planDoc("free", lenient("100")+"\nper_hour: {kind: rate, amount: 120, window: 1h}")+
			planDoc("tight", "per_hour: {kind: rate, amount: 1, window: 1h}")+tenantDoc("org:a", "{plan: tight}")+
			"\n---\n"+edge("", limited("ip", "hour", 10)))
		k.must(from("org:a"), authz.Allowed)
		for i := range 3000 {
			k.ask(from(fmt.Sprint("made-up:", i)))
			k.count(fmt.Sprint("ip=", i))
		}
		k.must(from("steady"), authz.Allowed)
		for range 12 {
			time.Sleep(5 * time.Second)
			k.d.Tidy(time.Now())
		}
		k.must(from("steady"), authz.Allowed)
		if s, purses := k.d.Stats(), k.keeper.Stats().Purses; s.Tenants > 2 || s.Counters != 0 || purses > 1 {
			t.Errorf("%d tenants, %d counters and %d purses are kept, want the one with a drained bucket and the one that asks again", s.Tenants, s.Counters, purses)
		}
		k.must(from("org:a"), authz.RateLimited)
	})
}

// A tenant with a document gets room in a full table, and new names without one go for it.
func TestDecide_R31_DocumentsDisplaceNewNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := app("defaults: {plan: free}") + planDoc("free", "per_hour: {kind: rate, amount: 1, window: 1h}")
		for i := range 1000 {
			docs += tenantDoc(fmt.Sprint("org:d", i), "{plan: free}")
		}
		k := newDeskOn(t, &storetest.Memory{}, "r1", docs, 1000)
		for i := range 500 {
			k.must(from(fmt.Sprint("early:", i)), authz.Allowed)
		}
		time.Sleep(2 * time.Minute)
		for i := range 500 {
			k.must(from(fmt.Sprint("new:", i)), authz.Allowed)
		}
		time.Sleep(5 * time.Second)
		for i := range 1000 {
			k.must(from(fmt.Sprint("org:d", i)), authz.Allowed)
		}
		for i := range 500 { // none of them is displaced
			k.must(from(fmt.Sprint("early:", i)), authz.RateLimited)
		}
		for i := range 1000 {
			k.must(from(fmt.Sprint("org:d", i)), authz.RateLimited)
		}
		if s := k.d.Stats(); s.Tenants > 1520 {
			t.Errorf("%d tenants kept, want the 500 that were in use earlier and the 1,000 with a document", s.Tenants)
		}
	})
}
