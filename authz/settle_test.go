package authz_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// An endingCase is a way for a request to end, and what it costs.
type endingCase struct {
	name, count, path string
	end               authz.Ending
	requests, tokens  int64
	want              authz.Settled
}

func endingCases() []endingCase {
	aborted := authz.Ending{GRPC: -1, Reached: true}
	return []endingCase{
		{"success", "", "/", answered(200), 1, 0, authz.SettledAsReserved},
		{"redirect", "", "/", answered(302), 1, 0, authz.SettledAsReserved},
		{"upgrade", "", "/", answered(101), 1, 0, authz.SettledAsReserved},
		{"not modified", "", "/", answered(304), 0, 0, authz.SettledFree},
		{"caller's fault", "", "/", answered(404), 0, 0, authz.SettledFree},
		{"our fault", "", "/", answered(503), 0, 0, authz.SettledFree},
		{"left early", "", "/", aborted, 0, 0, authz.SettledFree},
		{"left early, counted", "count: {aborted: true}", "/", aborted, 1, 0, authz.SettledAsReserved},
		{"followed elsewhere by Envoy", "", "/", authz.Ending{Status: 302, GRPC: -1, Reached: true, Followed: true}, 0, 0, authz.SettledFree},
		{"left early, unseen", "count: {aborted: true}", "/", authz.Ending{GRPC: -1}, 0, 0, authz.SettledFree},
		{"broke off", "", "/", authz.Ending{Status: 200, GRPC: -1, Unfinished: true}, 1, 0, authz.SettledAsReserved},
		{"broke off, completed", "count: {preset: completed}", "/", authz.Ending{Status: 200, GRPC: -1, Unfinished: true}, 0, 0, authz.SettledFree},
		{"redirect, completed", "count: {preset: completed}", "/", answered(302), 0, 0, authz.SettledFree},
		{"gRPC", "", "/", authz.Ending{Status: 200, GRPC: 0}, 1, 0, authz.SettledAsReserved},
		{"gRPC not found", "", "/", authz.Ending{Status: 200, GRPC: 5}, 0, 0, authz.SettledFree},
		{"gRPC not found, counted", "count: {grpc_statuses: [OK, NOT_FOUND]}", "/", authz.Ending{Status: 200, GRPC: 5}, 1, 0, authz.SettledAsReserved},
		{"replay", "", "/", tells(200, "idempotency-replayed", "true"), 0, 0, authz.SettledFree},
		{"replay, counted", "count: {replays: true}", "/", tells(200, "idempotency-replayed", "true"), 1, 0, authz.SettledAsReserved},
		{"listed 404", "count: {statuses: [2xx, \"404\"]}", "/", answered(404), 1, 0, authz.SettledAsReserved},
		{"weight", "", "/heavy", answered(200), 5, 0, authz.SettledAsReserved},
		{"weight, failed", "", "/heavy", answered(500), 0, 0, authz.SettledFree},
		{"fewer tokens", "", "/chat", tells(200, "x-usage", "7"), 1, 7, authz.SettledLess},
		{"more tokens", "", "/chat", tells(200, "x-usage", " 250 "), 1, 250, authz.SettledMore},
		{"as many tokens", "", "/chat", tells(200, "x-usage", "100"), 1, 100, authz.SettledAsReserved},
		{"no tokens", "", "/chat", tells(200, "x-usage", "0"), 1, 0, authz.SettledLess},
		{"above max", "", "/chat", tells(200, "x-usage", "1001"), 1, 1001, authz.SettledMore},
		{"tokens of a failure", "", "/chat", tells(500, "x-usage", "7"), 0, 0, authz.SettledFree},
		{"nothing told", "", "/chat", answered(200), 1, 100, authz.SettledAsReserved},
		{"nothing told, weight", "", "/guess", answered(200), 3, 3, authz.SettledLess},
		{"nothing told, zero", "", "/silent", answered(200), 1, 0, authz.SettledLess},
		{"report to come", "", "/job", answered(200), 1, 100, authz.SettledAsReserved},
		{"meter only", "", "/ingest", answered(200), 1, 0, authz.SettledAsReserved},
		{"meter only, failed", "", "/ingest", answered(500), 0, 0, authz.SettledFree},
	}
}

