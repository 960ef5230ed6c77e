package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/journal"
)

// readings is what the parts tell of themselves at one moment. Keys become labels:
// they are apps, kinds, outcomes and the like, never tenants (case C145).
type readings struct {
	Decider  authz.Stats
	Envoy    envoy.Stats
	Keeper   quota.KeeperStats
	Limits   []quota.LimitReading
	Accounts store.AccountStats
	Cluster  store.ClusterHealth
	Sweep    store.SweepStats
	Recovery quota.RecoveryStats
	Journal  journal.Stats
	Rejected map[string]int       // documents by kind
	NotAfter map[string]time.Time // certificates by use

	StoreUp  bool
	Writable bool  // etcd takes writes
	Untold   int64 // changes of which its watch never told
	Revision int64 // of the documents that are enforced
	Replicas int   // live
}

// metrics is what is observed as it happens, beside what the collector reads.
type metrics struct {
	registry *prometheus.Registry
	decision prometheus.Histogram
	lease    prometheus.Histogram
	apply    prometheus.Histogram
}

// newMetrics returns a registry of its own, with all metrics but the collector's:
// etcd registers two thousand on the default one.
func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		decision: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "mete_decision_duration_seconds",
			Help: "Time from a question of Envoy to its answer.",
			// 5 ms and 300 ms are lines that alerts and dashboards look at.
			Buckets: []float64{.00005, .0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .3, .5, 1},
		}),
		lease: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "mete_lease_wait_seconds",
			Help:    "Time that requests with nothing left waited for a lease.",
			Buckets: []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .2, .3, .5, 1},
		}),
	}
	m.apply = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "mete_config_apply_delay_seconds",
		Help:    "Time from the arrival of a change of documents until it was enforced or rejected.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15},
	})
	b := build()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "mete_build_info", Help: "What this binary is; always 1.",
		ConstLabels: prometheus.Labels{"version": b.Version, "commit": b.Commit, "goversion": b.Go},
	})
	info.Set(1)
	m.registry.MustRegister(m.decision, m.lease, m.apply, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

func (m *metrics) handler() http.Handler {
	// One bad value costs one metric, not the scrape.
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError})
}

// A collector reads the parts when Prometheus asks, so that metrics cost the
// requests nothing.
type collector struct {
	read func() readings

	decisions, unavailable, refusals, undecided, evicted, outgone, overshoot, leases, leaseUnits, purses, rejected, notAfter *prometheus.Desc
	storeUp, writable, untold, revision, tenants, counters, replicas                                                         *prometheus.Desc

	leased, bound, pending, letOn, dropped, recalls, returned                                      *prometheus.Desc
	storeOps, batched, roundTrip, failovers, quarantined, swept, ended, journalCells, unremembered *prometheus.Desc

	shared, queuedUnits, queuers, rationed *prometheus.Desc
}

