package authz_test

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meteproject/mete/authz"
)

// mutation is a POST of org:a with an idempotency key.
func mutation(key string) authz.Request {
	req := from("org:a")
	req.Method, req.Path = "POST", "/orders"
	req.Headers = append(req.Headers, authz.Field{Name: "idempotency-key", Value: key})
	return req
}

// spent has a desk whose quota of two is used up, by mutations with the keys k1 and k2.
func spent(t *testing.T, count string) *desk {
	t.Helper()
	k := newDesk(t, app(count)+planDoc("free", monthly("2", ""))+tenantDoc("org:a", "{plan: free}"))
	for _, key := range []string{"k1", "k2"} {
		req := mutation(key)
		k.must(req, authz.Allowed)
		k.d.Complete("api", "", "org:a", &req, false, time.Now())
	}
	return k
}

// replays tells the desk that the upstream has answered a mutation from memory.
func (k *desk) replays(key string) {
	req := mutation(key)
	k.d.Complete("api", "", "org:a", &req, true, time.Now())
}

func TestReplays_C16_AReplayIsNotRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := spent(t, "")
		k.must(mutation("k1"), authz.QuotaExceeded) // nobody knows yet that this upstream replays
		k.replays("k2")
		for _, key := range []string{"k1", `"k1"`, ` "k2" `} {
			dec := k.must(mutation(key), authz.CountedOver)
			if asked := limit(t, dec, "monthly").Asked; asked != 1 {
				t.Errorf("a replay is metered as %d, want 1: its settlement gives that back", asked)
			}
			k.d.GiveBack(time.Now(), dec)
		}
		k.must(mutation("k3"), authz.QuotaExceeded)
		for name, change := range map[string]func(*authz.Request){
			"no key":         func(r *authz.Request) { r.Headers = r.Headers[:1] },
			"another method": func(r *authz.Request) { r.Method = "PUT" },
			"another path":   func(r *authz.Request) { r.Path = "/orders/1" },
			"a read":         func(r *authz.Request) { r.Method = "GET" },
			"two keys":       func(r *authz.Request) { r.Headers = append(r.Headers, r.Headers[1]) },
			"another key":    func(r *authz.Request) { r.Headers[1].Value = "K1" },
		} {
			req := mutation("k1")
			change(&req)
			if dec := k.ask(req); dec.Outcome != authz.QuotaExceeded {
				t.Errorf("%s: %q, want quota_exceeded", name, dec.Outcome.Word())
			}
		}
		time.Sleep(24 * time.Hour)
		k.must(mutation("k1"), authz.QuotaExceeded)
	})
}

// Who only asks whether a replay would be let on is told so.
func TestReplays_C16_LooksAtAReplay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := spent(t, "")
		k.replays("k1")
		look := func(key string) authz.Request {
			req := mutation(key)
			req.CheckOnly = true
			return req
		}
		if dec := k.ask(look("k1")); !dec.Outcome.Admits() {
			t.Errorf("a replay: %q", dec.Outcome.Word())
		}
	})
}