// The gRPC status of an answer that has it neither in trailers nor in headers is where the
// App says (issue 12, D2); else the HTTP status decides.
func TestSettle_A8_GRPCStatusInMetadata(t *testing.T) {
	t.Parallel()
	const told = `count: {grpc_status: {metadata: "grpc:status"}}`
	metadata := func(end authz.Ending, status string) authz.Ending {
		end.Response = answer{metadata: map[string]string{"grpc:status": status}}
		return end
	}
	broken := authz.Ending{Status: 200, GRPC: -1, Unfinished: true}
	for _, c := range []endingCase{
		{"failed", told, "/", metadata(answered(200), "5"), 0, 0, authz.SettledFree},
		{"OK", told, "/", metadata(answered(200), "0"), 1, 0, authz.SettledAsReserved},
		{"no number", told, "/", metadata(answered(200), "x"), 0, 0, authz.SettledFree},
		{"empty", told, "/", metadata(answered(200), ""), 0, 0, authz.SettledFree},
		{"unknown, counted", `count: {grpc_statuses: [UNKNOWN], grpc_status: {metadata: "grpc:status"}}`, "/", metadata(answered(200), "99"), 1, 0, authz.SettledAsReserved},
		{"none left", told, "/", tells(200, "x-usage", "1"), 1, 0, authz.SettledAsReserved},
		{"nothing known", told, "/", answered(200), 1, 0, authz.SettledAsReserved},
		{"not said", "", "/", metadata(answered(200), "5"), 1, 0, authz.SettledAsReserved},
		{"a trailer goes before it", told, "/", metadata(authz.Ending{Status: 200, GRPC: 0}, "5"), 1, 0, authz.SettledAsReserved},
		{"not begun", told, "/", metadata(authz.Ending{GRPC: -1, Reached: true}, "0"), 0, 0, authz.SettledFree},
		{"the status was the last thing", `count: {preset: completed, grpc_status: {metadata: "grpc:status"}}`, "/", metadata(broken, "0"), 1, 0, authz.SettledAsReserved},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := settleDesk(t, c.count)
			if got := k.end(k.token(k.ask(at(c.path))), c.end); got != c.want || k.used("monthly") != c.requests {
				t.Errorf("%s: settled %q, %d used; want %q, %d", c.name, got.Word(), k.used("monthly"), c.want.Word(), c.requests)
			}
		})
	}
}

func TestSettle_A6_A8_A9_A11_A26_A27_A36_A37_A39_C2_C14_ByHowItEnded(t *testing.T) {
	t.Parallel()
	for _, c := range endingCases() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := settleDesk(t, c.count)
				dec := k.ask(at(c.path))
				token := k.token(dec)
				if got := k.end(token, c.end); got != c.want {
					t.Errorf("settled %q, want %q", got.Word(), c.want.Word())
				}
				if got := k.end(token, c.end); got != authz.SettledBefore {
					t.Errorf("a repeat is %q, want repeated", got.Word())
				}
				if got := k.used("monthly"); got != c.requests {
					t.Errorf("%d requests are used, want %d", got, c.requests)
				}
				if got := k.used("tokens"); got != c.tokens {
					t.Errorf("%d tokens are used, want %d", got, c.tokens)
				}
			})
		})
	}
}

// Numbers come from trailers and metadata too; the first source that has one wins.
func TestSettle_P64_P65_A37_SourcesInOrder(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		a    answer
		want int64
	}{
		"trailer":           {answer{trailer: map[string]string{"x-usage": "8"}}, 8},
		"metadata":          {answer{metadata: map[string]string{"usage:total": "9"}}, 9},
		"header first":      {answer{header: map[string]string{"x-usage": "7"}, trailer: map[string]string{"x-usage": "8"}}, 7},
		"bad header passed": {answer{header: map[string]string{"x-usage": "-7"}, trailer: map[string]string{"x-usage": "8"}}, 8},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				k := settleDesk(t, "")
				k.end(k.token(k.ask(at("/chat"))), authz.Ending{Status: 200, GRPC: -1, Response: c.a})
				if got := k.used("tokens"); got != c.want {
					t.Errorf("%d tokens are used, want %d", got, c.want)
				}
			})
		})
	}
}

// What is not a whole number from 0 up changes nothing: what was reserved is used.
func TestSettle_C090_NumbersThatAreNone(t *testing.T) {
	t.Parallel()
	for _, value := range []string{"-5", "NaN", "1e9", "1.5", "", "0x10", "1000000000000000", "18446744073709551617", "7,7", "\xff"} {
		synctest.Test(t, func(t *testing.T) {
			k := settleDesk(t, "")
			k.end(k.token(k.ask(at("/chat"))), tells(200, "x-usage", value))
			if got := k.used("tokens"); got != 100 {
				t.Errorf("%q: %d tokens are used, want the 100 that were reserved", value, got)
			}
			if got := k.d.Stats().BadUnits; got != 1 {
				t.Errorf("%q: %d numbers are counted as bad, want 1", value, got)
			}
		})
	}
}

