package differential_test

import (
	"math"
	"strings"
	"testing"
	"time"

	rls "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/store/storetest"
)

// There a burst before the end of a window and one after it are twice the limit within a moment; here the second finds what has
// flown in since. A burst into a full bucket, and the pace over a longer time, are the same.
func bucketsForWindows(t *testing.T) {
	s := newSides(t, "", &rule{key: "ip", limit: per(60, minute)}, &rule{key: "s", limit: per(2, second)})
	time.Sleep(59 * time.Second)
	s.both(one("ip", "a").hitting(60), "0", "0")
	s.both(one("ip", "a"), "over 0", "over 0")
	time.Sleep(time.Second)
	s.both(one("ip", "a").hitting(60), "0", "over 1")
	s.mete(one("ip", "a"), "0") // one a second
	time.Sleep(58 * time.Second)
	s.both(one("ip", "a"), "over 0", "57")
	s.both(one("s", "a").hitting(2), "0", "0")
	time.Sleep(500 * time.Millisecond)
	s.both(one("s", "a"), "over 0", "0")
}

func eachReplicaItsBuckets(t *testing.T) {
	for _, c := range []struct {
		replicas       string
		first, another string
	}{{"full", "1", "1"}, {"split", "over 1", "over 1"}} {
		file := "domain: edge\nmete: {replicas: " + c.replicas + "}\ndescriptors: [{key: ip, rate_limit: {unit: minute, requests_per_unit: 3}}]\n"
		memory := &storetest.Memory{}
		a, b := newReplica(t, memory, "r1-"+c.replicas, file), newReplica(t, memory, "r2-"+c.replicas, file)
		a.decider.SetReplicas(2)
		b.decider.SetReplicas(2)
		there := newModel(&config{domain: "edge", rules: []*rule{{key: "ip", limit: per(3, minute)}}}, ways{})
		if c.replicas == "split" { // 3 by 2, rounded up
			a.says(one("ip", "a"), "1")
			b.says(one("ip", "a"), "1")
		}
		a.says(one("ip", "a").hitting(2), c.first)
		b.says(one("ip", "a").hitting(2), c.another)
		there.answer(time.Now(), one("ip", "a").hitting(2))
		if got := words(there.answer(time.Now(), one("ip", "a").hitting(2))); got != "over 0" {
			t.Errorf("two of envoyproxy/ratelimit on one Redis: %s", got)
		}
	}
}

// Of an hour and longer all replicas admit exactly the limit, and it outlives them.
func quotasOverReplicas(t *testing.T) {
	const file = "domain: edge\ndescriptors: [{key: org, rate_limit: {unit: day, requests_per_unit: 30}}]\n"
	memory := &storetest.Memory{}
	a, b := newReplica(t, memory, "r1", file), newReplica(t, memory, "r2", file)
	a.decider.SetReplicas(2)
	b.decider.SetReplicas(2)
	admitted := 0
	for i := range 200 {
		k := a
		if i%3 == 0 {
			k = b
		}
		got, err := k.ask(one("org", "a"))
		if err != nil {
			t.Fatal(err)
		}
		if !got.over {
			admitted++
		}
		time.Sleep(time.Second)
	}
	if admitted != 30 {
		t.Errorf("two replicas admitted %d of a limit of 30", admitted)
	}
	time.Sleep(2 * time.Minute)
	newReplica(t, memory, "r3", file).says(one("org", "a"), "over 0")
}

