package authz_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// books keeps what events say of each limit of org:a.
func (k *desk) books() map[string]int64 {
	all := map[string]int64{}
	k.onUse = func(u *authz.Use) { all[u.Limit] += u.Units }
	return all
}

func (k *desk) extend(dec *authz.Decision, n int64) (map[string]int64, error) {
	return k.d.Extend(context.Background(), time.Now(), dec.ID, map[string]int64{"tokens": n})
}

func (k *desk) report(dec *authz.Decision, n int64) error {
	_, err := k.d.Report(context.Background(), time.Now(), dec.ID, map[string]int64{"tokens": n})
	return err
}

// mustUse checks what the accounts and the events say in the end.
func (k *desk) mustUse(books map[string]int64, requests, tokens int64) {
	k.t.Helper()
	for name, want := range map[string]int64{"monthly": requests, "tokens": tokens} {
		if got := k.used(name); got != want || books != nil && books[name] != want {
			k.t.Errorf("%s: %d are used, events say %d, want %d", name, got, books[name], want)
		}
	}
	if left := k.accountOf("org:a", "tokens").Leased(); left != 0 {
		k.t.Errorf("%d tokens are leased after all is over", left)
	}
}

// What is reserved later is an event like what was reserved first: the sum of all is what
// the account says, in every order of words from the app and the log.
func TestExtend_A25_Q49_P64_EveryOrderAddsUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		play             func(k *desk, dec *authz.Decision, token string)
		requests, tokens int64
	}{
		"never told":   {func(k *desk, _ *authz.Decision, token string) { k.end(token, answered(200)) }, 1, 500},
		"reported":     {func(k *desk, dec *authz.Decision, _ string) { k.check(k.report(dec, 450)) }, 1, 450},
		"header":       {func(k *desk, _ *authz.Decision, token string) { k.end(token, tells(200, "x-usage", "7")) }, 1, 7},
		"failed":       {func(k *desk, _ *authz.Decision, token string) { k.end(token, answered(500)) }, 0, 0},
		"more, header": {func(k *desk, _ *authz.Decision, token string) { k.end(token, tells(200, "x-usage", "700")) }, 1, 700},
		"failed, then reported": {func(k *desk, dec *authz.Decision, token string) {
			k.end(token, answered(500))
			k.check(k.report(dec, 3))
		}, 0, 3},
		"ended, then extended and reported": {func(k *desk, dec *authz.Decision, token string) {
			k.end(token, answered(202))
			_, err := k.extend(dec, 100)
			k.check(err)
			k.check(k.report(dec, 590))
		}, 1, 590},
		"told, then extended": {func(k *desk, dec *authz.Decision, token string) {
			k.end(token, tells(200, "x-usage", "7"))
			if _, err := k.extend(dec, 100); !errors.Is(err, authz.ErrReported) {
				k.t.Errorf("extended after the number was told: %v", err)
			}
		}, 1, 7},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := settleDesk(t, "")
				books := k.books()
				dec := k.must(at("/job"), authz.Allowed)
				token := k.token(dec)
				if got, err := k.extend(dec, 400); err != nil || got["tokens"] != 500 {
					t.Fatalf("extended to %v, %v, want 500", got, err)
				}
				c.play(k, dec, token)
				k.mustUse(books, c.requests, c.tokens)
			})
		})
	}
}

func (k *desk) check(err error) {
	k.t.Helper()
	if err != nil {
		k.t.Error(err)
	}
}

// A number that is told while more is being reserved is right, and what was reserved
// for nothing goes back.
func TestExtend_A25_A40_Q49_ToldMeanwhile(t *testing.T) {
	t.Parallel()
	for name, tell := range map[string]func(k *desk, dec *authz.Decision, token string){
		"by a report":  func(k *desk, dec *authz.Decision, _ string) { k.check(k.report(dec, 7)) },
		"by a header":  func(k *desk, _ *authz.Decision, token string) { k.end(token, tells(200, "x-usage", "7")) },
		"by giving up": func(k *desk, dec *authz.Decision, _ string) { k.d.GiveBack(time.Now(), dec) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := settleDesk(t, "")
				books := k.books()
				dec := k.must(at("/job"), authz.Allowed)
				token := k.token(dec)
				synctest.Wait()
				k.store.slow(100 * time.Millisecond)
				done := make(chan error)
				go func() {
					_, err := k.extend(dec, 5000)
					done <- err
				}()
				time.Sleep(50 * time.Millisecond) // it waits for a lease
				tell(k, dec, token)
				if err := <-done; err == nil {
					t.Error("extended after all was told")
				}
				if name == "by giving up" {
					k.mustUse(books, 0, 0)
					return
				}
				k.mustUse(books, 1, 7)
			})
		})
	}
}

