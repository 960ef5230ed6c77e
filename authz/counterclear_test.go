package authz_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// clear clears the accounts of a counter, as somebody does by hand.
func (k *desk) clear(counter string) (used int64) {
	for _, key := range k.memory.Accounts() {
		if key.Tenant == counter {
			used += k.memory.Clear(key)
		}
	}
	k.rev++
	k.catalog.SetVoid(counter, k.rev)
	k.publish()
	return used
}

// P36, C046: a counter that was cleared is as new: those who were refused are admitted at
// once, those who look see all of it, and no other counter changes.
func TestCount_P36_C046_ClearedCountersAreNew(t *testing.T) {
	for _, unit := range []string{"second", "minute", "hour", "month"} {
		t.Run(unit, func(t *testing.T) {
			inBubble(t, edge("", limited("a", unit, 4)), func(t *testing.T, k *desk) {
				k.count("a=1 x4")
				k.count("a=2 x4")
				for _, text := range []string{"a=1", "a=2"} {
					if got := counted(k.count(text)); !strings.HasSuffix(got, " OVER:0") {
						t.Fatalf("%s of a full one: %s", text, got)
					}
				}
				if used := k.clear("edge?a=1"); used != 4 && (unit == "hour" || unit == "month") {
					t.Errorf("cleared of %d", used)
				}
				k.wantCount("allowed OK:4", "a=1 x0")
				k.wantCount("allowed OK:0", "a=1 x4")
				for _, text := range []string{"a=1", "a=2"} {
					if got := counted(k.count(text)); !strings.HasSuffix(got, " OVER:0") {
						t.Errorf("%s afterwards: %s", text, got)
					}
				}
			})
		})
	}
}

// P36: a refund of what was cleared is given back of what was used since, at most.
func TestCount_P36_P17_ARefundAfterwards(t *testing.T) {
	inBubble(t, edge("", limited("a", "hour", 10)), func(t *testing.T, k *desk) {
		k.count("a=1 x8")
		synctest.Wait()
		k.clear("edge?a=1")
		k.wantCount("allowed OK:7", "a=1 x3")
		k.count("a=1 -8")
		k.wantCount("allowed OK:9", "a=1")
		k.wantCount("allowed OK:0", "a=1 x9")
	})
}

// P35: the tenant of a counter's accounts is what CounterTenant says, also of names that
// are too long for a key.
func TestCounterTenant_P35_IsTheAccounts(t *testing.T) {
	inBubble(t, edge("", "{key: a, rate_limit: {unit: hour, requests_per_unit: 10}}"), func(t *testing.T, k *desk) {
		table := k.catalog.Snapshot().Domain("edge").Table
		want := map[string]bool{}
		for _, length := range []int{1, 248, 249, 250, 1000, 1001} {
			value := strings.Repeat("x", length)
			k.count("a=" + value)
			_, name := table.Match([]plan.DescriptorEntry{{Key: "a", Value: value}}, nil)
			tenant := authz.CounterTenant(string(name))
			if len(tenant) > 256 || authz.WholeCounter(tenant) != (tenant == string(name)) || (tenant == string(name)) != (len(name) <= 256) {
				t.Errorf("the tenant of %d bytes is %q", len(name), tenant)
			}
			if prefix := authz.CounterPrefix("edge?a=" + strings.Repeat("x", min(length, 240))); !strings.HasPrefix(tenant, prefix) {
				t.Errorf("%q does not begin with %q", tenant, prefix)
			}
			want[tenant] = true
		}
		synctest.Wait()
		got := map[string]bool{}
		for _, key := range k.memory.Accounts() {
			got[key.Tenant] = true
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("accounts of %v, want %v", got, want)
		}
	})
}