// Use above the reservation counts in full, and the next request is refused until the
// window ends; the debt does not go into the next one.
func TestSettle_A40_A41_A43_C093_Debt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := tokensDesk(t, "tokens: {kind: quota, amount: 200, unit: tokens, reset: {calendar: hour}}")
		first := k.token(k.must(at("/chat"), authz.Allowed))
		if got := k.end(first, tells(200, "x-usage", "230")); got != authz.SettledMore {
			t.Fatalf("settled %q", got.Word())
		}
		dec := k.must(at("/chat"), authz.QuotaExceeded)
		if l := limit(t, dec, "tokens"); l.Left != 0 || l.Used != 230 {
			t.Errorf("left %d used %d, want 0 and 230", l.Left, l.Used)
		}
		if got := k.used("tokens"); got != 230 {
			t.Errorf("%d tokens are used, want 230", got)
		}
		if got := k.keeper.Stats().Overshoot[quota.UnderReserved]; got != 30 {
			t.Errorf("%d units are past the quota as under-reserved, want 30", got)
		}
		time.Sleep(time.Hour)
		k.must(at("/chat"), authz.Allowed)
	})
}

func TestSettle_A48_LongRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := tokensDesk(t, "tokens: {kind: quota, amount: 200, unit: tokens, reset: {calendar: day}}")
		token := k.token(k.must(at("/chat"), authz.Allowed))
		time.Sleep(40 * time.Minute)
		e := tells(200, "x-usage", "230")
		e.Duration = 40 * time.Minute
		k.end(token, e)
		if got := k.used("tokens"); got != 230 {
			t.Errorf("%d tokens are used, want 230", got)
		}
		if got := k.keeper.Stats().Overshoot; got[quota.LongRequest] != 30 || got[quota.UnderReserved] != 0 {
			t.Errorf("past the quota %v, want 30 of a long request", got)
		}
	})
}

// Units given back can be spent at once, also where the last refusal is remembered.
func TestSettle_A26_A35_GivenBackIsThere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("3", ""))+tenantDoc("org:a", "{plan: free}")).seals()
		var tokens []string
		for range 3 {
			tokens = append(tokens, k.token(k.must(at("/"), authz.Allowed)))
		}
		k.must(at("/"), authz.QuotaExceeded)
		k.end(tokens[1], answered(500))
		k.must(at("/"), authz.Allowed)
		k.must(at("/"), authz.QuotaExceeded)
		if got := k.used("monthly"); got != 3 {
			t.Errorf("%d are used, want 3", got)
		}
	})
}

// A settlement for a window that is over goes to that window's account.
func TestSettle_A17_WindowOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := tokensDesk(t, "tokens: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: hour}}")
		token := k.token(k.must(at("/chat"), authz.Allowed))
		time.Sleep(3 * time.Hour)
		k.must(at("/chat"), authz.Allowed)
		k.end(token, tells(200, "x-usage", "7"))
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		var used []int64
		for _, key := range k.memory.Accounts() {
			used = append(used, k.memory.Account(key).Used())
		}
		if fmt.Sprint(used) != "[7 100]" && fmt.Sprint(used) != "[100 7]" {
			t.Errorf("accounts say %v, want 7 for the window that is over and 100", used)
		}
	})
}

// A replica that takes the place of one that is gone settles in its stead, once.
func TestSettle_A26_C134_ByAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := &storetest.Memory{}
		docs := app("units: {tokens: {title: tokens}}") +
			planDoc("free", "tokens: {kind: quota, amount: 1000, unit: tokens, reset: {calendar: month}}") +
			tenantDoc("org:a", "{plan: free}") + routesDoc(settleDocs)
		a := newDeskOn(t, m, "r1", docs, 0).seals()
		b := newDeskOn(t, m, "r2", docs, 0).seals()
		less, more := a.token(a.must(at("/chat"), authz.Allowed)), a.token(a.must(at("/chat"), authz.Allowed))
		if got := b.end(less, tells(200, "x-usage", "7")); got != authz.SettledLess {
			t.Errorf("settled %q", got.Word())
		}
		if got := b.end(more, tells(200, "x-usage", "130")); got != authz.SettledMore {
			t.Errorf("settled %q", got.Word())
		}
		if got := b.end(less, tells(200, "x-usage", "7")); got != authz.SettledBefore {
			t.Errorf("a repeat is %q", got.Word())
		}
		if got := b.used("tokens"); got != 137 {
			t.Errorf("%d are used, want 137", got)
		}
		if left := b.accountOf("org:a", "tokens").Leased(); left != 0 {
			t.Errorf("%d are leased after all is over", left)
		}
	})
}

// An answer that nobody hears settles nothing later.
func TestSettle_A10_GivenBackIsVoid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := settleDesk(t, "")
		dec := k.ask(at("/chat"))
		token := k.token(dec)
		k.d.GiveBack(time.Now(), dec)
		k.d.GiveBack(time.Now(), dec)
		if got := k.end(token, tells(200, "x-usage", "500")); got != authz.SettledBefore {
			t.Errorf("settled %q", got.Word())
		}
		if got := k.used("tokens"); got != 0 {
			t.Errorf("%d are used, want 0", got)
		}
	})
}

