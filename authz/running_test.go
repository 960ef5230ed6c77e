package authz_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

// runningDesk has a quota of 10,000 tokens, of which each request reserves 4,000.
func runningDesk(t *testing.T, more string) *desk {
	t.Helper()
	return newDesk(t, app("units: {tokens: {title: tokens}}\n")+
		planDoc("free", "tokens: {kind: quota, amount: 10000, unit: tokens, reset: {calendar: month}}\n"+more)+
		tenantDoc("org:a", "{plan: free}")+routesDoc(`
- {name: chat, match: {path: /chat}, units: {tokens: {reserve: 4000, use: [{response_header: x-usage}]}}}
- {name: job, match: {path: /job}, units: {tokens: {reserve: 4000, use: [{report: true}]}}}
- {name: flat, match: {path: /flat}, units: {tokens: {reserve: 4000}}}
`)).seals()
}

// refusedTokens returns a refusal, and what it says of the limit tokens.
func (k *desk) refusedTokens(path string) (dec *authz.Decision, l authz.LimitState) {
	k.t.Helper()
	dec = k.must(at(path), authz.QuotaExceeded)
	return dec, limit(k.t, dec, "tokens")
}

// reservedTokens looks at what running requests have reserved.
func (k *desk) reservedTokens() int64 {
	k.t.Helper()
	look := at("/chat")
	look.CheckOnly = true
	return limit(k.t, k.ask(look), "tokens").Reserved
}

// took is how a request ended that ran for so long and used so much.
func took(d time.Duration, used string) authz.Ending {
	e := tells(200, "x-usage", used)
	e.Duration = d
	return e
}

// A request that does not fit for what running ones have reserved is told to come back
// when they will have ended, and not at the end of the window.
func TestDecide_A41_WaitsForRunningRequests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := runningDesk(t, "")
		first, second := k.token(k.must(at("/chat"), authz.Allowed)), k.token(k.must(at("/chat"), authz.Allowed))
		dec, l := k.refusedTokens("/chat")
		if dec.RetryAfter != 5*time.Second || l.Reserved != 8000 || l.Used != 8000 || l.Left != 2000 || l.Reset <= time.Hour {
			t.Errorf("before any has ended: retry after %s, %+v", dec.RetryAfter, l)
		}
		time.Sleep(2 * time.Second)
		k.end(first, took(2*time.Second, "100"))
		third := k.token(k.must(at("/chat"), authz.Allowed)) // 100 used, 8,000 reserved
		dec, l = k.refusedTokens("/chat")
		if dec.RetryAfter != 2*time.Second || l.Reserved != 8000 || l.Used != 8100 {
			t.Errorf("as long as usual: retry after %s, %+v", dec.RetryAfter, l)
		}
		k.end(second, took(2*time.Second, "100"))
		k.end(third, took(2*time.Second, "7000"))
		dec, l = k.refusedTokens("/chat")
		if dec.RetryAfter <= time.Hour || l.Reserved != 0 || l.Used != 7200 {
			t.Errorf("by use alone: retry after %s, %+v", dec.RetryAfter, l)
		}
	})
}

// The wait is from 1 to 30 s, and the window's end where giving back would not help, where
// nothing can come back, or where no log has told of the end for long.
func TestDecide_A41_HowLongToWait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path    string
		lasts   time.Duration // of a request that ended before
		used    string        // by it
		waits   time.Duration // until the one that is refused comes
		want    time.Duration // 0: the end of the window
		limited string        // another limit
	}{
		"short":                     {path: "/chat", lasts: 20 * time.Millisecond, used: "10", want: time.Second},
		"long":                      {path: "/chat", lasts: 10 * time.Minute, used: "10", want: 30 * time.Second},
		"long, and for some time":   {path: "/chat", lasts: 10 * time.Minute, used: "10", waits: 14 * time.Minute, want: 30 * time.Second},
		"nobody tells of the end":   {path: "/chat", lasts: time.Second, used: "10", waits: 31 * time.Second},
		"it would not fit even so":  {path: "/chat", lasts: time.Second, used: "7000"},
		"reported later":            {path: "/job", lasts: time.Second, used: "10", want: 5 * time.Second},
		"what is reserved is used":  {path: "/flat", lasts: time.Second, used: "10"},
		"another limit is used up":  {path: "/chat", lasts: time.Second, used: "10", limited: "calls: {kind: quota, amount: 3, reset: {calendar: month}}"},
		"another has more than all": {path: "/chat", lasts: time.Second, used: "10", want: time.Second, limited: "calls: {kind: quota, amount: 30, reset: {calendar: month}}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := runningDesk(t, c.limited)
				k.end(k.token(k.must(at("/chat"), authz.Allowed)), took(c.lasts, c.used))
				for range 2 {
					if dec := k.ask(at(c.path)); dec.Outcome == authz.Allowed {
						k.token(dec)
					}
				}
				time.Sleep(c.waits)
				dec := k.must(at(c.path), authz.QuotaExceeded)
				if c.want == 0 && dec.RetryAfter <= time.Hour || c.want > 0 && dec.RetryAfter != c.want {
					t.Errorf("retry after %s, want %s (0s: the end of the window); %s", dec.RetryAfter, c.want, show(dec))
				}
			})
		})
	}
}

