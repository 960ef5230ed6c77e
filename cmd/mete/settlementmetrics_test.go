package main

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/ledger"
)

// One scrape tells what became of every reservation, each once.
func TestMetrics_P29_A26_TheScrapeHoldsWhatBecameOfReservations(t *testing.T) {
	t.Parallel()
	var r settlementReadings
	r.Decider = authz.Stats{
		Sealed: 90, Unsettled: 8, Missing: 3, Unsealed: 2,
		Reportable: 40, PushedOut: 12, Expired: 13,
		Settled:          map[authz.Settled]int64{authz.SettledLess: 11},
		OnBehalfRejected: map[authz.OnBehalfKey]int64{{App: "w\xffb", Header: "x-on-behalf", Reason: "expired"}: 4},
		UnknownRoutes:    map[string]int64{"w\xffb": 5},
	}
	r.Router.Settled[authz.SettledLess] = 7 // of those
	r.Router.Settled[authz.SettledForged] = 6
	r.Router.Settled[authz.SettledElsewhere] = 5
	r.Router.Settled[authz.SettledDropped] = 2
	r.Router.Forwarded[authz.SettledFree], r.Router.Doubtful, r.Router.Overflowed, r.Router.Away = 4, 1, 3, 1
	r.Router.Forwarded[0], r.Router.Inherited[0] = 1, 1
	r.Envoy.Logs = envoy.LogStats{Streams: 2, Unreserved: 9, TooLarge: 1}
	r.Events = &ledger.Stats{}
	m := newMetrics()
	m.registry.MustRegister(newSettlementCollector(func() settlementReadings { return r }))
	code, body := ask(m.handler(), there, "GET", "/metrics", "")
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	for _, want := range []string{
		"mete_reservations_total 90", "mete_reservations_unsettled 8", "mete_reservations_missing_total 3", "mete_reservations_unsealed_total 2",
		"mete_reservations_reportable 40", `mete_reservations_unreportable_total{reason="full"} 12`, `mete_reservations_unreportable_total{reason="expired"} 13`,
		`mete_settlements_total{result="less"} 11`, `mete_settlements_total{result="forged"} 6`, `mete_settlements_total{result="elsewhere"} 5`,
		`mete_settlements_forwarded_total{result="free"} 4`, `mete_settlements_lost_total{reason="unknown"} 1`, `mete_settlements_lost_total{reason="full"} 5`, `mete_settlements_lost_total{reason="failed"} 2`,
		"mete_peers_unreachable 1", "mete_access_log_streams 2", `mete_access_log_entries_total{kind="unreserved"} 9`, "mete_access_log_too_large_total 1",
		"mete_on_behalf_rejected_total{", "mete_unknown_routes_total{", "mete_usage_events_pending 0",
	} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		if strings.HasPrefix(p.Metric, "mete_") {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	}
}