func calendars(t *testing.T) {
	s := newSides(
		t, "{time_zone: Europe/Berlin}",
		&rule{key: "month", limit: per(1, month)}, &rule{key: "year", limit: per(1, year)}, &rule{key: "week", limit: per(1, week)},
		&rule{key: "day", limit: per(1, day)},
	)
	at(t, "2026-12-27T22:50:00Z") // Sunday, 23:50 in Berlin
	for _, u := range []string{"month", "year", "week", "day"} {
		s.both(one(u, "a"), "0", "0")
	}
	const days = 24 * time.Hour
	s.reset(one("week", "a"), 3*days+70*time.Minute, 10*time.Minute) // there until Thursday
	s.reset(one("month", "a"), 5*days+70*time.Minute, 4*days+10*time.Minute)
	s.reset(one("year", "a"), 355*days+70*time.Minute, 4*days+10*time.Minute)
	at(t, "2026-12-27T23:00:00Z") // Monday
	s.both(one("week", "a"), "over 0", "0")
	s.both(one("day", "a"), "over 0", "0")
	s.both(one("month", "a"), "over 0", "over 0")
	at(t, "2026-12-31T23:00:00Z") // the new year in Berlin
	s.both(one("month", "a"), "over 0", "0")
	s.both(one("year", "a"), "over 0", "0")
	at(t, "2027-02-28T22:58:00Z")
	s.mete(one("month", "a"), "0")
	at(t, "2027-02-28T23:00:00Z")
	s.mete(one("month", "a"), "0")
}

// A request counts in the window that holds the end of its minute.
func lastMinute(t *testing.T) {
	s := newSides(t, "", &rule{key: "org", limit: per(1, hour)})
	at(t, "2026-12-10T10:58:59Z")
	s.both(one("org", "a"), "0", "0")
	at(t, "2026-12-10T10:59:00Z")
	s.both(one("org", "a"), "over 0", "0")
	at(t, "2026-12-10T11:00:00Z")
	s.both(one("org", "a"), "0", "over 0")
}

// There hits that are refused count: 5 and 5 of 12, then 5 more are over, and then 1 is. Here it is admitted, unless the domain
// says otherwise.
func refusedIsFree(t *testing.T) {
	for _, u := range []unit{minute, hour} {
		free, charged := newSides(t, "", &rule{key: "org", limit: per(12, u)}), newSides(t, "{refused_hits: charged}", &rule{key: "org", limit: per(12, u)})
		for _, step := range []struct {
			hits        uint64
			there, here string
		}{{5, "7", "7"}, {5, "2", "2"}, {5, "over 0", "over 2"}, {1, "over 0", "1"}, {1, "over 0", "0"}, {1, "over 0", "over 0"}} {
			free.both(one("org", "a").hitting(step.hits), step.there, step.here)
			charged.both(one("org", "a").hitting(step.hits), step.there, step.there)
		}
	}
}

func allOrNothing(t *testing.T) {
	rules := []*rule{{key: "wide", limit: per(50, hour)}, {key: "narrow", limit: per(1, minute)}}
	s, charged := newSides(t, "", rules...), newSides(t, "{refused_hits: charged}", rules...)
	r := many([]string{"wide", "a"}, []string{"narrow", "a"})
	s.both(r, "49, 0", "49, 0")
	charged.both(r, "49, 0", "49, 0")
	for range 3 {
		s.there.answer(time.Now(), r)
		s.mete(r, "49, over 0")
	}
	s.both(one("wide", "a"), "45", "48")
	charged.both(r, "48, over 0", "48, over 0")
}

// A look at a limit that is just used up: there it is over only once more was counted.
func looks(t *testing.T) {
	for _, u := range []unit{minute, hour} {
		s := newSides(t, "{refused_hits: charged}", &rule{key: "org", limit: per(2, u)})
		s.both(one("org", "a").hitting(0), "2", "2")
		s.both(one("org", "a").hitting(2), "0", "0")
		s.both(one("org", "a").hitting(0), "0", "over 0")
		s.both(one("org", "a"), "over 0", "over 0")
		s.both(one("org", "a").hitting(0), "over 0", "over 0")
		// The request of a look counts 1 where it has no hits of its own.
		r := one("org", "b")
		r.hits = 0
		s.both(r, "1", "1")
		// A look takes no notice of what its own request takes.
		both := many([]string{"org", "c"}, []string{"org", "c"}).hitting(2)
		both.descriptors[1].hits = new(uint64)
		s.both(both, "0, 0", "0, 0")
	}
}