// A refusal, and a request that costs nothing, have no reservation.
func TestSeal_A10_NothingToSettle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("1", ""))+tenantDoc("org:a", "{plan: free}")+routesDoc(
			"- {name: free, match: {path: /free}, meter: false, check: false, reason: costs nothing at all}")).seals()
		k.must(at("/"), authz.Allowed)
		for _, dec := range []*authz.Decision{k.must(at("/"), authz.QuotaExceeded), k.must(at("/free"), authz.Exempt)} {
			if token := k.d.Seal(nil, time.Now(), dec, nil); len(token) > 0 {
				t.Errorf("%q has a token", dec.Outcome.Word())
			}
		}
	})
}

// A caller that asks for the result of a completed mutation again is neither counted nor
// refused, once the upstream has shown that it answers from memory.
func TestSettle_C16_ReplaysAreFreeAndNotRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("")+planDoc("free", monthly("2", ""))+tenantDoc("org:a", "{plan: free}")).seals()
		mutation := func(key string) authz.Request {
			r := at("/things")
			r.Method = "POST"
			r.Headers = append(r.Headers, authz.Field{Name: "idempotency-key", Value: key})
			return r
		}
		k.end(k.token(k.must(mutation("k1"), authz.Allowed)), answered(201))
		k.end(k.token(k.must(mutation("k1"), authz.Allowed)), tells(201, "idempotency-replayed", "true"))
		k.end(k.token(k.must(mutation("k2"), authz.Allowed)), answered(201))
		k.must(mutation("k3"), authz.QuotaExceeded)
		for range 3 { // both are used, and both results can be had again
			k.end(k.token(k.must(mutation("k1"), authz.CountedOver)), tells(201, "idempotency-replayed", "true"))
			k.end(k.token(k.must(mutation("k2"), authz.CountedOver)), tells(201, "idempotency-replayed", "true"))
		}
		k.must(mutation("k3"), authz.QuotaExceeded)
		if got := k.used("monthly"); got != 2 {
			t.Errorf("%d are used, want 2", got)
		}
	})
}

// A rate limit of a unit that the route measures is put right, one of requests is not: it
// is about when they came.
func TestSettle_P65_RatesOfMeasuredUnits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("units: {tokens: {title: tokens}}")+
			planDoc("free", "calls: {kind: rate, amount: 10, window: 1h}\ntokens: {kind: rate, amount: 1000, unit: tokens, window: 1h}")+
			tenantDoc("org:a", "{plan: free}")+routesDoc(settleDocs)).seals()
		left := func() string {
			dec := k.must(at("/chat"), authz.Allowed)
			k.d.GiveBack(time.Now(), dec)
			return fmt.Sprint(limit(t, dec, "calls").Left+1, limit(t, dec, "tokens").Left+100)
		}
		k.end(k.token(k.must(at("/chat"), authz.Allowed)), tells(200, "x-usage", "7"))
		if got := left(); got != "9 993" {
			t.Errorf("left %s after 1 call of 7 tokens, want 9 993", got)
		}
		k.end(k.token(k.must(at("/chat"), authz.Allowed)), tells(200, "x-usage", "300"))
		if got := left(); got != "8 693" {
			t.Errorf("left %s after another one of 300, want 8 693", got)
		}
		k.end(k.token(k.must(at("/chat"), authz.Allowed)), answered(500))
		if got := left(); got != "7 693" {
			t.Errorf("left %s after one that failed, want 7 693", got)
		}
	})
}

// Usage events belong to the hour of the decision, whenever the request ends, and say
// whose use it was.
func TestSettle_Q49_C59_C137_EventsOfTheHourOfTheDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := settleDesk(t, "attribution: {request_header: x-pipeline-id}")
		var got []string
		k.onUse = func(u *authz.Use) {
			if u.Unit == "tokens" {
				got = append(got, fmt.Sprint(u.At.UTC().Format("15:04 "), u.Tenant, " ", u.Route, " ", u.Attribution, " ", u.Units))
			}
		}
		until(t, "2026-12-10T10:59:00Z")
		req := at("/chat")
		req.Headers = append(req.Headers, authz.Field{Name: "x-pipeline-id", Value: "p-7"})
		token := k.token(k.must(req, authz.Allowed))
		until(t, "2026-12-10T11:46:00Z")
		k.end(token, tells(200, "x-usage", "7"))
		if want := "[10:59 org:a chat p-7 100 10:59 org:a chat p-7 -93]"; fmt.Sprint(got) != want {
			t.Errorf("events %v, want %s", got, want)
		}
	})
}
