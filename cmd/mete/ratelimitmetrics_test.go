package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A scrape tells of each rule what envoyproxy/ratelimit tells of it.
func TestMetrics_P1_P6_P17_C126_TheScrapeHoldsTheRules(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.registry.MustRegister(newRatelimitCollector(func() authz.Stats {
		return authz.Stats{
			RuleSeries: 3, RuleSeriesDropped: 7, FailedConditions: map[string]int64{"edge": 4},
			Rules: []authz.RuleStat{
				{Domain: "edge", Rule: "svc_auth.user", Total: 10, Within: 2, Near: 1, Over: 8, Shadow: 6},
				{Domain: "edge", Rule: authz.OtherRules, Total: 7, Within: 7},
			},
		}
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
	m.registry.MustRegister(newRatelimitCollector(d.Stats))
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
