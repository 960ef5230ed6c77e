package authz_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// units settles a token by a number of units.
func (k *desk) units(token, unit string, n int64, giveBack bool) string {
	k.t.Helper()
	var r authz.Reservation
	var m authz.Measured
	if bad := k.d.Open(token, &r); bad != 0 {
		return bad.Word()
	}
	if bad := k.d.MeasureUnits(&r, unit, n, giveBack, &m); bad != 0 {
		return bad.Word()
	}
	return k.d.Settle(time.Now(), &r, &m).Word()
}

func TestMeasureUnits_P66_A26_Numbers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		path, unit       string
		n                int64
		giveBack         bool
		want             string
		requests, tokens int64
	}{
		"of the measured unit": {"/chat", "", 7, false, "less", 1, 7},
		"of a named one":       {"/chat", "requests", 4, false, "more", 4, 100},
		"given back":           {"/chat", "tokens", 30, true, "less", 1, 70},
		"given back too much":  {"/chat", "tokens", 300, true, "less", 1, 0},
		"below 0":              {"/chat", "tokens", -1, false, "malformed", 1, 100},
		"too many":             {"/chat", "tokens", quota.MaxUnits + 1, false, "malformed", 1, 100},
		"of no such unit":      {"/chat", "gpus", 1, false, "malformed", 1, 100},
		"without a measure":    {"/heavy", "", 2, false, "less", 2, 0},
		"of the unit measured": {"/second", "", 7, false, "more", 7, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := settleDesk(t, "")
				token := k.token(k.must(at(c.path), authz.Allowed))
				if got := k.units(token, c.unit, c.n, c.giveBack); got != c.want {
					t.Errorf("settled %q, want %q", got, c.want)
				}
				k.mustUse(nil, c.requests, c.tokens)
			})
		})
	}
}

// Without its app, or any word of the answer, a request has used what it reserved.
func TestMeasure_A26_C090_NobodyKnows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := settleDesk(t, "")
		silent, gone := k.token(k.must(at("/chat"), authz.Allowed)), k.token(k.must(at("/chat"), authz.Allowed))
		if got := k.end(silent, authz.Ending{Status: 200, GRPC: -1}); got != authz.SettledAsReserved {
			t.Errorf("without an answer: %q", got.Word())
		}
		empty := newDeskOn(t, k.memory, "r2", app("")+tenantDoc("org:a", "{}"), 0).seals()
		empty.remove(plan.KindApp, "api")
		if got := empty.end(gone, answered(500)); got != authz.SettledAsReserved {
			t.Errorf("without the app: %q", got.Word())
		}
		k.mustUse(nil, 2, 200)
	})
}

func TestMeasure_A40_C16_A27_Details(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := settleDesk(t, "")
		k.end(k.token(k.must(at("/chat"), authz.Allowed)), tells(200, "x-usage", "1000"))
		k.end(k.token(k.must(at("/silent"), authz.Allowed)), tells(200, "x-usage", "999"))
		if got := k.d.Stats().AboveMax; got != 0 {
			t.Errorf("%d are above max, want none", got)
		}
		k.end(k.token(k.must(at("/chat"), authz.Allowed)), tells(200, "x-usage", "1001"))
		if got := k.d.Stats().AboveMax; got != 1 {
			t.Errorf("%d are above max, want 1", got)
		}
		guess := at("/guess")
		guess.Hits = 4
		k.end(k.token(k.must(guess, authz.Allowed)), answered(200)) // the weight of each: 12
		if got := k.end(k.token(k.must(at("/"), authz.Allowed)), tells(200, "idempotency-replayed", " True ")); got != authz.SettledFree {
			t.Errorf("a replay is %q", got.Word())
		}
		k.mustUse(nil, 1+1+1+12, 1000+999+1001+12)
	})
}

// What costs nothing, though it counts, is no free request; numbers that nobody can have
// measured settle nothing, and leave the number to a source that knows better.
func TestSettle_A26_C134_Measured(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := settleDesk(t, "")
		var r authz.Reservation
		token := k.token(k.must(at("/chat"), authz.Allowed))
		k.d.Open(token, &r)
		for _, used := range [][]int64{{}, {1}, {1, -2}, {quota.MaxUnits + 1, 1}, {1, 1, 1}} {
			if got := k.d.Settle(time.Now(), &r, &authz.Measured{Used: used}); got != authz.SettledMalformed {
				t.Errorf("%v is %q", used, got.Word())
			}
		}
		if got := k.d.Settle(time.Now(), &r, &authz.Measured{Used: []int64{0, 0}}); got != authz.SettledLess {
			t.Errorf("nothing used is %q", got.Word())
		}
		k.mustUse(nil, 0, 0)
	})
}

// A mutation that failed is not remembered as one that was done.
func TestSettle_C16_FailuresAreNotRemembered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("2", ""))+tenantDoc("org:a", "{plan: free}")).seals()
		mutation := func(key string) authz.Request {
			r := at("/things")
			r.Method = "POST"
			r.Headers = append(r.Headers, authz.Field{Name: "idempotency-key", Value: key})
			return r
		}
		k.end(k.token(k.must(mutation("k1"), authz.Allowed)), answered(503))
		k.end(k.token(k.must(mutation("k2"), authz.Allowed)), answered(201))
		k.end(k.token(k.must(mutation("k2"), authz.Allowed)), tells(201, "idempotency-replayed", "true")) // the route replays
		k.end(k.token(k.must(mutation("k3"), authz.Allowed)), answered(201))
		k.must(mutation("k1"), authz.QuotaExceeded)
		k.must(mutation("k2"), authz.CountedOver)
	})
}

