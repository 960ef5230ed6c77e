package main

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/meteproject/mete/envoy"
)

// An intakeCollector reads what the gRPC connections take, and what was refused for its size.
type intakeCollector struct {
	read func() envoy.Stats

	open, unfinished, closed, tooLarge, headers, omitted, forbidden *prometheus.Desc
}

func newIntakeCollector(read func() envoy.Stats) *intakeCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("mete_"+name, help, labels, nil)
	}
	return &intakeCollector{
		read:       read,
		open:       desc("grpc_connections", "gRPC connections that are open."),
		unfinished: desc("grpc_unfinished_bytes", "Memory of messages that have begun to come and are not whole."),
		closed:     desc("grpc_closed_connections_total", "gRPC connections that were closed: beyond max-connections, or because their messages took more than max-unfinished-bytes allows.", "reason"),
		tooLarge:   desc("grpc_too_large_messages_total", "Messages larger than max-message-bytes, which were refused: an Envoy with failure_mode_allow lets such requests on."),
		forbidden:  desc("grpc_forbidden_calls_total", "Calls that were refused because no name of the client's certificate may call the service."),
		headers:    desc("header_refusals_total", "Requests that were refused with 431, because their headers leave no room for those that say who calls; mete_decisions_total counts them as allowed."),
		omitted:    desc("omitted_request_headers_total", "Headers that were left out because the request had no room for them.", "header"),
	}
}

// Describe implements [prometheus.Collector].
func (c *intakeCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.open, c.unfinished, c.closed, c.tooLarge, c.headers, c.omitted, c.forbidden} {
		ch <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *intakeCollector) Collect(ch chan<- prometheus.Metric) {
	st := c.read()
	s := sink{ch}
	s.gauge(c.open, float64(st.Intake.Open))
	s.gauge(c.unfinished, float64(st.Intake.Unfinished))
	for _, one := range []struct {
		desc  *prometheus.Desc
		n     uint64
		label []string
	}{
		{c.closed, st.Intake.Refused, []string{"connections"}},
		{c.closed, st.Intake.Evicted, []string{"unfinished"}},
		{c.tooLarge, st.Intake.TooLarge, nil},
		{c.forbidden, st.Intake.Forbidden, nil},
		{c.headers, st.HeadersTooLarge(), nil},
		{c.omitted, st.LeftOutDecision, []string{"x-quota-decision"}},
		{c.omitted, st.LeftOutState, []string{"x-quota-state"}},
	} {
		s.counter(one.desc, int64(one.n), one.label...) //nolint:gosec // no process lives that long
	}
}
