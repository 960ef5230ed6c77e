package store_test

import (
	"fmt"
	"testing"

	"github.com/rs/zerolog"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// C001: a domain of as many documents as it may have is lent quotas: the conditions fit into
// a transaction of etcd, with holders that are gone beside them. More documents are rejected,
// and none that was in force before them.
func TestRateLimits_P70_C001_QuotasOfManyDocuments(t *testing.T) {
	t.Parallel()
	c := ownServer(t).Client()
	there := layout{}
	texts := map[string]string{}
	for i := range 50 {
		texts[fmt.Sprintf("d/%02d", i)] = fmt.Sprintf("domain: d\ndescriptors: [{key: k, value: v%d, rate_limit: {unit: day, requests_per_unit: 10}}]\n", i)
	}
	there.change(t, c, texts)
	r := startDocuments(t, c, zerolog.Nop())
	snap := r.until("50 documents", there.is)
	put(t, c, store.LiableKey("r"), "")
	for _, mode := range modes {
		accounts := accountsOver(c, mode)
		key := quota.Key{Root: mode.String(), Tenant: mode.String(), Limit: "l", Window: "w"}
		for i := range 40 {
			id := fmt.Sprint("gone", i)
			put(t, c, store.LiableKey(id), "")
			if _, err := accounts.Apply(t.Context(), quota.Operation{Key: key, Holder: id, Seq: 1, Used: 1, Ceiling: 1000, Replicas: 1}); err != nil {
				t.Fatal(err)
			}
			del(t, c, store.LiableKey(id))
		}
		op := quota.Operation{Key: key, Holder: "r", Seq: 1, Want: 1, Min: 1, Ceiling: 1000, Replicas: 1}
		for _, g := range snap.Domain("d").Guards {
			op.Guards = append(op.Guards, quota.Guard{Kind: string(g.Kind), Name: g.Name, Revision: g.Revision})
		}
		if res, err := accounts.Apply(t.Context(), op); err != nil || res.Granted != 1 || len(op.Guards) != 50 {
			t.Errorf("%s, %d guards: %+v, %v", mode, len(op.Guards), res, err)
		}
	}
	for i := range 9 {
		put(t, c, store.DocumentKey(plan.KindRateLimits, fmt.Sprintf("d/%02d-more", i)), fmt.Sprintf("domain: d\ndescriptors: [{key: more%d}]\n", i))
	}
	put(t, c, store.DocumentKey(plan.KindRateLimits, "d/49"), "domain: d\ndescriptors: [{key: k, value: v49, rate_limit: {unit: day, requests_per_unit: 11}}]\n")
	r.untilRejected(9)
	r.until("an edit", limits("d", "v49", 11))
	del(t, c, store.DocumentKey(plan.KindRateLimits, "d/07"))
	r.untilRejected(8)
	if limitOf(r.Snapshot(), "d", "v6") != 10 || limitOf(r.Snapshot(), "d", "v7") != -1 {
		t.Error("others than the deleted one are gone")
	}
}