// A limit that is gone, or of another kind by now, gets what is late to the unit, soon,
// and no overshoot is told of it.
func TestSettle_A26_A48_LimitsThatChanged(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{
		"gone": "other: {kind: quota, amount: 9, reset: {calendar: day}}",
		"rate": "tokens: {kind: rate, amount: 10, unit: tokens, window: 1h}",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := tokensDesk(t, "tokens: {kind: quota, amount: 100, unit: tokens, reset: {calendar: month}}")
				token := k.token(k.must(at("/chat"), authz.Allowed))
				k.put(planDoc("free", limit))
				k.ask(at("/"))
				time.Sleep(3 * time.Minute)
				k.end(token, tells(200, "x-usage", "130"))
				time.Sleep(5 * time.Second)
				if got := k.accountOf("org:a", "tokens").Used(); got != 130 {
					t.Errorf("%d are used, want 130", got)
				}
				if over := k.keeper.Stats().Overshoot[quota.UnderReserved]; over != 0 {
					t.Errorf("%d are past a quota that is none", over)
				}
			})
		})
	}
}

// What was let on while etcd was away and then given back can take nobody past a quota.
func TestSettle_A26_A45_A49_LetOnAndGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := tokensDesk(t, "tokens: {kind: quota, amount: 150, unit: tokens, on_unavailable: allow, reset: {calendar: month}}")
		k.store.slow(time.Hour)
		var tokens []string
		for range 3 {
			tokens = append(tokens, k.token(k.must(at("/chat"), authz.UnavailableAllowed)))
		}
		for _, token := range tokens {
			k.end(token, tells(200, "x-usage", "0"))
		}
		for _, n := range []int64{400, 0} { // a debt is given back, too
			job := k.must(at("/job"), authz.UnavailableAllowed)
			token := k.token(job)
			if _, err := k.extend(job, 150); err != nil {
				t.Error(err)
			}
			k.check(k.report(job, n))
			k.end(token, tells(200, "x-usage", "0"))
		}
		for _, r := range k.keeper.Limits() {
			if r.Bound > 100 { // a lease that is asked for
				t.Errorf("the quota can be passed by %d still", r.Bound)
			}
		}
	})
}

// A bucket is one process's own, and one app's.
func TestSettle_P65_BucketOfItsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		docs := app("units: {tokens: {title: tokens}}") + planDoc("free", "tokens: {kind: rate, amount: 1000, unit: tokens, window: 1h}") +
			tenantDoc("org:a", "{plan: free}") + routesDoc(settleDocs)
		a, b := newDeskOn(t, m, "r1", docs, 0).seals(), newDeskOn(t, m, "r2", docs, 0).seals()
		token := a.token(a.must(at("/chat"), authz.Allowed))
		b.must(at("/chat"), authz.Allowed)
		b.end(token, tells(200, "x-usage", "0"))
		if left := limit(t, b.must(at("/chat"), authz.Allowed), "tokens").Left; left != 800 {
			t.Errorf("%d left of 1000 after two of 100, and one elsewhere that was free", left)
		}
	})
}

// What is said of a reservation that takes reports.
func TestReport_A25_P64_Edges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		k := tokensDesk(t, "tokens: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: hour}}\nday: {kind: quota, amount: 5000, unit: tokens, reset: {calendar: day}}\nrobots: {kind: quota, amount: 1, unit: tokens, classes: [robots], reset: {calendar: day}}")
		dec := k.must(at("/job"), authz.Allowed)
		token := k.token(dec)
		for _, n := range []int64{-1, quota.MaxUnits + 1} {
			if err := k.report(dec, n); !errors.Is(err, authz.ErrUnits) {
				t.Errorf("%d tokens: %v", n, err)
			}
		}
		time.Sleep(90 * time.Minute) // the hour of the decision is over, and it is extended there
		k.must(at("/job"), authz.Allowed)
		if got, err := k.extend(dec, 850); err != nil || got["tokens"] != 950 {
			t.Errorf("extended to %v, %v, want 950", got, err)
		}
		if _, err := k.extend(dec, 100); !errors.Is(err, authz.ErrExhausted) {
			t.Errorf("100 more than 950 of 1000: %v", err)
		}
		k.put(planDoc("free", "tokens: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: hour}}\nday: {kind: quota, amount: 5000, unit: tokens, reset: {calendar: day}}\nmonth: {kind: quota, amount: 5000, unit: tokens, reset: {calendar: month}}"))
		if got, err := k.extend(dec, 10); err != nil || got["tokens"] != 960 {
			t.Errorf("extended to %v, %v, want 960", got, err)
		}
		k.d.GiveBack(time.Now(), dec) // too late: somebody has extended it
		k.end(token, answered(200))
		k.used("day")
		if day, month := k.accountOf("org:a", "day").Used(), k.accountOf("org:a", "month").Used(); day != 960+100 || month != 10 {
			t.Errorf("%d of the day and %d of the month are used, want 1060 and 10", day, month)
		}
		gone, cancel := context.WithCancel(ctx)
		cancel()
		job := k.must(at("/job"), authz.Allowed)
		k.token(job)
		k.store.slow(time.Second)
		if _, err := k.d.Extend(gone, time.Now(), job.ID, map[string]int64{"tokens": 700}); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has gone: %v", err)
		}
	})
}