// One key that was replayed lifts no rate limit: who repeats a request has it answered as
// often as the limit lets requests on, and takes of other units what the route reserves
// until the answer is marked.
func TestReplays_C16_RateLimitsHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := newDesk(t, app("units: {tokens: {title: tokens}}\n")+
			planDoc("free", "per_second: {kind: rate, amount: 5, window: 1s}\ntpm: {kind: rate, unit: tokens, amount: 100, window: 1m}\nmonthly: {kind: quota, amount: 1, reset: {calendar: month}}")+
			tenantDoc("org:a", "{plan: free}")+
			routesDoc("- {name: orders, match: {path: /orders}, units: {tokens: {reserve: 10, use: [{response_header: x-usage}]}}}")).seals()
		k.must(mutation("k0"), authz.Allowed) // the quota is used up
		req := mutation("k1")
		k.d.Complete("api", "orders", "org:a", &req, true, time.Now())
		time.Sleep(time.Minute) // all buckets are full again
		served := 0
		var last *authz.Decision
		for range 400 {
			if dec := k.ask(mutation("k1")); dec.Outcome.Admits() {
				served, last = served+1, dec
			} else if dec.Outcome != authz.RateLimited || dec.RetryAfter <= 0 {
				t.Fatalf("%q, retry after %s", dec.Outcome.Word(), dec.RetryAfter)
			}
		}
		if served != 5 {
			t.Errorf("%d of 400 replays served at 5 a second", served)
		}
		if l := limit(t, last, "tpm"); l.Left != 50 {
			t.Errorf("%d tokens left, want 50: five replays reserve 10 each", l.Left)
		}
		e := answered(200)
		e.Response = answer{header: map[string]string{"idempotency-replayed": "true"}}
		k.end(k.token(last), e)
		time.Sleep(200 * time.Millisecond)
		if l := limit(t, k.ask(mutation("k1")), "tpm"); l.Left != 50 {
			t.Errorf("%d tokens left, want 50: 10 came back, and 10 are reserved", l.Left)
		}
	})
}

// An upstream that does the work again must not be worked for without end.
func TestReplays_C16_OneKeyDoesNotOpenAQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := spent(t, "")
		k.replays("k2")
		again := mutation("k1")
		k.must(again, authz.CountedOver)
		k.d.Complete("api", "", "org:a", &again, false, time.Now()) // it was not marked
		k.must(mutation("k1"), authz.QuotaExceeded)
		k.must(mutation("k2"), authz.CountedOver)
		k.replays("k1") // so it does replay this one
		k.must(mutation("k1"), authz.CountedOver)
	})
}

// What one route's upstream does says nothing of another's.
func TestReplays_C16_ByRoute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := spent(t, "")
		other := mutation("k9")
		k.d.Complete("api", "orders", "org:a", &other, true, time.Now())
		k.d.Complete("other", "", "org:a", &other, true, time.Now())
		k.must(mutation("k1"), authz.QuotaExceeded)
	})
}

// Where replays cost like any other request they are checked like any other.
func TestReplays_C16_ThatCostAreChecked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		k := spent(t, "count: {replays: true}")
		k.replays("k1")
		k.must(mutation("k1"), authz.QuotaExceeded)
	})
}

// replayKeyOfK1 is the first half of the SHA-256 of the parts, each behind its length.
const replayKeyOfK1 = "7d2fb4fce62ad9c7dce799071cb3707e"

// The key is in tokens, which other replicas read, older and newer ones too: it is the
// same everywhere and stays what it is.
func TestReplayKey_C16_IsTheSameEverywhere(t *testing.T) {
	t.Parallel()
	req := mutation("k1")
	key, ok := authz.ReplayKey("api", "org:a", &req)
	if got := hex.EncodeToString(key[:]); !ok || got != replayKeyOfK1 {
		t.Errorf("key %s, want %s", got, replayKeyOfK1)
	}
	quoted := mutation(`"k1"`)
	if same, _ := authz.ReplayKey("api", "org:a", &quoted); same != key {
		t.Error("quotes make another key")
	}
	if other, _ := authz.ReplayKey("apiorg", ":a", &req); other == key {
		t.Error("app and tenant run together")
	}
	if other, _ := authz.ReplayKey("api", "org:b", &req); other == key {
		t.Error("two tenants have one key")
	}
	for name, value := range map[string]string{"empty": "", "empty quotes": `""`, "too long": strings.Repeat("k", 256)} {
		req := mutation(value)
		if _, ok := authz.ReplayKey("api", "org:a", &req); ok {
			t.Errorf("%s: has a key", name)
		}
	}
	for method, want := range map[string]bool{"POST": true, "PUT": true, "PATCH": true, "DELETE": true, "GET": false, "HEAD": false, "": false} {
		req := mutation("k1")
		req.Method = method
		if _, ok := authz.ReplayKey("api", "org:a", &req); ok != want {
			t.Errorf("%q: has a key: %v, want %v", method, ok, want)
		}
	}
	longest := mutation(`"` + strings.Repeat("k", 255) + `"`)
	if _, ok := authz.ReplayKey("api", "org:a", &longest); !ok {
		t.Error("255 bytes have no key")
	}
	longest.Path = "/" + strings.Repeat("p", 3000)
	if _, ok := authz.ReplayKey("api", "org:a", &longest); ok {
		t.Error("a path that is not hashed in full has a key")
	}
}

