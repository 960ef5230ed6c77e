package authz_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/store/storetest"
)

// A settlement keeps nothing of its token, whose memory is used for the next one before
// the account is reported.
func TestSettle_A26_C134_KeepsNothingOfTheToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		docs := app("defaults: {plan: free}\nunits: {tokens: {title: tokens}}") +
			planDoc("free", "tokens: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: month}}") + routesDoc(settleDocs)
		a := newDeskOn(t, m, "r1", docs, 0).seals()
		b := newDeskOn(t, m, "r2", docs, 0).seals()
		var tokens []string
		names := []string{"org:é", "org:ü", "org:ö"}
		for _, name := range names {
			req := at("/chat")
			req.Headers[0].Value = name
			tokens = append(tokens, a.token(a.must(req, authz.Allowed)))
		}
		var r authz.Reservation
		var measured authz.Measured
		for i, token := range tokens {
			if bad := b.d.Open(token, &r); bad != 0 {
				t.Fatal(bad.Word())
			}
			e := tells(200, "x-usage", fmt.Sprint(i+1))
			b.d.Measure(&r, &e, &measured)
			b.d.Settle(time.Now(), &r, &measured)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for i, name := range names {
			if got := b.accountOf(name, "tokens").Used(); got != int64(i+1) {
				t.Errorf("%s has used %d, want %d", name, got, i+1)
			}
		}
	})
}

// One answer may charge tenants of several trees, by the descriptors of a rate limit
// request. Each pays for itself.
func TestSettle_A26_P66_TreesOfOneAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		docs := app("units: {tokens: {title: tokens}}") +
			planDoc("free", "tokens: {kind: quota, amount: 10000, unit: tokens, reset: {calendar: month}}") +
			tenantDoc("org:a", "{plan: free}") + tenantDoc("org:p", "{plan: free}") + tenantDoc("org:b", "{plan: free, parent: \"org:p\"}") +
			routesDoc(settleDocs)
		a := newDeskOn(t, m, "r1", docs, 0).seals()
		b := newDeskOn(t, m, "r2", docs, 0).seals()
		a.store.watch()
		b.store.watch()
		ask := func(tenant string, hits int64) *authz.Decision {
			req := at("/job")
			req.Headers[0].Value, req.Hits = tenant, hits
			return a.must(req, authz.Allowed)
		}
		token := func() string {
			return string(a.d.Seal(nil, time.Now(), ask("org:a", 1), []authz.Decision{*ask("org:b", 3)}))
		}
		a.end(token(), answered(200)) // as reserved, each its own number
		a.end(token(), answered(500))
		b.end(token(), answered(500)) // not the one that decided
		a.end(token(), tells(200, "x-usage", "7"))
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		for tenant, want := range map[string]int64{"org:a": 107, "org:b": 307, "org:p": 307} {
			if account := a.accountOf(tenant, "tokens"); account.Used() != want || account.Leased() != 0 {
				t.Errorf("%s: %+v, want %d used", tenant, account, want)
			}
		}
		for _, op := range append(a.store.watched(), b.store.watched()...) {
			if want := map[string]string{"org:a": "org:a", "org:b": "org:p", "org:p": "org:p"}[op.Key.Tenant]; op.Key.Root != want {
				t.Errorf("an operation on %+v, whose root is %s", op.Key, want)
			}
		}
	})
}

// What is late for a tenant's former tree, and what is settled here in another's stead,
// disturbs no purse that is in use.
func TestSettle_A26_LateDisturbsNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("units: {tokens: {title: tokens}}")+
			planDoc("free", "tokens: {kind: quota, amount: 100000, unit: tokens, lease: {first: 2000}, reset: {calendar: month}}")+
			tenantDoc("org:p", "{}")+tenantDoc("org:q", "{}")+tenantDoc("org:a", "{plan: free, parent: \"org:p\"}")+routesDoc(settleDocs)).seals()
		token := k.token(k.must(at("/chat"), authz.Allowed))
		k.put(tenantDoc("org:a", "{plan: free, parent: \"org:q\"}"))
		k.ask(at("/chat"))
		time.Sleep(3 * time.Minute)
		k.must(at("/chat"), authz.Allowed)
		synctest.Wait()
		k.store.slow(50 * time.Millisecond)
		k.end(token, tells(200, "x-usage", "7"))
		start := time.Now()
		k.must(at("/chat"), authz.Allowed)
		if waited := time.Since(start); waited > 0 {
			t.Errorf("a request waited %v for a lease that was there", waited)
		}
	})
}

// A bucket takes back only what was taken from it: not after its limit counts another
// unit.
func TestSettle_P65_BucketOfAnotherUnit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		docs := func(unit string) string {
			return planDoc("free", "speed: {kind: rate, amount: 1000, unit: "+unit+", window: 1h}\nday: {kind: quota, amount: 1000, reset: {calendar: day}}")
		}
		k := newDesk(t, app("units: {tokens: {title: tokens}}")+docs("tokens")+tenantDoc("org:a", "{plan: free}")+routesDoc(settleDocs)).seals()
		token := k.token(k.must(at("/chat"), authz.Allowed))
		k.put(docs("requests"))
		left := limit(t, k.must(at("/"), authz.Allowed), "speed").Left
		k.end(token, tells(200, "x-usage", "7"))
		if got := limit(t, k.must(at("/"), authz.Allowed), "speed").Left; got != left-1 {
			t.Errorf("%d calls left after one, of %d", got, left)
		}
	})
}

// Of processes that are gone the least lately heard of is forgotten first.
func TestSettle_C134_HeirsInUseAreRemembered(t *testing.T) {
	t.Parallel()
	d := authz.New(authz.Config{Now: time.Now, Keeper: idleKeeper(), Process: 1})
	now := time.Now()
	for process := range uint64(300) {
		if got := d.SettleNumber(1000, process+1, now); got != 0 {
			t.Fatalf("number %d is %q", process+1, got.Word())
		}
		d.SettleNumber(process+2000, 1, now)
	}
	if got := d.SettleNumber(1000, 1, now); got != authz.SettledBefore {
		t.Errorf("a repeat is %q", got.Word())
	}
}