// Nothing stays reserved of a request that was given back, failed, was reported on or
// extended, or whose token came from another process.
func TestSettle_A41_NothingStaysReserved(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(k *desk, dec *authz.Decision, token string){
		"as reserved": func(k *desk, _ *authz.Decision, token string) { k.end(token, took(time.Second, "4000")) },
		"failed":      func(k *desk, _ *authz.Decision, token string) { k.end(token, answered(500)) },
		"given back":  func(k *desk, dec *authz.Decision, _ string) { k.d.GiveBack(time.Now(), dec) },
		"reported, and ended": func(k *desk, dec *authz.Decision, token string) {
			_ = k.report(dec, 7)
			k.end(token, answered(200))
		},
		"ended, and reported": func(k *desk, dec *authz.Decision, token string) {
			k.end(token, answered(200))
			_ = k.report(dec, 7)
		},
		"extended": func(k *desk, dec *authz.Decision, token string) {
			if _, err := k.extend(dec, 500); err != nil {
				k.t.Error(err)
			}
			if got := k.reservedTokens(); got != 4500 {
				k.t.Errorf("%d are reserved with the extension", got)
			}
			k.end(token, answered(200))
		},
		"ended, and extended": func(k *desk, dec *authz.Decision, token string) {
			k.end(token, answered(200))
			if _, err := k.extend(dec, 500); err != nil {
				k.t.Error(err)
			}
			if got := k.reservedTokens(); got != 0 {
				k.t.Errorf("%d are reserved by what comes after the end", got)
			}
			_ = k.report(dec, 7)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := runningDesk(t, "")
				dec := k.must(at("/job"), authz.Allowed)
				if l := limit(t, dec, "tokens"); l.Reserved != 4000 {
					t.Errorf("%d are reserved while it runs", l.Reserved)
				}
				end(k, dec, k.token(dec))
				if got := k.reservedTokens(); got != 0 {
					t.Errorf("%d are reserved once it has ended", got)
				}
			})
		})
	}
}

// The account tells what is reserved, and soon that nothing is any more.
func TestSettle_A41_TheAccountTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := runningDesk(t, "")
		token := k.token(k.must(at("/chat"), authz.Allowed))
		time.Sleep(time.Minute)
		synctest.Wait()
		if a := k.accountOf("org:a", "tokens"); a.Used() != 4000 || a.Reserved() != 4000 {
			t.Errorf("while it runs: %d of %d", a.Reserved(), a.Used())
		}
		k.end(token, took(time.Minute, "4000"))
		time.Sleep(time.Minute)
		synctest.Wait()
		if a := k.accountOf("org:a", "tokens"); a.Used() != 4000 || a.Reserved() != 0 {
			t.Errorf("once it has ended: %d of %d", a.Reserved(), a.Used())
		}
		calls := k.store.count()
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := k.store.count() - calls; got > 2 {
			t.Errorf("%d operations in an idle hour", got)
		}
	})
}

// Of a request whose end nobody tells, what it reserved counts as used after a while.
func TestSettle_A41_LostEndsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := runningDesk(t, "")
		k.token(k.must(at("/chat"), authz.Allowed))
		time.Sleep(time.Hour)
		synctest.Wait()
		if a := k.accountOf("org:a", "tokens"); a.Used() != 4000 || a.Reserved() != 0 {
			t.Errorf("%d of %d are reserved still", a.Reserved(), a.Used())
		}
	})
}

// What is not sealed is not said to run: nothing would tell of its end.
func TestSeal_A41_NothingRunsWithoutAToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		limits := "tokens: {kind: quota, amount: 10000, unit: tokens, reset: {calendar: month}}\n"
		for i := range 60 {
			limits += fmt.Sprintf("q%d: {kind: quota, amount: 10, reset: {calendar: month}}\n", i)
		}
		k := newDesk(t, app("units: {tokens: {title: tokens}}\ndefaults: {plan: free}")+planDoc("free", limits)+routesDoc(`
- {name: chat, match: {path: /chat}, units: {tokens: {reserve: 40, use: [{response_header: x-usage}]}}}
`))
		unsealed := func(name string) {
			t.Helper()
			req := at("/chat")
			req.Headers[0].Value = "o:" + strings.Repeat("é", 125)
			dec := k.must(req, authz.Allowed)
			more := []authz.Decision{*k.must(req, authz.Allowed)}
			if token := k.d.Seal(nil, time.Now(), dec, more); len(token) > 0 {
				t.Fatalf("%s: a token of %d bytes", name, len(token))
			}
			req.CheckOnly = true
			if got := limit(t, k.ask(req), "tokens").Reserved; got != 0 {
				t.Errorf("%s: %d are reserved", name, got)
			}
		}
		unsealed("no key yet")
		k.seals()
		unsealed("too long")
	})
}
