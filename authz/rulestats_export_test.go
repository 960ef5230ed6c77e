package authz

import "github.com/meteproject/mete/plan"

// A RuleCounter counts one descriptor again and again, and does nothing else of what a
// request costs.
type RuleCounter struct {
	stats *ruleStats
	t     counting
}

// NewRuleCounter returns a RuleCounter of a rule with a limit that has half of it left.
func NewRuleCounter(most int, s *plan.Snapshot, domain string, ask DescriptorAsk) *RuleCounter {
	c := &RuleCounter{stats: newRuleStats(most)}
	in := s.Domain(domain)
	m, _ := in.Table.Match(ask.Entries, nil)
	c.t = counting{
		cur: &current{replicas: 1}, asks: []DescriptorAsk{ask},
		Count: &Count{Domain: in, Items: []Counted{{Match: m, State: LimitState{Limit: m.Limit, Left: m.Limit.Amount / 2}}}},
	}
	c.t.scratch.items = make([]countItem, 1)
	return c
}

// Count counts.
func (c *RuleCounter) Count() { c.stats.count(&c.t) }

// RuleNames counts hits by name.
type RuleNames struct{ stats *ruleStats }

// NewRuleNames is newRuleStats.
func NewRuleNames(most int) RuleNames { return RuleNames{newRuleStats(most)} }

// Count counts one hit.
func (n RuleNames) Count(domain, rule string) { n.stats.series(domain, []byte(rule)).within.Add(1) }

// Stats is ruleStats.read.
func (n RuleNames) Stats() (s Stats) {
	n.stats.read(&s)
	return s
}
