package main

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
)

// ratelimitReadings is what tells of rate limit domains at one moment.
type ratelimitReadings struct {
	Decider authz.Stats
	Envoy   envoy.Stats
}

// A ratelimitCollector reads what the rules of rate limit domains have counted when
// Prometheus asks. The names are those of envoyproxy/ratelimit's statistics. Domain, rule
// and outcome are the only labels. max-ratelimit-series bounds the values of the first
// two (case C027): a domain that nobody has written down is never one.
type ratelimitCollector struct {
	read func() ratelimitReadings

	requests, unreadable, unreadAsks                               *prometheus.Desc
	hits, within, near, over, shadow, series, overflow, conditions *prometheus.Desc
}

func newRatelimitCollector(read func() ratelimitReadings) *ratelimitCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("mete_ratelimit_"+name, help, labels, nil)
	}
	return &ratelimitCollector{
		read:       read,
		requests:   desc("requests_total", "Requests that the rules of a rate limit domain were asked about. unknown_domain: no document has that domain, so that nothing was limited.", "outcome"),
		unreadable: desc("unreadable_units_total", "Descriptors for an app with an entry units that is not a number and names no unit of the app; it was left out."),
		unreadAsks: desc("unreadable_descriptors_total", "Descriptors with a limit of Envoy's that is none, or with more than is read; their rule decided, and what has no rule was refused."),
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
	for _, d := range []*prometheus.Desc{c.requests, c.unreadable, c.unreadAsks, c.hits, c.within, c.near, c.over, c.shadow, c.series, c.overflow, c.conditions} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *ratelimitCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.read()
	s := sink{ch}
	c.collectRequests(s, &r.Envoy)
	for i := range r.Decider.Rules {
		rule := &r.Decider.Rules[i]
		s.counter(c.hits, rule.Total, rule.Domain, rule.Rule)
		s.counter(c.within, rule.Within, rule.Domain, rule.Rule)
		s.counter(c.near, rule.Near, rule.Domain, rule.Rule)
		s.counter(c.over, rule.Over, rule.Domain, rule.Rule)
		s.counter(c.shadow, rule.Shadow, rule.Domain, rule.Rule)
	}
	s.gauge(c.series, float64(r.Decider.RuleSeries))
	s.counter(c.overflow, r.Decider.RuleSeriesDropped)
	for domain, n := range r.Decider.FailedConditions {
		s.counter(c.conditions, n, domain)
	}
}

// collectRequests tells what became of requests; also what never happened, for an alert on
// what is not there never fires.
func (c *ratelimitCollector) collectRequests(s sink, r *envoy.Stats) {
	sums := map[string]uint64{}
	for o, n := range r.Counted {
		sums[countedLabel(authz.Outcome(o))] += n
	}
	for label, n := range sums {
		s.counter(c.requests, int64(n), label) //nolint:gosec // no process lives that long
	}
	s.counter(c.unreadable, int64(r.UnreadableUnits))       //nolint:gosec // no process lives that long
	s.counter(c.unreadAsks, int64(r.UnreadableDescriptors)) //nolint:gosec // no process lives that long
}

// withoutAmounts puts the limits that Envoy has sent along together with the written ones
// of their window: their amounts come from requests, and each would be a series (C027).
func withoutAmounts(limits []quota.LimitReading) []quota.LimitReading {
	type label struct{ app, limit string }
	at := map[label]int{}
	out := make([]quota.LimitReading, 0, len(limits))
	for _, l := range limits {
		if _, counter := plan.ParseAccount(l.Limit); counter {
			l.Limit, _, _ = strings.Cut(l.Limit, "=")
		}
		i, again := at[label{l.App, l.Limit}]
		if !again {
			at[label{l.App, l.Limit}] = len(out)
			out = append(out, l)
			continue
		}
		out[i].Leased += l.Leased
		out[i].Pending += l.Pending
		out[i].Bound += l.Bound
	}
	return out
}

// countedLabel returns the word in metrics for what became of a request that rules were
// asked about.
func countedLabel(o authz.Outcome) string {
	switch o { //nolint:exhaustive // all others are as for apps
	case authz.NoApp:
		return "unknown_domain"
	case authz.Exempt, authz.Grace, authz.CountedOver: // rules have none of these
		return "error"
	}
	return outcomeLabel(o)
}
