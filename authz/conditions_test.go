package authz_test

import (
	"testing"
	"time"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store/storetest"
)

// A rule whose condition cannot be told holds, and that is counted (P18).
func TestCountDescriptors_P18_AConditionThatCannotBeToldHolds(t *testing.T) {
	t.Parallel()
	docs, problems := plan.Decode("f", []byte("domain: edge\ndescriptors:\n- {key: op, when: 'descriptor.plan != \"gold\"', rate_limit: {unit: minute, requests_per_unit: 0}}\n"))
	if plan.Refused(problems) {
		t.Fatal(problems)
	}
	catalog := plan.NewCatalog()
	catalog.Put(docs[0], 1)
	d := authz.New(authz.Config{Keeper: quota.NewKeeper(quota.KeeperConfig{Store: &storetest.Memory{}, Now: time.Now}, "r1"), Now: time.Now})
	if n := len(d.Stats().FailedConditions); n != 0 {
		t.Errorf("without documents: %d", n)
	}
	d.SetSnapshot(catalog.Snapshot())
	c := new(authz.Count)
	asks := []authz.DescriptorAsk{{Entries: []plan.DescriptorEntry{{Key: "op", Value: "x"}}, Hits: 1}}
	d.CountDescriptors(t.Context(), time.Now(), "edge", asks, false, c)
	if got := d.Stats().FailedConditions["edge"]; c.Outcome != authz.RateLimited || got != 1 {
		t.Errorf("outcome %v, %d conditions could not be told; want a refusal and 1", c.Outcome, got)
	}
}