// A look, then the number: a budget that is charged when requests have ended. There what is
// over is counted without end as well, until the window ends; here it is a debt of a minute, too.
func billed(t *testing.T) {
	for _, u := range []unit{minute, hour} {
		s := newSides(t, "", &rule{key: "org", limit: per(20, u)})
		s.both(one("org", "a").hitting(9), "11", "11")
		s.both(one("org", "a").hitting(0), "11", "11")
		s.both(one("org", "a").hitting(9), "2", "2")
		s.both(one("org", "a").hitting(0), "2", "2")
		s.both(one("org", "a").hitting(9), "over 0", "over 0") // 27 of 20
		s.both(one("org", "a").hitting(0), "over 0", "over 0")
		s.both(one("org", "b").hitting(400), "over 0", "over 0")
		s.both(one("org", "b").hitting(0), "over 0", "over 0")
		s.both(one("org", "c").hitting(0), "20", "20")
		if u == minute { // a debt of at most ten windows
			time.Sleep(10 * time.Minute)
			s.both(one("org", "b").hitting(0), "20", "over 0")
			time.Sleep(3 * time.Second)
			s.both(one("org", "b").hitting(0), "20", "1")
		}
	}
}

// There negative hits are hits. Here they give back, at most what was used; a domain may ignore them.
func refunds(t *testing.T) {
	for _, u := range []unit{minute, hour} {
		s, ignoring := newSides(t, "", &rule{key: "org", limit: per(10, u)}), newSides(t, "{refunds: ignore}", &rule{key: "org", limit: per(10, u)})
		s.both(one("org", "a").hitting(7), "3", "3")
		s.both(one("org", "a").hitting(3).refunding(), "0", "6")
		s.both(one("org", "a").hitting(20).refunding(), "over 0", "10")
		s.both(one("org", "b").refunding(), "9", "10")
		ignoring.mete(one("org", "a").hitting(7), "3")
		ignoring.mete(one("org", "a").hitting(3).refunding(), "3")
	}
}

// An override counts on its own, for each amount and unit: what a small one has refused does not refuse a larger one.
func overrides(t *testing.T) {
	s, ignoring := newSides(t, "", overridden()...), newSides(t, "{overrides: ignore}", overridden()...)
	a := func() request { return one("org", "a") }
	s.both(a().hitting(3), "0", "0") // the rule
	s.both(a().with(5, hour).hitting(5), "over 0", "0")
	s.both(a().with(5, hour), "over 0", "over 0")
	s.both(a().with(500, hour), "490", "499")
	s.both(a().with(5, hour), "over 0", "over 0")
	s.both(one("none", "a").with(1, day), "0", "0") // needs no rule
	s.both(one("org", "free").with(1, day), "0", "0")
	s.both(one("org", "free").with(1, day), "over 0", "over 0") // beats unlimited
	s.both(one("shadow", "a").with(0, day), "over 0", "over 0") // knows nothing of the rule's flags
	s.both(request{domain: "none", descriptors: a().with(0, day).descriptors}, "-", "-")
	// Under a shared rule all values share the override; there each has its own.
	s.both(one("files", "f/1").with(1, day), "0", "0")
	s.both(one("files", "f/2").with(1, day), "0", "over 0")
	s.both(one().with(0, day), "over 0", "over 0") // needs no entries either
	ignoring.mete(a().with(500, hour), "2")
	ignoring.mete(one("none", "a").with(0, day), "-")
}

func overridden() []*rule {
	return []*rule{
		{key: "org", limit: per(3, hour)},
		{key: "org", value: "free", limit: &limit{unlimited: true}},
		{key: "shadow", shadow: true, limit: per(3, hour)},
		{key: "files", value: "f/*", share: true, limit: per(3, hour)},
	}
}

