package authz

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Stats are counts since the Decider began. The sets of apps, plans and limits
// bound them: no tenant is named (case C145).
type Stats struct {
	Decisions map[string]map[Outcome]int64 // by app; "" for requests of no app
	Refusals  map[RefusalKey]int64
	Tenants   int64 // kept now
	Evicted   int64
	// Counters are those of rate limit descriptors that are kept now.
	Counters, EvictedCounters int64

	Shared    int64 // requests, and descriptors, that were decided by a slot that names without room share
	Uncounted int64 // units that those used, which are in no account (C26)

	OnBehalfRejected map[OnBehalfKey]int64 // signed headers whose token did not hold (C10)
	UnknownRoutes    map[string]int64      // requests that named a rule which is none, by app

	Sealed    int64             // reservations that can be settled
	Settled   map[Settled]int64 // settlements by what became of them
	Unsettled int64             // reservations, also of processes before this one, that are not settled now: their requests run, or no word of them has come
	Missing   int64             // reservations of which no word has come and none is expected any more: what was reserved is what is used
	Unsealed  int64             // admitted requests that can never be settled, for lack of a key
	// Reportable are the reservations that the app may report on now; PushedOut and Expired
	// those that it has not reported on and cannot any more: they were too many, or more than
	// a day old.
	Reportable, PushedOut, Expired int64

	BadUnits int64 // numbers of used units that were none
	AboveMax int64 // requests that used more than their route's max
	// UnknownTariffs are requests of which nobody remembered what they cost, see
	// [plan.Snapshot.Tariff].
	UnknownTariffs int64
	// Forgiven are units that rate limits were owed and are not any more, because a debt
	// is bounded.
	Forgiven int64

	Rules             []RuleStat // of rate limit domains, those with hits
	RuleSeries        int64      // places that series of rules take up, of Config.MaxRuleSeries
	RuleSeriesDropped int64      // hits counted under OtherRules for lack of room

	FailedConditions map[string]int64 // by rate limit domain, see [plan.Snapshot.FailedConditions]
}

// A RefusalKey tells which limit refused.
type RefusalKey struct{ App, Plan, Limit string }

const outcomes = int(NotReady) + 1

type appCounts [outcomes]atomic.Int64

type stats struct {
	apps      sync.Map // name to *appCounts; read by every request
	uncounted atomic.Int64

	rules *ruleStats

	unsealed, badUnits, aboveMax atomic.Int64
	unknownTariffs               atomic.Int64
	forgiven                     atomic.Int64 // of debts, in units
	settled                      SettledTally

	mu       sync.Mutex
	refusals map[RefusalKey]int64
	onBehalf map[OnBehalfKey]int64
	unknown  map[string]int64 // routes
}

func newStats(maxRuleSeries int) *stats {
	return &stats{
		rules:    newRuleStats(maxRuleSeries),
		refusals: make(map[RefusalKey]int64), onBehalf: make(map[OnBehalfKey]int64), unknown: make(map[string]int64),
	}
}

func (s *stats) app(name string) *appCounts {
	c, ok := s.apps.Load(name)
	if !ok {
		c, _ = s.apps.LoadOrStore(name, new(appCounts))
	}
	return c.(*appCounts) // nothing else is ever stored
}

func (s *stats) count(dec *Decision) {
	name := ""
	if dec.App != nil {
		name = dec.App.Name
	}
	s.app(name)[dec.Outcome].Add(1)
	if dec.Worst < 0 {
		return
	}
	worst := &dec.Limits[dec.Worst]
	s.mu.Lock()
	s.refusals[RefusalKey{App: name, Plan: worst.Plan, Limit: worst.Limit.Name}]++
	s.mu.Unlock()
}

func (s *stats) rejectOnBehalf(k OnBehalfKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onBehalf[k]++
}

func (s *stats) unknownRoute(app string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unknown[app]++
}

func (s *stats) read() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{
		Decisions: make(map[string]map[Outcome]int64),
		Refusals:  make(map[RefusalKey]int64, len(s.refusals)),
		Uncounted: s.uncounted.Load(),

		OnBehalfRejected: maps.Clone(s.onBehalf), UnknownRoutes: maps.Clone(s.unknown),
		Settled: make(map[Settled]int64), Unsealed: s.unsealed.Load(),
		BadUnits: s.badUnits.Load(), AboveMax: s.aboveMax.Load(), Forgiven: s.forgiven.Load(),
		UnknownTariffs: s.unknownTariffs.Load(),
	}
	for i, n := range s.settled.Read() {
		if n > 0 {
			out.Settled[Settled(i)] = int64(n) //nolint:gosec // nobody counts so far
		}
	}
	s.apps.Range(func(name, counts any) bool {
		by := make(map[Outcome]int64)
		for o := range outcomes {
			if n := counts.(*appCounts)[o].Load(); n > 0 {
				by[Outcome(o)] = n
			}
		}
		out.Decisions[name.(string)] = by
		return true
	})
	for k, n := range s.refusals {
		out.Refusals[k] = n
	}
	s.rules.read(&out)
	return out
}
