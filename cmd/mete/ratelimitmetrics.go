package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/meteproject/mete/authz"
)

// A ratelimitCollector reads what the rules of rate limit domains have counted when
// Prometheus asks. The names are those of envoyproxy/ratelimit's statistics. Domain and
// rule are the only labels, and max-ratelimit-series bounds their values (case C027).
type ratelimitCollector struct {
	read func() authz.Stats

	hits, within, near, over, shadow, series, overflow, conditions *prometheus.Desc
}

func newRatelimitCollector(read func() authz.Stats) *ratelimitCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("mete_ratelimit_"+name, help, labels, nil)
	}
	return &ratelimitCollector{
		read:       read,
		hits:       desc("hits_total", "Hits of a rate limit rule.", "domain", "rule"),
		within:     desc("within_limit_total", "Hits that the rule had room for, those of requests that another rule refused included.", "domain", "rule"),
		near:       desc("near_limit_total", "Hits within the limit and above 80 % of it.", "domain", "rule"),
		over:       desc("over_limit_total", "Hits that the rule had no room for, those that shadow_mode or quota_mode let on included.", "domain", "rule"),
		shadow:     desc("shadow_mode_total", "Hits over the limit that shadow_mode let on.", "domain", "rule"),
		series:     desc("series", "Places of max-ratelimit-series that are taken: by rules, also of documents that are gone, and by the (other) of each domain."),
		overflow:   desc("series_overflow_total", "Hits counted under the rule (other), because all series are taken."),
		conditions: desc("condition_errors_total", "Conditions (when) that could not be told, mostly for a key that the descriptor has not, so that their rules held.", "domain"),
	}
}

// Describe implements [prometheus.Collector].
func (c *ratelimitCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.hits, c.within, c.near, c.over, c.shadow, c.series, c.overflow, c.conditions} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *ratelimitCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.read()
	s := sink{ch}
	for i := range r.Rules {
		rule := &r.Rules[i]
		s.counter(c.hits, rule.Total, rule.Domain, rule.Rule)
		s.counter(c.within, rule.Within, rule.Domain, rule.Rule)
		s.counter(c.near, rule.Near, rule.Domain, rule.Rule)
		s.counter(c.over, rule.Over, rule.Domain, rule.Rule)
		s.counter(c.shadow, rule.Shadow, rule.Domain, rule.Rule)
	}
	s.gauge(c.series, float64(r.RuleSeries))
	s.counter(c.overflow, r.RuleSeriesDropped)
	for domain, n := range r.FailedConditions {
		s.counter(c.conditions, n, domain)
	}
}