// More is reserved only of what the request is charged at all, and of a route that is
// never refused as of its first units.
func TestExtend_A25_C2_C11_AsTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: UTC
  units: {ai: {}, tokens: {}}
  identity:
    tenant: [{request_header: x-tenant}]
    classes:
      - {name: delegated, when: {jwt_claim_present: act}, meter: false, check: false, reason: was counted before, still_spends: [ai]}
`+planDoc("free", "ai: {kind: quota, amount: 10, unit: ai, reset: {calendar: month}}\ntokens: {kind: quota, amount: 300, unit: tokens, reset: {calendar: month}}")+
			tenantDoc("org:a", "{plan: free}")+routesDoc(`
- {name: ask, match: {path: /ask}, units: {ai: {reserve: 1}, tokens: {reserve: 100, use: [{report: true}]}}}
- {name: telemetry, match: {path: /telemetry}, check: false, reason: can not be sent again, units: {tokens: {reserve: 100, use: [{report: true}]}}}
`)).seals()
		req := at("/ask")
		req.Metadata = claims{jwt + "act": "yes"}
		dec := k.must(req, authz.Allowed)
		k.token(dec)
		if _, err := k.extend(dec, 50); err != nil {
			t.Error(err)
		}
		if got := k.accountOf("org:a", "tokens").Used(); got != 0 {
			t.Errorf("%d tokens are charged to a request that does not spend any", got)
		}
		dec = k.must(at("/telemetry"), authz.Allowed)
		k.token(dec)
		if _, err := k.extend(dec, 900); err != nil {
			t.Errorf("a route that is never refused: %v", err)
		}
		if got := k.used("tokens"); got != 1000 {
			t.Errorf("%d tokens are used, want 1000", got)
		}
	})
}

// No sum of extensions passes what a request can be charged, and terms that cannot be
// known are no terms without limits.
func TestExtend_A25_A56_C004_Bounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := tokensDesk(t, "tokens: {kind: quota, amount: unlimited, unit: tokens, reset: {calendar: month}}")
		dec := k.must(at("/job"), authz.Allowed)
		k.token(dec)
		if _, err := k.extend(dec, quota.MaxUnits-100); err != nil {
			t.Error(err)
		}
		if _, err := k.extend(dec, 1); !errors.Is(err, authz.ErrUnits) {
			t.Errorf("one past the largest amount: %v", err)
		}
		k.remove(plan.KindPlan, "free")
		other := settleDesk(t, "")
		dec = other.must(at("/job"), authz.Allowed)
		other.token(dec)
		other.remove(plan.KindPlan, "free")
		if got, err := other.extend(dec, 10); !errors.Is(err, authz.ErrUnavailable) {
			t.Errorf("without a plan: %v, %v", got, err)
		}
	})
}

// What the app reported stands when the reservation is forgotten, whatever the log says
// of it later; so does what it reported before the answer was given up.
func TestReport_A26_A40_P64_StandsWhenForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := settleDesk(t, "")
		books := k.books()
		old := k.must(at("/job"), authz.Allowed)
		token := k.token(old)
		k.check(k.report(old, 42))
		time.Sleep(25 * time.Hour)
		heard := k.must(at("/job"), authz.Allowed)
		k.token(heard) // and what is older than a day is forgotten
		if got := k.end(token, answered(500)); got != authz.SettledBefore {
			t.Errorf("settled %q", got.Word())
		}
		k.check(k.report(heard, 8))
		k.d.GiveBack(time.Now(), heard)
		k.mustUse(books, 2, 50)
	})
}

// Another source of numbers leaves alone what the app reports, and documents that were
// edited meanwhile do not undo it.
func TestReport_P64_P66_A37_StandsBesideOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := settleDesk(t, "")
		settleUnits := func(token, unit string, n int64) authz.Settled {
			var r authz.Reservation
			var m authz.Measured
			if bad := k.d.Open(token, &r); bad != 0 {
				t.Fatal(bad.Word())
			}
			if bad := k.d.MeasureUnits(&r, unit, n, false, &m); bad != 0 {
				t.Fatal(bad.Word())
			}
			return k.d.Settle(time.Now(), &r, &m)
		}
		books := k.books()
		before, after := k.must(at("/job"), authz.Allowed), k.must(at("/job"), authz.Allowed)
		tokens := []string{k.token(before), k.token(after)}
		k.check(k.report(before, 42))
		for _, token := range tokens {
			settleUnits(token, "requests", 3)
		}
		k.check(k.report(after, 7))
		k.mustUse(books, 6, 49)

		edited := k.must(at("/job"), authz.Allowed)
		token := k.token(edited)
		k.check(k.report(edited, 1))
		k.put(app("units: {tokens: {title: tokens}}\n") + routesDoc("- {name: other, match: {path: /other}}"))
		k.end(token, answered(200))
		k.mustUse(books, 7, 50)
	})
}

// A second seal of one decision is the same reservation.
func TestSeal_C134_TwiceIsOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := settleDesk(t, "")
		dec := k.must(at("/job"), authz.Allowed)
		one, two := k.token(dec), k.token(dec)
		results := fmt.Sprint(k.end(one, answered(500)).Word(), " ", k.end(two, answered(500)).Word())
		if results != "free repeated" {
			t.Errorf("settled %s, want free and a repeat", results)
		}
		k.mustUse(nil, 0, 0)
	})
}

// More is reserved of the budget of the request's own class, and in the tree where its
// tenant is now: each account gets back what was taken from it.
func TestExtend_A25_C1_OfItsClassAndTree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, `
apiVersion: mete/v1
kind: App
metadata: {name: api}
spec:
  time_zone: UTC
  units: {tokens: {}, gpus: {}}
  identity:
    tenant: [{request_header: x-tenant}]
    classes: [{name: robots, when: {jwt_claim_present: robot}}, {name: people}]