func numbered(i int) (key [16]byte) {
	binary.BigEndian.PutUint64(key[8:], uint64(i))
	key[0] = byte(i) // the shard
	return key
}

// The latest 100,000 are remembered, and the oldest go first.
func TestReplays_C16_Bounded(t *testing.T) {
	t.Parallel()
	r, now := new(authz.Replays), time.Unix(1e9, 0)
	const kept, all = 100_000, 250_000
	for i := range all {
		r.Add(numbered(i), true, now)
		if i%3 == 0 { // and again, which takes no second place
			r.Add(numbered(i), true, now)
		}
	}
	for i := range all {
		if has := r.Has(numbered(i), now); has != (i >= all-kept) {
			t.Fatalf("number %d of %d: remembered %v", i, all, has)
		}
	}
	later := now.Add(24*time.Hour - time.Second)
	if !r.Has(numbered(all-1), later) || r.Has(numbered(all-1), later.Add(time.Second)) {
		t.Error("not remembered for 24 hours")
	}
	later = later.Add(time.Second)
	r.Add(numbered(all-1), false, later) // forgotten, so it is new
	r.Add(numbered(all-2), true, later)
	if !r.Has(numbered(all-1), later) || !r.Has(numbered(all-1), later.Add(time.Hour)) {
		t.Error("what comes again after 24 hours is not remembered")
	}
	for i := range kept { // the places of both have been taken twice by now
		r.Add(numbered(all+i), true, later)
	}
	if r.Has(numbered(all-1), later) || !r.Has(numbered(all), later) {
		t.Error("the oldest do not go first")
	}
}

// A key that came again after 24 hours is remembered from then on, also when the place that
// it had before is given to another.
func TestReplays_C16_AForgottenPlaceForgetsNothing(t *testing.T) {
	t.Parallel()
	r, now := new(authz.Replays), time.Unix(1e9, 0)
	const kept, at = 100_000, 50_000
	for i := range kept { // all shards are full
		r.Add(numbered(i), true, now)
	}
	later := now.Add(24 * time.Hour)
	r.Add(numbered(at), true, later)
	for i := range kept - 16 { // all but one place of each shard are given to others
		if !r.Has(numbered(at), later) {
			t.Fatalf("forgotten after %d others", i)
		}
		r.Add(numbered(kept+i), true, later)
	}
	for i := range 16 {
		r.Add(numbered(2*kept+i), true, later)
	}
	if r.Has(numbered(at), later) {
		t.Error("still remembered, though its place is another's")
	}
}

func TestReplays_C16_Concurrently(t *testing.T) {
	t.Parallel()
	r, now := new(authz.Replays), time.Unix(1e9, 0)
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 20_000 {
				r.Add(numbered(w*20_000+i), i%2 == 0, now)
				r.Has(numbered(i), now)
			}
		})
	}
	all.Wait()
	for i := range 80_000 {
		if !r.Has(numbered(i), now) {
			t.Fatalf("number %d is lost", i)
		}
	}
}

func TestReplays_C16_LookingTakesNoMemory(t *testing.T) {
	r, now := new(authz.Replays), time.Unix(1e9, 0)
	r.Add(numbered(1), false, now)
	r.Add(numbered(2), true, now)
	req := mutation("k1")
	if n := testing.AllocsPerRun(100, func() {
		_, _ = authz.ReplayKey("api", "org:a", &req)
		if !r.Has(numbered(1), now) || !r.Has(numbered(2), now) || r.Has(numbered(3), now) {
			t.Fatal("not remembered")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
