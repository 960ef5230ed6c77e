package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/ledger"
	"github.com/meteproject/mete/peers"
)

// settlementReadings is what the parts that settle tell of themselves at one moment.
type settlementReadings struct {
	Decider authz.Stats
	Envoy   envoy.Stats
	Router  peers.Stats
	Events  *ledger.Stats // nil: none are written
}

// A settlementCollector reads the parts that settle when Prometheus asks.
type settlementCollector struct {
	read func() settlementReadings

	reserved, unsettled, missing, unsealed, settled, badUnits, aboveMax, unknownTariffs, forgiven *prometheus.Desc
	entries, logBatches, logBytes, logTooLarge, logStreams, unnumbered                            *prometheus.Desc
	forwarded, received, inherited, lost, retries, peersAway, queued, waits                       *prometheus.Desc
	events, eventsDropped, eventsMerged, eventsPending, eventsFailed                              *prometheus.Desc
	onBehalf, unknownRoutes, reportable, unreportable                                             *prometheus.Desc
}

func newSettlementCollector(read func() settlementReadings) *settlementCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("mete_"+name, help, labels, nil)
	}
	return &settlementCollector{
		read:           read,
		reserved:       desc("reservations_total", "Requests that were charged to quotas and can be settled."),
		unsettled:      desc("reservations_unsettled", "Reservations, also those that processes before this one have left, that are not settled now: their requests run, or no word of them has come."),
		missing:        desc("reservations_missing_total", "Reservations of which no word is expected any more, because they are too old or their process was killed a minute before: what was reserved is what is used."),
		unsealed:       desc("reservations_unsealed_total", "Requests that were charged and can never be settled, for lack of a key."),
		settled:        desc("settlements_total", "Settlements by what became of them.", "result"),
		badUnits:       desc("settlement_bad_numbers_total", "Numbers of used units that are not a whole number from 0 up; what was reserved counts."),
		aboveMax:       desc("settlement_above_max_total", "Requests that used more than the max of their route."),
		unknownTariffs: desc("settlement_unknown_tariffs_total", "Requests of which nobody remembered what they cost when they were admitted: all sources of their units were asked, or what was reserved counts."),

		forgiven: desc("rate_debt_forgiven_units_total", "Units that requests used beyond their rate limits and that are not waited for, because a debt is at most ten windows."),

		entries:     desc("access_log_entries_total", "Entries of Envoy's access log by kind.", "kind"),
		logBatches:  desc("access_log_messages_total", "Messages of Envoy's access log."),
		logBytes:    desc("access_log_bytes_total", "Bytes of Envoy's access log."),
		logTooLarge: desc("access_log_too_large_total", "Messages of Envoy's access log that were too large; their entries are lost."),
		logStreams:  desc("access_log_streams", "Open streams of Envoy's access log."),
		unnumbered:  desc("ratelimit_settlements_unnumbered_total", "Settlements by the rate limit service without hits_addend or without a reservation."),

		forwarded: desc("settlements_forwarded_total", "Settlements that another replica has taken, by its result.", "result"),
		received:  desc("settlements_received_total", "Settlements that other replicas passed on to this one, by result.", "result"),
		inherited: desc("settlements_inherited_total", "Settlements of replicas that are gone, by result.", "result"),
		lost:      desc("settlements_lost_total", "Settlements that could not be passed on: what was reserved is what is used.", "reason"),
		retries:   desc("settlement_forward_retries_total", "Calls to other replicas that failed and were made again."),
		peersAway: desc("peers_unreachable", "Live replicas that cannot be reached at their advertise-address."),
		queued:    desc("settlements_queued", "Settlements that wait for another replica."),
		waits:     desc("settlements_oldest_wait_seconds", "How long the oldest of them has waited."),

		events:        desc("usage_events_total", "Usage events written."),
		eventsDropped: desc("usage_events_dropped_units_total", "Units that are in no usage event, for lack of room.", "outcome"),
		eventsMerged:  desc("usage_events_merged_units_total", "Units whose usage event tells no principal, route and attribution, for lack of room."),
		eventsPending: desc("usage_events_pending", "Usage events to be written."),
		eventsFailed:  desc("usage_events_write_failures_total", "Writes of usage events that failed and are tried again."),

		reportable:   desc("reservations_reportable", "Reservations that the app may report on or extend now, of all routes that list report."),
		unreportable: desc("reservations_unreportable_total", "Reservations that the app has not reported on and cannot any more; full: its tenant had the most open ones when there were too many, expired: a day old.", "reason"),

		onBehalf:      desc("on_behalf_rejected_total", "Requests with an on-behalf token that was not honoured: they are counted as usual.", "app", "header", "reason"),
		unknownRoutes: desc("unknown_routes_total", "Requests whose Envoy route names a rule that is not there.", "app"),
	}
}

