package authz

import (
	"sync"
	"sync/atomic"

	"github.com/meteproject/mete/quota"
)

// Stats are counts since the Decider began. The sets of apps, plans and limits
// bound them: no tenant is named (case C145).
type Stats struct {
	Decisions map[string]map[Outcome]int64 // by app; "" for requests of no app
	Refusals  map[RefusalKey]int64
	Overshoot map[quota.Cause]int64 // units; every cause is there
	Tenants   int64                 // kept now
	Evicted   int64
}

// A RefusalKey tells which limit refused.
type RefusalKey struct{ App, Plan, Limit string }

const outcomes = int(NotReady) + 1

type appCounts [outcomes]atomic.Int64

type stats struct {
	mu       sync.RWMutex
	apps     map[string]*appCounts
	refusals map[RefusalKey]int64
	over     map[quota.Cause]*atomic.Int64
}

func newStats() *stats {
	s := &stats{
		apps: make(map[string]*appCounts), refusals: make(map[RefusalKey]int64),
		over: make(map[quota.Cause]*atomic.Int64),
	}
	for _, c := range quota.Causes() {
		s.over[c] = new(atomic.Int64)
	}
	return s
}

func (s *stats) app(name string) *appCounts {
	s.mu.RLock()
	c := s.apps[name]
	s.mu.RUnlock()
	if c != nil {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c = s.apps[name]; c == nil {
		c = new(appCounts)
		s.apps[name] = c
	}
	return c
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

func (s *stats) overshoot(c quota.Cause, units int64) { s.over[c].Add(units) }

func (s *stats) read() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := Stats{
		Decisions: make(map[string]map[Outcome]int64, len(s.apps)),
		Refusals:  make(map[RefusalKey]int64, len(s.refusals)),
		Overshoot: make(map[quota.Cause]int64, len(s.over)),
	}
	for name, counts := range s.apps {
		by := make(map[Outcome]int64)
		for o := range counts {
			if n := counts[o].Load(); n > 0 {
				by[Outcome(o)] = n
			}
		}
		out.Decisions[name] = by
	}
	for k, n := range s.refusals {
		out.Refusals[k] = n
	}
	for c, n := range s.over {
		out.Overshoot[c] = n.Load()
	}
	return out
}