func newCollector(read func() readings) *collector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("mete_"+name, help, labels, nil)
	}
	return &collector{
		read:        read,
		decisions:   desc("decisions_total", "Decisions by app and outcome.", "app", "outcome"),
		unavailable: desc("unavailable_decisions_total", "Decisions that on_unavailable made, by app and choice.", "app", "choice"),
		refusals:    desc("refusals_total", "Refusals by the limit that refused.", "app", "plan", "limit"),
		undecided:   desc("undecided_calls_total", "Calls that ended without an answer.", "reason"),
		evicted:     desc("evicted_tenants_total", "Tenants that were dropped from memory."),
		outgone:     desc("evicted_counters_total", "Counters of rate limit descriptors that were dropped from memory."),
		overshoot:   desc("overshoot_units_total", "Units used past a quota, by cause.", "cause"),
		leases:      desc("lease_requests_total", "Operations on accounts by what came of them.", "result"),
		leaseUnits:  desc("lease_granted_units_total", "Units lent to this replica."),
		purses:      desc("purses", "Purses by state.", "state"),
		rejected:    desc("config_rejected_documents", "Documents whose newest edit is not enforced.", "kind"),
		notAfter:    desc("tls_certificate_not_after_timestamp_seconds", "When the certificates in use end.", "use"),
		storeUp:     desc("store_up", "Whether etcd answers."),
		untold:      desc("store_untold_changes_total", "Changes of documents of which etcd's watch never told; they were found when everything was read again."),
		writable:    desc("store_writable", "Whether etcd takes writes, as far as it has answered."),
		revision:    desc("config_revision", "Revision of etcd that the enforced documents are of."),
		tenants:     desc("cached_tenants", "Tenants kept in memory."),
		counters:    desc("cached_counters", "Counters of rate limit descriptors kept in memory."),
		replicas:    desc("replicas", "Live replicas, this one included."),

		leased:       desc("lease_outstanding_units", "Units that the accounts count as leased to this replica.", "app", "limit"),
		bound:        desc("overshoot_bound_units", "By how much tenants can go past their quotas should this replica be lost now.", "app", "limit"),
		pending:      desc("usage_pending_units", "Units used and not reported yet.", "app", "limit"),
		letOn:        desc("unavailable_units_total", "Units let on without a lease while etcd was away."),
		shared:       desc("shared_requests_total", "Requests, and descriptors, decided by a slot that names share for which memory or max-new-accounts leaves no room."),
		queuedUnits:  desc("queued_units_total", "Units let on without a lease because so many waited for one that etcd was not asked in time."),
		queuers:      desc("lease_queue_timeouts_total", "Times that a request stopped waiting for a lease before etcd was asked for it, and on_unavailable decided that request alone."),
		rationed:     desc("rationed_accounts_total", "Accounts that new names without a document did not get, by max-new-accounts."),
		dropped:      desc("usage_dropped_units_total", "Units used that are never billed: held for more than 10 min, or of names that shared a slot for lack of room.", "reason"),
		recalls:      desc("recalls_total", "Times that other replicas were asked for units."),
		returned:     desc("recalled_units_total", "Units returned because another replica asked for them."),
		storeOps:     desc("store_requests_total", "Requests to etcd on behalf of accounts; lost: computed again, unknown: of unknown outcome.", "kind"),
		batched:      desc("store_operations_total", "Operations on accounts that the requests carried."),
		roundTrip:    desc("store_round_trip_seconds", "Shortest round trip to etcd of the last seconds; 0: not known. A first lease takes two."),
		failovers:    desc("store_failovers_total", "Times that another endpoint of etcd became the preferred one."),
		quarantined:  desc("store_quarantined_endpoints", "Endpoints of etcd that are avoided because they did not answer."),
		swept:        desc("reclaimed_units_total", "Units that a sweep took back from replicas that are gone."),
		ended:        desc("removed_counters_total", "Accounts of rate limit descriptors, and of tenants without a document, that a sweep removed, their windows long over."),
		journalCells: desc("journal_cells", "Purses whose use the journal remembers now."),
		unremembered: desc("journal_unremembered_purses_total", "Purses that the journal had no room for: a kill loses what they have not reported."),
	}
}

// Describe implements [prometheus.Collector].
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.decisions, c.unavailable, c.refusals, c.undecided, c.evicted, c.outgone, c.overshoot, c.leases, c.leaseUnits, c.purses, c.rejected, c.notAfter,
		c.storeUp, c.writable, c.untold, c.revision, c.tenants, c.counters, c.replicas,
		c.leased, c.bound, c.pending, c.letOn, c.dropped, c.recalls, c.returned,
		c.storeOps, c.batched, c.roundTrip, c.failovers, c.quarantined, c.swept, c.ended, c.journalCells, c.unremembered,
		c.shared, c.queuedUnits, c.queuers, c.rationed,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	r := c.read()
	s := sink{ch}
	for app, counts := range r.Decider.Decisions {
		sums := map[string]int64{}
		for o, n := range counts {
			sums[outcomeLabel(o)] += n
		}
		for label, n := range sums {
			s.counter(c.decisions, n, app, label)
		}
		// Also those that never happened: an alert on what is not there never fires.
		s.counter(c.unavailable, counts[authz.UnavailableAllowed], app, "allow")
		s.counter(c.unavailable, counts[authz.Unavailable], app, "deny")
	}
	for key, n := range r.Decider.Refusals {
		s.counter(c.refusals, n, key.App, key.Plan, key.Limit)
	}
	for _, cause := range quota.Causes() { // also those that never happened
		units := r.Keeper.Overshoot[cause]
		if cause == quota.ReplicaLost {
			units += r.Recovery.Lost
		}
		s.counter(c.overshoot, units, string(cause))
	}
	s.counter(c.evicted, r.Decider.Evicted)
	s.counter(c.outgone, r.Decider.EvictedCounters)
	for end, n := range map[string]uint64{"gone": r.Envoy.Gone, "malformed": r.Envoy.Malformed, "panic": r.Envoy.Panics} {
		s.counter(c.undecided, int64(n), end) //nolint:gosec // no process lives that long
	}
	for result, n := range map[string]int64{
		"granted": r.Keeper.Granted, "refused": r.Keeper.Refused, "reported": r.Keeper.Reported,
		"stale": r.Keeper.Stale, "gone": r.Keeper.Gone, "failed": r.Keeper.Failed,
	} {
		s.counter(c.leases, n, result)
	}
	s.counter(c.leaseUnits, r.Keeper.GrantedUnits)
	s.gauge(c.purses, float64(r.Keeper.Purses), "open")
	s.gauge(c.purses, float64(r.Keeper.Queued), "queued")
	s.gauge(c.purses, float64(r.Keeper.InFlight), "in_flight")
	for kind, n := range r.Rejected {
		s.gauge(c.rejected, float64(n), kind)
	}
	for use, at := range r.NotAfter {
		s.gauge(c.notAfter, float64(at.Unix()), use)
	}
	s.gauge(c.storeUp, oneIf(r.StoreUp))
	s.gauge(c.writable, oneIf(r.Writable))
	s.counter(c.untold, r.Untold)
	s.gauge(c.revision, float64(r.Revision))
	s.gauge(c.tenants, float64(r.Decider.Tenants))
	s.gauge(c.counters, float64(r.Decider.Counters))
	s.gauge(c.replicas, float64(r.Replicas))
	c.collectLeases(s, r)
	c.collectStore(s, r)
}

