package authz

import (
	"hash/maphash"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/meteproject/mete/plan"
)

// A RuleStat is how many hits one rule of a rate limit domain has had, as
// envoyproxy/ratelimit counts them, but for what all or nothing changes: of 7 hits
// against 2 left all 7 are over and none is near, for none was taken, while there 5 are
// over and 2 near. So a hit is either within or over.
type RuleStat struct {
	Domain string
	// Rule is the rule's name as [plan.DescriptorMatch.AppendSeries] has it, or
	// [OtherRules].
	Rule   string
	Total  int64 // Within and Over
	Within int64 // the rule had room for them, be it that another one refused the request
	// Near are those Within that landed above 80 % of the limit. A request that crosses
	// that line counts with what is above it.
	Near int64
	Over int64 // the rule had no room for them, whether that refused the request or not
	// Shadow are those Over that shadow mode let on.
	Shadow int64
}

// OtherRules is the name of the series of all rules of a domain that have none of their
// own, and the domain of the series for all domains of which even that is missing.
const OtherRules = "(other)"

// defaultRuleSeries is how many series there are unless the Config says otherwise.
const defaultRuleSeries = 10_000

// A ruleSeries is what one rule has counted.
type ruleSeries struct {
	domain, rule string
	hash         uint64
	next         *ruleSeries // with the same head
	other        bool        // of rules without a series

	within, near, over, shadow atomic.Int64
}

// ruleStats are the series of all rules. None ever goes, for a counter must not go back
// while the process runs: those of rules and domains that were deleted stay as they are
// and take their places until it ends. It is safe for concurrent use.
type ruleStats struct {
	seed  maphash.Seed
	most  int
	heads []atomic.Pointer[ruleSeries] // by hash; lists only grow, at their heads
	rest  *ruleSeries                  // of domains for which there is no room
	full  atomic.Bool                  // nothing new is taken in any more

	mu  sync.Mutex
	all []*ruleSeries // in the order in which they began; it only grows
}

// newRuleStats returns an empty ruleStats of at most most series, from 1 up; those of
// [OtherRules] are among them.
func newRuleStats(most int) *ruleStats {
	if most <= 0 {
		most = defaultRuleSeries
	}
	s := &ruleStats{seed: maphash.MakeSeed(), most: most, heads: make([]atomic.Pointer[ruleSeries], 1<<bits.Len(uint(most/2)))}
	name := []byte(OtherRules)
	s.rest = s.add(OtherRules, name, s.hash(OtherRules, name))
	return s
}

// count counts the descriptors of a request that has been decided, each for its rule.
// What could not be decided, looks of 0 hits, refunds, and rules that others replace
// count nothing. Hits of an answer that nobody hears stay counted. Nothing is allocated
// for series that there are.
func (s *ruleStats) count(t *counting) {
	if t.Outcome == Unavailable {
		return
	}
	var room [plan.MaxSeries + 32]byte // names are a little longer before they are cut
	for i := range t.Items {
		item, ask := &t.Items[i], &t.asks[i]
		if ask.Refund || ask.Hits <= 0 || item.State.Limit == nil && !item.Unlimited {
			continue
		}
		c := s.series(t.Domain.Name, item.Match.AppendSeries(room[:0], ask.Entries))
		switch over := t.scratch.items[i].over; {
		case item.Unlimited:
			c.within.Add(ask.Hits)
		case !over:
			c.within.Add(ask.Hits)
			if near := item.State.near(ask.Hits, t.cur.replicas); near > 0 {
				c.near.Add(near)
			}
		default:
			c.over.Add(ask.Hits)
			if item.Shadowed {
				c.shadow.Add(ask.Hits)
			}
		}
	}
}

// near returns how many of a request's hits are above 80 % of the limit, rounded down.
// Where they were only looked at, it is as if they had been taken. Of a limit that is
// split, a replica goes by its share.
func (s *LimitState) near(hits int64, replicas int) int64 {
	most := s.Limit.Amount
	if s.Limit.Kind == plan.Rate {
		most = rate(s.Limit, replicas).Burst
	}
	used := most - s.Left
	if s.Looked {
		used += hits
	}
	line := most/10*8 + most%10*8/10
	return max(0, min(hits, used-line))
}

// series returns the series of a rule, a new one if there is room, and else the one of
// [OtherRules]. The name is not kept.
func (s *ruleStats) series(domain string, rule []byte) *ruleSeries {
	h := s.hash(domain, rule)
	if c := s.find(domain, rule, h); c != nil {
		return c
	}
	if !s.full.Load() {
		if c := s.begin(domain, rule, h); c != nil {
			return c
		}
	}
	if c := s.others(domain); c != nil {
		return c
	}
	return s.rest
}

// others returns the series of a domain for rules that have none, or nil.
func (s *ruleStats) others(domain string) *ruleSeries {
	name := []byte(OtherRules)
	return s.find(domain, name, s.hash(domain, name))
}

func (s *ruleStats) hash(domain string, rule []byte) uint64 {
	return maphash.String(s.seed, domain)*31 + maphash.Bytes(s.seed, rule)
}

func (s *ruleStats) find(domain string, rule []byte, h uint64) *ruleSeries {
	for c := s.heads[h&uint64(len(s.heads)-1)].Load(); c != nil; c = c.next {
		if c.hash == h && c.rule == string(rule) && c.domain == domain {
			return c
		}
	}
	return nil
}

// begin adds the series of a rule, or returns nil where there is no room. A domain's
// first one needs room for that of its other rules, too.
func (s *ruleStats) begin(domain string, rule []byte, h uint64) *ruleSeries {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.find(domain, rule, h); c != nil {
		return c
	}
	left, first := s.most-len(s.all), s.others(domain) == nil
	if left < 1 || first && left < 2 {
		s.full.Store(true)
		return nil
	}
	if first {
		name := []byte(OtherRules)
		s.add(domain, name, s.hash(domain, name))
		if string(rule) == OtherRules {
			return s.others(domain)
		}
	}
	return s.add(domain, rule, h)
}

// add is called with s.mu held.
func (s *ruleStats) add(domain string, rule []byte, h uint64) *ruleSeries {
	head := &s.heads[h&uint64(len(s.heads)-1)]
	c := &ruleSeries{domain: strings.Clone(domain), rule: string(rule), hash: h, next: head.Load(), other: string(rule) == OtherRules}
	s.all = append(s.all, c)
	head.Store(c)
	return c
}

// read notes in out what was counted. Near is never above Within, nor Shadow above Over.
func (s *ruleStats) read(out *Stats) {
	s.mu.Lock()
	all := s.all
	s.mu.Unlock()
	out.RuleSeries, out.Rules = int64(len(all)), make([]RuleStat, 0, len(all))
	for _, c := range all {
		r := RuleStat{Domain: c.domain, Rule: c.rule, Near: c.near.Load(), Shadow: c.shadow.Load()}
		r.Within, r.Over = c.within.Load(), c.over.Load() // counted before those
		if r.Total = r.Within + r.Over; r.Total == 0 {
			continue
		}
		out.Rules = append(out.Rules, r)
		if c.other {
			out.RuleSeriesDropped += r.Total
		}
	}
}
