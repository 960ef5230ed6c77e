package authz

import (
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
	Uncounted int64 // requests decided by on_unavailable and not counted, for lack of room (C26)
}

// A RefusalKey tells which limit refused.
type RefusalKey struct{ App, Plan, Limit string }

const outcomes = int(NotReady) + 1

type appCounts [outcomes]atomic.Int64

type stats struct {
	apps      sync.Map // name to *appCounts; read by every request
	uncounted atomic.Int64

	mu       sync.Mutex
	refusals map[RefusalKey]int64
}

func newStats() *stats {
	return &stats{refusals: make(map[RefusalKey]int64)}
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

func (s *stats) read() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Stats{
		Decisions: make(map[string]map[Outcome]int64),
		Refusals:  make(map[RefusalKey]int64, len(s.refusals)),
		Uncounted: s.uncounted.Load(),
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
	return out
}
