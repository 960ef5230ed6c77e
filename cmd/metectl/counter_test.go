package main

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"pgregory.net/rapid"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

// countCommand records what a limit of descriptors has counted in its running window, in
// UTC: count COUNTER ACCOUNT UNITS.
func countCommand(ts *testscript.TestScript, _ bool, args []string) {
	used, err := strconv.ParseInt(args[2], 10, 64)
	ts.Check(err)
	_, err = serverOf(ts).Client().Put(context.Background(), store.LiablePrefix+"r1", "") // a holder that runs
	ts.Check(err)
	l, ok := plan.ParseAccount(args[1])
	if !ok {
		ts.Fatalf("%s is no account", args[1])
	}
	s := plan.DefaultDomainSettings()
	w := authz.Calendar(l.Effective(&s)).Window(quota.EndOfMinute(time.Now()))
	_, err = store.NewAccounts(serverOf(ts).Client()).Apply(context.Background(), quota.Operation{
		Key:    quota.Key{Root: args[0], Tenant: args[0], Limit: args[1], Window: w.ID},
		Holder: "r1", Seq: 1, Used: used, Ceiling: quota.MaxUnits, Replicas: 1,
	})
	ts.Check(err)
}

// voidedCommand checks that what replicas hold of a counter or a tenant is voided.
func voidedCommand(ts *testscript.TestScript, _ bool, args []string) {
	r, err := serverOf(ts).Client().Get(context.Background(), store.VersionKey(args[0]))
	ts.Check(err)
	if len(r.Kvs) == 0 {
		ts.Fatalf("%s is not voided", args[0])
	}
}

// What we show of a descriptor is what the command line takes, whatever bytes are in it.
func TestDescriptorText_P35_P36_IsReadBack(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) plan.CounterEntry {
			bytes := rapid.OneOf(rapid.StringMatching(`[a-z=,*%& /"'?]{0,8}`), rapid.String(), rapid.SampledFrom([]string{"\xff", "\u2028", "\x1b[0m", "%2"}))
			e := plan.CounterEntry{Key: bytes.Draw(t, "key") + "k", Value: bytes.Draw(t, "value")}
			switch rapid.IntRange(0, 2).Draw(t, "kind") {
			case 1:
				e.Value, e.Shared = e.Value+"*", true
			case 2:
				e.Shared, e.Regex = true, true
			}
			if rapid.Bool().Draw(t, "conditional") {
				e.When = bytes.Draw(t, "when") + "w"
			}
			return e
		}), 1, 4).Draw(t, "entries")
		text := descriptorText(entries)
		got, err := parseDescriptor(text)
		if err != nil || len(got) != len(entries) {
			t.Fatalf("%+v is shown as %q, which is read as %+v, %v", entries, text, got, err)
		}
		for i := range got {
			if got[i] != entries[i] {
				t.Fatalf("%+v is shown as %q, which is read as %+v", entries, text, got)
			}
		}
		for _, c := range text {
			if c <= ' ' || c == 0x7f || c == '\'' || c == '"' {
				t.Fatalf("%+v is shown as %q", entries, text)
			}
		}
	})
}

// The counter that a descriptor is counted in: the rule's, a shared one's by what it is
// shown as or by any value, and where no rule is that of its values.
func TestCounterOf_P36_FindsWhatCounts(t *testing.T) {
	t.Parallel()
	docs, problems := plan.Decode("edge.yaml", []byte(`
domain: edge
descriptors:
  - {key: org, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: path, value: "/a*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: own, value: "/a*", rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: id, regex: "[0-9]+", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: team, value: "a*", when: '"vip" in descriptor', share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}, descriptors: &vip [{key: vip, rate_limit: {unit: hour, requests_per_unit: 1}}]}
  - {key: team, value: "a*", share_threshold: true, rate_limit: {unit: hour, requests_per_unit: 1}, descriptors: *vip}
`))
	if len(docs) != 1 {
		t.Fatal(problems)
	}
	catalog := plan.NewCatalog()
	catalog.Put(docs[0], 1)
	table := catalog.Snapshot().Domain("edge").Table
	for _, tt := range []struct {
		text, name string
		ruled      bool
	}{
		{"org=a", "edge?org=a", true},
		{"org=%FF", "edge?org=%FF", true},
		{"org=a=b", "edge?org=a%3Db", true},
		{"path=/a*", "edge?path=%2Fa*", true},
		{"path=/abc", "edge?path=%2Fa*", true},
		{"path=/b", "edge?path=%2Fb", false},
		{"own=/a*", "edge?own=%2Fa%2A", true}, // each value by itself
		{"own=/abc", "edge?own=%2Fabc", true},
		{"id=17", "edge?id*=%5B0-9%5D%2B", true},
		{"id*=[0-9]+", "edge?id*=%5B0-9%5D%2B", true},
		{"nobody=1,x=", "edge?nobody=1&x=", false},
		{"team=a*", "edge?team=a*", true},
		{"team=a*,*when=%22vip%22%20in%20descriptor", "edge?team=a*&*when=%22vip%22%20in%20descriptor", true},
		{"team=a*,*when=%22vip%22%20in%20descriptor,vip=1", "edge?team=a*&*when=%22vip%22%20in%20descriptor&vip=1", true},
		{"team=ab,vip=1", "edge?team=a*&*when=%22vip%22%20in%20descriptor&vip=1", true},
		{"team=ab,vop=1", "edge?team=ab&vop=1", false},
		{"nobody*=1", "edge?nobody%2A=1", false},
	} {
		entries, err := parseDescriptor(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		if name, m := counterOf(table, entries); name != tt.name || (m != nil) != tt.ruled {
			t.Errorf("%s counts in %s, by a rule: %v; want %s, %v", tt.text, name, m != nil, tt.name, tt.ruled)
		}
	}
}