// Describe implements [prometheus.Collector].
func (c *settlementCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.reserved, c.unsettled, c.missing, c.unsealed, c.settled, c.badUnits, c.aboveMax, c.unknownTariffs, c.forgiven,
		c.entries, c.logBatches, c.logBytes, c.logTooLarge, c.logStreams, c.unnumbered,
		c.forwarded, c.received, c.inherited, c.lost, c.retries, c.peersAway, c.queued, c.waits,
		c.events, c.eventsDropped, c.eventsMerged, c.eventsPending, c.eventsFailed,
		c.onBehalf, c.unknownRoutes, c.reportable, c.unreportable,
	} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *settlementCollector) Collect(ch chan<- prometheus.Metric) {
	r := c.read()
	s := sink{ch}
	s.counter(c.reserved, r.Decider.Sealed)
	s.gauge(c.unsettled, float64(r.Decider.Unsettled))
	s.counter(c.missing, r.Decider.Missing)
	s.counter(c.unsealed, r.Decider.Unsealed)
	s.counter(c.badUnits, r.Decider.BadUnits)
	s.counter(c.aboveMax, r.Decider.AboveMax)
	s.counter(c.unknownTariffs, r.Decider.UnknownTariffs)
	s.counter(c.forgiven, r.Decider.Forgiven)
	for result := authz.SettledAsReserved; result <= authz.SettledLate; result++ { // what was settled here, no matter which replica heard of it
		s.counter(c.settled, r.Decider.Settled[result], result.Word())
	}
	for result := authz.SettledForged; result <= authz.SettledDropped; result++ {
		s.counter(c.settled, int64(r.Router.Settled[result]), result.Word()) //nolint:gosec // no process lives that long
	}
	s.gauge(c.reportable, float64(r.Decider.Reportable))
	s.counter(c.unreportable, r.Decider.PushedOut, "full")
	s.counter(c.unreportable, r.Decider.Expired, "expired")
	for key, n := range r.Decider.OnBehalfRejected {
		s.counter(c.onBehalf, n, key.App, key.Header, key.Reason)
	}
	for app, n := range r.Decider.UnknownRoutes {
		s.counter(c.unknownRoutes, n, app)
	}
	c.collectLogs(s, r.Envoy)
	c.collectPeers(s, r.Router)
	if r.Events != nil {
		c.collectEvents(s, r.Events)
	}
}

// collectLogs tells what Envoy's access log brings.
func (c *settlementCollector) collectLogs(s sink, r envoy.Stats) {
	var settled uint64
	for _, n := range r.Logs.Settled {
		settled += n
	}
	for kind, n := range map[string]uint64{
		"reserved": settled, "unreserved": r.Logs.Unreserved, "intermediate": r.Logs.Intermediate,
		"malformed": r.Logs.Malformed, "tcp": r.Logs.TCP, "broken": r.Logs.Broken,
	} {
		s.counter(c.entries, int64(n), kind) //nolint:gosec // no process lives that long
	}
	s.counter(c.logBatches, int64(r.Logs.Batches))            //nolint:gosec // no process lives that long
	s.counter(c.logBytes, int64(r.Logs.Bytes))                //nolint:gosec // no process lives that long
	s.counter(c.logTooLarge, int64(r.Logs.TooLarge))          //nolint:gosec // no process lives that long
	s.counter(c.unnumbered, int64(r.Unnumbered+r.Unreserved)) //nolint:gosec // no process lives that long
	s.gauge(c.logStreams, float64(r.Logs.Streams))
}

// collectPeers tells what goes to and comes from other replicas.
func (c *settlementCollector) collectPeers(s sink, r peers.Stats) {
	for result := authz.SettledAsReserved; result <= authz.SettledMalformed; result++ {
		s.counter(c.forwarded, int64(r.Forwarded[result]), result.Word()) //nolint:gosec // no process lives that long
		s.counter(c.received, int64(r.Received[result]), result.Word())   //nolint:gosec // no process lives that long
		s.counter(c.inherited, int64(r.Inherited[result]), result.Word()) //nolint:gosec // no process lives that long
	}
	s.counter(c.lost, int64(r.Doubtful), "unknown")                                //nolint:gosec // no process lives that long
	s.counter(c.lost, int64(r.Forwarded[0]+r.Inherited[0]), "failed")              //nolint:gosec // no process lives that long
	s.counter(c.lost, int64(r.Overflowed+r.Settled[authz.SettledDropped]), "full") //nolint:gosec // no process lives that long
	s.counter(c.retries, int64(r.Retries))                                         //nolint:gosec // no process lives that long
	s.gauge(c.peersAway, float64(r.Away))
	s.gauge(c.queued, float64(r.Queued))
	s.gauge(c.waits, r.OldestWaiting.Seconds())
}

// collectEvents tells how usage events are written.
func (c *settlementCollector) collectEvents(s sink, r *ledger.Stats) {
	s.counter(c.events, r.Events)
	for _, o := range []ledger.Outcome{ledger.Counted, ledger.Refunded} {
		s.counter(c.eventsDropped, r.Dropped[o], o.Word())
	}
	s.counter(c.eventsMerged, r.Merged)
	s.gauge(c.eventsPending, float64(r.Pending))
	s.counter(c.eventsFailed, r.Failures)
}