// There the process ends (as metadata with the unit UNKNOWN make Envoy send it). Only where overrides count it is an error here.
func overrideOfNoUnit(t *testing.T) {
	s, ignoring := newSides(t, "", overridden()...), newSides(t, "{overrides: ignore}", overridden()...)
	for i, unit := range []int32{0, 8, 99} {
		w := one("org", "a").with(5, "none").wire()
		w.Descriptors[0].Limit.Unit = typev3.RateLimitUnit(unit)
		out, err := s.here.client.ShouldRateLimit(t.Context(), w)
		if err != nil || out.GetOverallCode() != rls.RateLimitResponse_OK || out.GetStatuses()[0].GetLimitRemaining() != uint32(2-i) { //nolint:gosec // small
			t.Errorf("unit %d with a rule: %v, %v", unit, out, err)
		}
		w.Descriptors[0].Entries[0].Key = "unconfigured"
		if out, err := s.here.client.ShouldRateLimit(t.Context(), w); err != nil || out.GetOverallCode() != rls.RateLimitResponse_OVER_LIMIT {
			t.Errorf("unit %d without a rule: %v, %v", unit, out, err)
		}
		w.Descriptors[0].Entries[0].Key = "org"
		if _, err := ignoring.here.client.ShouldRateLimit(t.Context(), w); err != nil {
			t.Errorf("unit %d, overrides ignored: %v", unit, err)
		}
	}
}

func multiplier(t *testing.T) {
	s := newSides(t, "", &rule{key: "org", limit: per(3, hour)})
	w := one("org", "a").with(1, hour).wire()
	w.Descriptors[0].Limit.UnitMultiplier = wrapperspb.UInt32(6)
	for _, want := range []rls.RateLimitResponse_Code{rls.RateLimitResponse_OK, rls.RateLimitResponse_OVER_LIMIT} {
		out, err := s.here.client.ShouldRateLimit(t.Context(), w)
		if err != nil {
			t.Fatal(err)
		}
		l := out.GetStatuses()[0].GetCurrentLimit()
		if out.GetOverallCode() != want || l.GetUnit() != rls.RateLimitResponse_RateLimit_HOUR || l.GetUnitMultiplier().GetValue() != 6 {
			t.Errorf("%v", out)
		}
		time.Sleep(time.Hour) // there another window
	}
	time.Sleep(6 * time.Hour)
	if out, err := s.here.client.ShouldRateLimit(t.Context(), w); err != nil || out.GetOverallCode() != rls.RateLimitResponse_OK {
		t.Errorf("six hours later: %v, %v", out, err)
	}
}

// There the call fails before anybody sees it, and Envoy lets the request through.
func bytesOfValues(t *testing.T) {
	s := newSides(t, "", &rule{key: "org", limit: per(1, hour)}, &rule{key: "path", value: "/v1/*", share: true, limit: per(1, minute)})
	for _, step := range []struct {
		key, value, want string
	}{
		{"org", "caf\xe9", "0"},
		{"org", "caf\xe9", "over 0"},
		{"org", "caf\xe8", "0"},
		{"org", "\xff", "0"},
		{"org", "\xff\x00", "0"},
		{"path", "/v1/\xff", "0"},
		{"path", "/v1/\xfe", "over 0"},
		{"path", "\xff/v1/", "-"},
		{"\xff", "x", "-"},
	} {
		got, err := askRaw(t.Context(), s.here.conn, one(step.key, step.value).raw(t))
		if err != nil || words(got) != step.want {
			t.Errorf("%q=%q: %s, %v, not %s", step.key, step.value, words(got), err, step.want)
		}
	}
}

func mostHits(t *testing.T) {
	s := newSides(t, "", &rule{key: "org", limit: per(math.MaxUint32, hour)}, &rule{key: "ip", limit: per(math.MaxUint32, second)})
	for _, key := range []string{"org", "ip"} {
		for _, hits := range []uint64{math.MaxUint64, math.MaxInt64, math.MaxUint32 + 1} {
			s.mete(one(key, "a").hitting(hits), "over 4294967295")
		}
		s.mete(one(key, "a"), "4294967294")
	}
}