// collectLeases tells what is out and what may go wrong with it.
func (c *collector) collectLeases(s sink, r readings) {
	for _, l := range withoutAmounts(r.Limits) {
		s.gauge(c.leased, float64(l.Leased), l.App, l.Limit)
		s.gauge(c.bound, float64(l.Bound), l.App, l.Limit)
		s.gauge(c.pending, float64(l.Pending), l.App, l.Limit)
	}
	s.counter(c.letOn, r.Keeper.LetOnUnits)
	s.counter(c.shared, r.Decider.Shared)
	s.counter(c.queuedUnits, r.Keeper.QueuedUnits)
	s.counter(c.queuers, r.Keeper.Queuers)
	s.counter(c.rationed, r.Keeper.Rationed)
	s.counter(c.dropped, r.Keeper.DroppedUnits+r.Recovery.Dropped, "held")
	s.counter(c.dropped, r.Decider.Uncounted, "full")
	s.counter(c.recalls, r.Keeper.Recalls)
	s.counter(c.returned, r.Keeper.ReturnedUnits)
	s.gauge(c.journalCells, float64(r.Journal.Cells))
	s.counter(c.unremembered, r.Journal.WithoutRoom)
}

// collectStore tells what etcd is asked.
func (c *collector) collectStore(s sink, r readings) {
	for kind, n := range map[string]int64{
		"read": r.Accounts.Reads, "write": r.Accounts.Writes, "lost": r.Accounts.Lost, "unknown": r.Accounts.Unknown,
	} {
		s.counter(c.storeOps, n, kind)
	}
	s.counter(c.batched, r.Accounts.Operations)
	s.gauge(c.roundTrip, r.Cluster.RoundTrip.Seconds())
	s.counter(c.failovers, r.Cluster.Failovers)
	s.gauge(c.quarantined, float64(len(r.Cluster.Quarantined)))
	s.counter(c.swept, r.Sweep.Units)
	s.counter(c.ended, r.Sweep.Ended)
}

// outcomeLabel returns the word for o in metrics.
func outcomeLabel(o authz.Outcome) string {
	switch o {
	case authz.Allowed:
		return "allowed"
	case authz.Exempt:
		return "exempt"
	case authz.Grace:
		return "grace"
	case authz.CountedOver:
		return "counted_over"
	case authz.UnavailableAllowed:
		return "unavailable_allow"
	case authz.Unavailable:
		return "unavailable_deny"
	case authz.RateLimited, authz.QuotaExceeded, authz.RequestTooLarge, authz.Unauthenticated, authz.TenantUnknown, authz.HeadersTooLarge:
		return "denied"
	case authz.NoApp:
		return "app_unknown"
	case authz.Undecided, authz.NotReady:
	}
	return "error"
}

func oneIf(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// sink takes the values of one scrape.
type sink struct{ ch chan<- prometheus.Metric }

func (s sink) counter(d *prometheus.Desc, n int64, labels ...string) {
	s.send(d, prometheus.CounterValue, float64(n), labels)
}

func (s sink) gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.send(d, prometheus.GaugeValue, v, labels)
}

func (s sink) send(d *prometheus.Desc, t prometheus.ValueType, v float64, labels []string) {
	for i := range labels {
		labels[i] = strings.ToValidUTF8(labels[i], "\uFFFD")
	}
	m, err := prometheus.NewConstMetric(d, t, v, labels...)
	if err != nil {
		m = prometheus.NewInvalidMetric(d, err)
	}
	s.ch <- m
}
