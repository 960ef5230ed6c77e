package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/envoy"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A scrape tells of each rule what envoyproxy/ratelimit tells of it.
func TestMetrics_P1_P6_P17_C126_TheScrapeHoldsTheRules(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.registry.MustRegister(newRatelimitCollector(func() ratelimitReadings {
		asked := envoy.Stats{UnreadableUnits: 3, UnreadableDescriptors: 5}
		for o := range asked.Counted {
			asked.Counted[o] = 1 << o
		}
		return ratelimitReadings{Envoy: asked, Decider: authz.Stats{
			RuleSeries: 3, RuleSeriesDropped: 7, FailedConditions: map[string]int64{"edge": 4},
			Rules: []authz.RuleStat{
				{Domain: "edge", Rule: "svc_auth.user", Total: 10, Within: 2, Near: 1, Over: 8, Shadow: 6},
				{Domain: "edge", Rule: authz.OtherRules, Total: 7, Within: 7},
			},
		}}
	}))
	code, body := ask(m.handler(), there, "GET", "/metrics", "")
	if code != 200 {
		t.Fatalf("%d %s", code, body)
	}
	for _, want := range []string{
		`mete_ratelimit_hits_total{domain="edge",rule="svc_auth.user"} 10`,
		`mete_ratelimit_within_limit_total{domain="edge",rule="svc_auth.user"} 2`,
		`mete_ratelimit_near_limit_total{domain="edge",rule="svc_auth.user"} 1`,
		`mete_ratelimit_over_limit_total{domain="edge",rule="svc_auth.user"} 8`,
		`mete_ratelimit_shadow_mode_total{domain="edge",rule="svc_auth.user"} 6`,
		`mete_ratelimit_hits_total{domain="edge",rule="(other)"} 7`,
		fmt.Sprintf(`mete_ratelimit_requests_total{outcome="allowed"} %d`, 1<<authz.Allowed),
		fmt.Sprintf(`mete_ratelimit_requests_total{outcome="denied"} %d`, 1<<authz.RateLimited+1<<authz.QuotaExceeded+1<<authz.RequestTooLarge+1<<authz.Unauthenticated+1<<authz.TenantUnknown+1<<authz.HeadersTooLarge),
		fmt.Sprintf(`mete_ratelimit_requests_total{outcome="unknown_domain"} %d`, 1<<authz.NoApp),
		fmt.Sprintf(`mete_ratelimit_requests_total{outcome="unavailable_allow"} %d`, 1<<authz.UnavailableAllowed),
		fmt.Sprintf(`mete_ratelimit_requests_total{outcome="unavailable_deny"} %d`, 1<<authz.Unavailable),
		fmt.Sprintf(`mete_ratelimit_requests_total{outcome="error"} %d`, 1<<authz.Undecided+1<<authz.NotReady+1<<authz.Exempt+1<<authz.Grace+1<<authz.CountedOver),
		"mete_ratelimit_unreadable_units_total 3",
		"mete_ratelimit_unreadable_descriptors_total 5",
		"mete_ratelimit_series 3", "mete_ratelimit_series_overflow_total 7", `mete_ratelimit_condition_errors_total{domain="edge"} 4`,
	} {
		if !strings.Contains(body, want+"\n") {
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

// What never happened is there as well, or an alert on it would never fire.
func TestMetrics_P17_P10_OutcomesThatNeverHappened(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.registry.MustRegister(newRatelimitCollector(func() ratelimitReadings { return ratelimitReadings{} }))
	_, body := ask(m.handler(), there, "GET", "/metrics", "")
	for _, outcome := range []string{"allowed", "denied", "unavailable_allow", "unavailable_deny", "unknown_domain", "error"} {
		if want := fmt.Sprintf("mete_ratelimit_requests_total{outcome=%q} 0\n", outcome); !strings.Contains(body, want) {
			t.Errorf("no %s", want)
		}
	}
	if n := strings.Count(body, "mete_ratelimit_requests_total{"); n != 6 {
		t.Errorf("%d outcomes", n)
	}
}

// Whatever bytes callers send, the scrape succeeds and stays under the cap.
func TestMetrics_P6_C027_ValuesAsSentStayUnderTheCap(t *testing.T) {
	t.Parallel()
	docs, problems := plan.Decode("f", []byte("domain: edge\ndescriptors:\n- {key: op, value_to_metric: true, rate_limit: {unit: minute, requests_per_unit: 2}}\n"))
	if plan.Refused(problems) {
		t.Fatal(problems)
	}
	catalog := plan.NewCatalog()
	catalog.Put(docs[0], 1)
	d := authz.New(authz.Config{Keeper: quota.NewKeeper(quota.KeeperConfig{Store: &storetest.Memory{}, Now: time.Now}, "r1"), Now: time.Now, MaxRuleSeries: 600})
	d.SetSnapshot(catalog.Snapshot())
	c := new(authz.Count)
	for i := range 1 << 16 {
		value := string([]byte{byte(i), byte(i >> 8)})
		c.Reset()
		d.CountDescriptors(context.Background(), time.Now(), "edge", []authz.DescriptorAsk{{Entries: []plan.DescriptorEntry{{Key: "op", Value: value}}, Hits: 1}}, false, c)
	}
	m := newMetrics()
	m.registry.MustRegister(newRatelimitCollector(func() ratelimitReadings { return ratelimitReadings{Decider: d.Stats()} }))
	families, err := m.registry.Gather() // fails where two series have the same labels
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if n := len(f.GetMetric()); f.GetName() == "mete_ratelimit_hits_total" && (n < 500 || n > 600) {
			t.Errorf("%d series", n)
		}
	}
	want := fmt.Sprintf("mete_ratelimit_series_overflow_total %d", 1<<16-598)
	if _, body := ask(m.handler(), there, "GET", "/metrics", ""); !strings.Contains(body, "mete_ratelimit_series 600\n") || !strings.Contains(body, want+"\n") {
		t.Errorf("no mete_ratelimit_series 600, or no %s", want)
	}
}

// Limits that Envoy sends along are told together: their amounts are the callers', and
// would be as many series (C145).
func TestMetrics_C027_C051_AmountsOfOverridesAreNoLabels(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.registry.MustRegister(newCollector(func() readings {
		r := readings{Limits: []quota.LimitReading{
			{Limit: "ratelimit:per_hour", Leased: 1, Bound: 10, Pending: 100},
			{App: "api", Limit: "monthly", Leased: 5, Bound: 6, Pending: 7},
			{Limit: "ratelimit:per_6_hour=9", Leased: 3, Bound: 3, Pending: 3},
		}}
		for i := range 50 {
			r.Limits = append(r.Limits, quota.LimitReading{Limit: fmt.Sprintf("ratelimit:per_hour=%d", i), Leased: 1, Bound: 10, Pending: 100})
		}
		return r
	}))
	code, body := ask(m.handler(), there, "GET", "/metrics", "")
	for _, want := range []string{
		`mete_lease_outstanding_units{app="",limit="ratelimit:per_hour"} 51`, `mete_overshoot_bound_units{app="",limit="ratelimit:per_hour"} 510`,
		`mete_usage_pending_units{app="",limit="ratelimit:per_hour"} 5100`, `mete_lease_outstanding_units{app="",limit="ratelimit:per_6_hour"} 3`,
		`mete_lease_outstanding_units{app="api",limit="monthly"} 5`, `mete_usage_pending_units{app="api",limit="monthly"} 7`,
	} {
		if code != 200 || !strings.Contains(body, want+"\n") {
			t.Errorf("%d, no %s", code, want)
		}
	}
	if n := strings.Count(body, "mete_lease_outstanding_units{"); n != 3 {
		t.Errorf("%d series", n)
	}
}