`+planDoc("free", "robots: {kind: quota, amount: 9000, unit: tokens, classes: [robots], reset: {calendar: month}}\npeople: {kind: quota, amount: 9000, unit: tokens, classes: [people], reset: {calendar: month}}")+
			tenantDoc("org:p", "{}")+tenantDoc("org:q", "{}")+tenantDoc("org:a", "{plan: free, parent: \"org:p\"}")+routesDoc(settleDocs)).seals()
		req := at("/job")
		req.Metadata = claims{jwt + "robot": "yes"}
		dec := k.must(req, authz.Allowed)
		token := k.token(dec)
		k.put(tenantDoc("org:a", "{plan: free, parent: \"org:q\"}"))
		time.Sleep(3 * time.Minute)
		k.ask(req)
		time.Sleep(3 * time.Minute)
		if _, err := k.extend(dec, 400); err != nil {
			t.Fatal(err)
		}
		k.end(token, tells(200, "x-usage", "7"))
		// Each tree in which it has reserved says what it used; this store keeps one account.
		if robots, people := k.used("robots"), k.used("people"); robots != 100+7+7 || people != 0 {
			t.Errorf("robots have used %d, people %d, want 114 and 0", robots, people)
		}
	})
}

// A unit that the plan did not limit when the request came can be extended once it does.
func TestExtend_A25_LimitAddedSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("units: {tokens: {title: tokens}}")+planDoc("free", monthly("1000", ""))+
			tenantDoc("org:a", "{plan: free}")+routesDoc(settleDocs)).seals()
		dec := k.must(at("/job"), authz.Allowed)
		token := k.token(dec)
		k.put(planDoc("free", monthly("1000", "")+"\ntokens: {kind: quota, amount: 10000, unit: tokens, reset: {calendar: month}}"))
		if got, err := k.extend(dec, 400); err != nil || got["tokens"] != 400 {
			t.Fatalf("extended to %v, %v, want 400", got, err)
		}
		k.end(token, answered(200))
		k.mustUse(nil, 1, 400)
	})
}
