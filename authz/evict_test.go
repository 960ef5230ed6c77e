package authz_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/storetest"
)

// crowd lets n tenants ask that nobody has heard of before.
func (k *desk) crowd(round string, n int) {
	for i := range n {
		k.ask(from(fmt.Sprint("org:", round, i)))
	}
}

// A node whose closed purse is not settled yet stays: a second node would open that
// purse again, and guard it by another lock than the keeper does.
func TestDecide_R31_ANodeOutlivesItsClosedPurses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDeskOn(t, &storetest.Memory{}, "r1", app("defaults: {plan: none}")+
			planDoc("none", "per_second: {kind: rate, amount: 5, window: 1s}")+
			planDoc("free", monthly("100", ""))+tenantDoc("org:a", "{plan: free}"), 1)
		k.must(from("org:a"), authz.Allowed)
		k.store.slow(time.Hour) // etcd is away
		k.put(planDoc("free", "per_second: {kind: rate, amount: 5, window: 1s}"))
		k.must(from("org:a"), authz.Allowed) // the purse is closed
		time.Sleep(10 * time.Second)
		k.crowd("v", 5000)
		if k.keeper.Stats().Purses != 1 {
			t.Fatalf("%d purses open, want the one that cannot be settled", k.keeper.Stats().Purses)
		}
		if !k.d.Keeps("org:a") {
			t.Error("the node was dropped while the keeper has a purse under its lock")
		}
		k.store.slow(0)
		time.Sleep(time.Minute)
		k.crowd("w", 5000)
		if k.d.Keeps("org:a") {
			t.Error("the node is kept though its purse is settled")
		}
	})
}

// An answer that is refused after the window of the request is over tells to come
// again at once, not never.
func TestDecide_A4_A17_ARefusalOfTheLastWindowCanBeRetried(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", "hourly: {kind: quota, amount: 1, reset: {calendar: hour}}")+tenantDoc("org:a", "{plan: free}"))
		began := time.Now().Truncate(time.Hour).Add(time.Hour - 90*time.Second)
		time.Sleep(time.Until(began))
		k.must(from("org:a"), authz.Allowed)
		time.Sleep(100 * time.Second)
		late := from("org:a")
		late.Start = began
		dec := k.must(late, authz.QuotaExceeded)
		if dec.RetryAfter <= 0 || dec.RetryAfter > time.Second {
			t.Errorf("retry after %v, want a second at most and more than nothing: %s", dec.RetryAfter, show(dec))
		}
		k.must(from("org:a"), authz.Allowed)
	})
}

// A table that has outgrown its bound, with the drained buckets of tenants that have
// documents, shrinks once they are full.
func TestDecide_R31_R32_AnOutgrownTableShrinks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := &strings.Builder{}
		for i := range 2000 {
			docs.WriteString(tenantDoc(fmt.Sprint("org:spike", i), "{plan: free}"))
		}
		k := newDeskOn(t, &storetest.Memory{}, "r1", app("defaults: {plan: free}")+
			planDoc("free", "per_hour: {kind: rate, amount: 60, window: 1h}")+docs.String(), 100)
		k.crowd("spike", 2000)
		if s := k.d.Stats(); s.Tenants != 2000 || s.Shared != 0 {
			t.Fatalf("%d tenants kept, want all 2,000: they have documents", s.Tenants)
		}
		time.Sleep(2 * time.Minute)
		for i := range 2000 {
			k.crowd(fmt.Sprint("later", i), 1)
			time.Sleep(time.Second)
		}
		if s := k.d.Stats(); s.Tenants > 100 {
			t.Errorf("%d tenants kept, want the 100 allowed", s.Tenants)
		}
	})
}