func nothingAsked(t *testing.T) {
	s := newSides(t, "", &rule{key: "org", limit: per(1, hour)})
	s.errs(request{descriptors: one("org", "a").descriptors}.wire(), codes.InvalidArgument)
	s.errs(request{domain: "edge"}.wire(), codes.InvalidArgument)
	s.both(one(), "-", "-") // a descriptor without entries is one
}

// The request is decided alike, but by versions until January 2026, which never refused for quota rules.
func quotaStatus(t *testing.T) {
	s := newSides(
		t, "", &rule{key: "tokens", quota: true, limit: per(1, hour)}, &rule{key: "spare", quota: true, limit: per(2, hour)},
		&rule{key: "ip", limit: per(3, hour)}, &rule{key: "quiet", quota: true, shadow: true, limit: per(0, hour)},
	)
	old := newModel(s.there.conf, ways{quotaNeverRefuses: true})
	r := many([]string{"tokens", "a"}, []string{"spare", "a"})
	s.both(r, "0, 1", "0, 1")
	s.both(r, "OK: over 0, 0", "0, 0")
	s.both(r, "over 0, over 0", "over 0, over 0")
	old.answer(time.Now(), one("tokens", "a"))
	if got := words(old.answer(time.Now(), one("tokens", "a"))); got != "0" {
		t.Errorf("of January: %s", got)
	}
	// One that is over with nobody to spare for it refuses, unless it only shadows.
	s.both(many([]string{"tokens", "a"}, []string{"ip", "a"}), "over 0, 2", "over 0, 3")
	s.both(many([]string{"tokens", "a"}, []string{"quiet", "a"}), "OK: over 0, 0", "0, 0")
}

// What is over says how long to wait until it fits, and nothing where no time helps.
func whatOverSays(t *testing.T) {
	s := newSides(
		t, "", &rule{key: "ip", limit: per(4, minute)}, &rule{key: "org", limit: per(4, hour)}, &rule{key: "ban", limit: per(0, second)},
		&rule{key: "quiet", shadow: true, limit: per(2, hour)},
	)
	time.Sleep(10 * time.Second)
	s.both(one("ip", "a").hitting(4), "0", "0")
	s.reset(one("ip", "a"), 50*time.Second, 15*time.Second)
	s.reset(one("ip", "a").hitting(5), 50*time.Second, -1)
	s.reset(one("org", "a").hitting(5), 3590*time.Second, -1)
	s.reset(one("ban", "a"), time.Second, -1)
	s.reset(one("ip", "b"), 50*time.Second, 15*time.Second) // until it is full again
	s.both(one("quiet", "a").hitting(3), "0", "0")
	s.both(one("quiet", "a").hitting(2), "0", "0") // free, and so there is room yet
	s.both(one("quiet", "a"), "0", "0")
}

func storeAway(t *testing.T) {
	for _, choice := range []string{"allow", "deny"} {
		s := newSides(t, "{on_unavailable: "+choice+"}", &rule{key: "ip", limit: per(1, minute)}, &rule{key: "org", limit: per(3, hour)})
		s.here.away.Store(true)
		s.mete(one("ip", "a"), "0")
		s.mete(one("ip", "a"), "over 0")
		s.mete(one("none", "a"), "-")
		got, err := s.here.ask(one("org", "a"))
		if choice == "allow" && (err != nil || got.over) || choice == "deny" && err == nil {
			t.Errorf("on_unavailable: %s: %s, %v", choice, words(got), err)
		}
	}
}

// There calls fail and the health check says all is well.
func neverValid(t *testing.T) {
	s := newSides(t, "", &rule{key: "org", limit: per(1, hour)})
	s.here.catalog.PutBroken(plan.KindRateLimits, "broken", 9, "rate limits broken have never been valid", nil)
	s.here.publish()
	r := one("org", "a")
	r.domain = "broken"
	got, err := s.here.ask(r)
	if err != nil || got.over || strings.Contains(words(got), "0") {
		t.Errorf("as if the store were away, which is allow unless said: %s, %v", words(got), err)
	}
	s.mete(one("org", "a"), "0")
}
