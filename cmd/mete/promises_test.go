package main

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
	"github.com/meteproject/mete/store/storetest"
)

// The list of causes of overshoot is closed: what is documented, what is in the
// code and what the metric counts are the same (A50).
func TestOvershoot_A50_OneClosedList(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/design.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## When a tenant can go over\n")
	section, _, _ = strings.Cut(section, "\n## ")
	if !found || !strings.Contains(section, "closed (A50)") {
		t.Fatal("docs/design.md has no section «When a tenant can go over» with a closed list")
	}
	var documented, coded []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(section, -1) {
		documented = append(documented, row[1])
	}
	for _, cause := range quota.Causes() {
		coded = append(coded, string(cause))
	}
	if len(coded) == 0 || !slices.Equal(documented, coded) {
		t.Errorf("documented %q\n    coded %q", documented, coded)
	}

	d := authz.New(authz.Config{Keeper: quota.NewKeeper(quota.KeeperConfig{Store: &storetest.Memory{}, Now: time.Now}, "r1"), Now: time.Now})
	counted := labelsOf(t, d, "mete_overshoot_units_total", "cause")
	slices.Sort(coded)
	if !slices.Equal(counted, coded) {
		t.Errorf("counted %q\n  coded %q", counted, coded)
	}
}

// What a keeper may have lost with an incarnation is counted as that cause (A45).
func TestOvershoot_A45_A50_LostUnitsAreCounted(t *testing.T) {
	t.Parallel()
	m := newMetrics()
	m.registry.MustRegister(newCollector(func() readings {
		return readings{Keeper: quota.KeeperStats{Overshoot: map[quota.Cause]int64{quota.ReplicaLost: 7}}}
	}))
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, series := range f.GetMetric() {
			if f.GetName() != "mete_overshoot_units_total" {
				continue
			}
			cause, got, want := series.GetLabel()[0].GetValue(), series.GetCounter().GetValue(), 0.0
			if cause == string(quota.ReplicaLost) {
				want = 7
			}
			if got != want {
				t.Errorf("%s: got %v, want %v", cause, got, want)
			}
		}
	}
}

// The longest stop is what mete serve --help promises.
func TestStop_TakesAtMostWhatHelpSays(t *testing.T) {
	t.Parallel()
	longest := gracefulFor + 2*httpGracefulFor + settleFor + store.LeaveTimeout + flushFor
	if spare := time.Second; longest+spare > 25*time.Second {
		t.Errorf("a stop may take %v", longest)
	}
	if help := serveCommand(env(nil)).Long; !strings.Contains(help, "up to 25 s more") {
		t.Errorf("help says %s", help)
	}
}

// labelsOf returns the values of the only label of a metric, as a scrape of d shows
// them.
func labelsOf(t *testing.T, d *authz.Decider, metric, label string) (values []string) {
	t.Helper()
	for _, series := range seriesOf(t, d) {
		if rest, ok := strings.CutPrefix(series, metric+"{"+label+"="); ok {
			values = append(values, strings.TrimSuffix(rest, "}"))
		}
	}
	return values
}

// The number of series depends on what is configured and never on how many
// customers there are (P29, C145).
func TestMetrics_P29_C145_SeriesAreBounded(t *testing.T) {
	t.Parallel()
	keeper := quota.NewKeeper(quota.KeeperConfig{Store: &storetest.Memory{}, Now: time.Now}, "r1")
	d := authz.New(authz.Config{Keeper: keeper, Now: time.Now})
	var limits strings.Builder
	for i := range 20 {
		fmt.Fprintf(&limits, "    limit_%d: {kind: rate, amount: 1, window: %dh}\n", i, i+1)
	}
	docs, problems := plan.Decode("", []byte(`apiVersion: mete/v1
kind: App
metadata: {name: api}
spec: {time_zone: UTC, identity: {tenant: [{request_header: x-tenant}]}, defaults: {plan: free}}
---
apiVersion: mete/v1
kind: Plan
metadata: {name: free}
spec:
  limits:
`+limits.String()))
	if plan.Refused(problems) {
		t.Fatal(problems)
	}
	catalog := plan.NewCatalog()
	for i, doc := range docs {
		catalog.Put(doc, int64(i+1))
	}
	d.SetSnapshot(catalog.Snapshot())

	dec := new(authz.Decision)
	ask := func(from, to int) {
		for i := from; i < to; i++ {
			dec.Reset()
			tenant := fmt.Sprintf("customer-%d\xff", i)
			d.Decide(context.Background(), time.Now(), &authz.Request{Headers: []authz.Field{{Name: "x-tenant", Value: tenant}}}, dec)
		}
	}
	ask(0, 100)
	ask(0, 100) // refused
	few := seriesOf(t, d)
	ask(100, 50_000)
	many := seriesOf(t, d)
	if len(few) == 0 || !slices.Equal(few, many) {
		t.Errorf("%d series for 100 customers, %d for 50,000", len(few), len(many))
	}
	for _, s := range many {
		if strings.Contains(s, "customer") {
			t.Errorf("a customer is named: %s", s)
		}
	}
}

// seriesOf returns all series of mete's own that a scrape of d shows, sorted and
// without their values.
func seriesOf(t *testing.T, d *authz.Decider) (all []string) {
	t.Helper()
	m := newMetrics()
	m.registry.MustRegister(newCollector(func() readings { return readings{Decider: d.Stats()} }))
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "mete_") {
			continue
		}
		for _, series := range f.GetMetric() {
			var labels []string
			for _, pair := range series.GetLabel() {
				labels = append(labels, pair.GetName()+"="+pair.GetValue())
			}
			all = append(all, f.GetName()+"{"+strings.Join(labels, ",")+"}")
		}
	}
	slices.Sort(all)
	return all
}
