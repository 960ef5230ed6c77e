package main

import (
	"encoding/json"
	"testing"

	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

const yearRules = `
domain: edge
descriptors:
- {key: org, rate_limit: {unit: year, requests_per_unit: 100}, descriptors: [{key: route, value: x, rate_limit: {unit: year, requests_per_unit: 7}}]}
- {key: org, value: big, rate_limit: {unit: year, requests_per_unit: 900}}
- {key: soon, rate_limit: {unit: hour, requests_per_unit: 5}}
`

// descriptorScript has the rules in force, of which one grant of so many units is made to a
// counter. It returns the verdict.
func descriptorScript(t *testing.T, counter string, want int64, guards ...quota.Guard) error {
	t.Helper()
	text, err := json.Marshal(map[string]string{"document": yearRules})
	if err != nil {
		t.Fatal(err)
	}
	s := &script{key: quota.Key{Root: counter, Tenant: counter, Limit: limitPerYear, Window: "w"}}
	s.put(store.EffectiveKey(plan.KindRateLimits, "edge"), string(text))
	s.put(store.LiablePrefix+holderA, "")
	s.do(t, quota.Operation{Key: s.key, Holder: holderA, Seq: 1, Want: want, Min: want, Ceiling: 1000, Replicas: 1, Guards: guards})
	return s.verdict(t)
}

func edgeGuard(revision int64) quota.Guard {
	return quota.Guard{Kind: string(plan.KindRateLimits), Name: "edge", Revision: revision}
}

func TestProof_A34_CountersHaveTheAmountOfTheirRule(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		counter string
		want    int64
		says    string
	}{
		{"edge?org=a", 100, ""},
		{"edge?org=a", 101, "leased 101 > 100, the amount in force"},
		{"edge?org=big", 900, ""},
		{"edge?org=big", 901, "> 900, the amount in force"},
		{"edge?org=a&route=x", 8, "> 7, the amount in force"},
		{"edge?org=a&route=y", 1, "> 0, the amount in force"},
		{"edge?soon=a", 1, "> 0, the amount in force"},
		{"other?org=a", 1, "> 0, the amount in force"},
		{"edge", 1, "> 0, the amount in force"},
	} {
		switch err := descriptorScript(t, c.counter, c.want, edgeGuard(2)); {
		case c.says != "":
			wantError(t, err, c.says)
		case err != nil:
			t.Errorf("%s with %d: %v", c.counter, c.want, err)
		}
	}
}

func TestProof_A44_AGrantOfACounterNamesItsDocuments(t *testing.T) {
	t.Parallel()
	wantError(t, descriptorScript(t, "edge?org=a", 10), "no guard is about the document edge")
	wantError(t, descriptorScript(t, "edge?org=a", 10, edgeGuard(1)), "was at revision 2, not 1")
}
