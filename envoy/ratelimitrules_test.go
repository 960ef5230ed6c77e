package envoy_test

import (
	"context"
	"testing"
	"time"

	rlsdesc "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
)

// overriding adds a limit to d. A multiplier of 0 is none.
func overriding(d *rlsdesc.RateLimitDescriptor, amount uint32, unit typev3.RateLimitUnit, multiplier uint32) *rlsdesc.RateLimitDescriptor {
	d.Limit = &rlsdesc.RateLimitDescriptor_RateLimitOverride{RequestsPerUnit: amount, Unit: unit}
	if multiplier > 0 {
		d.Limit.UnitMultiplier = wrapperspb.UInt32(multiplier)
	}
	return d
}

// domainOf is what is in force by documents of rate limits for the domain edge.
func domainOf(tb testing.TB, docs string) *plan.Domain {
	tb.Helper()
	return catalogOf(tb, docs).Snapshot().Domain("edge")
}

func catalogOf(tb testing.TB, docs string) *plan.Catalog {
	tb.Helper()
	all, problems := plan.Decode("edge.yaml", []byte(docs))
	if plan.Refused(problems) {
		tb.Fatal(problems)
	}
	c := plan.NewCatalog()
	for _, doc := range all {
		c.Put(doc, 1)
	}
	return c
}

// tally is a decider that counts a domain's rules, each from its amount down, and never
// turns a window. Only what this test package looks at is there: no shadow, no replaces.
type tally struct {
	counter

	used map[string]int64 // by counter

	took map[string]int64 // by the last count
}

func tallying(tb testing.TB, docs string, tenants map[string]int64) *tally {
	tb.Helper()
	c := &tally{counter: *counting(tenants), used: map[string]int64{}}
	c.domain = domainOf(tb, docs)
	c.unbound = tenants == nil
	c.counts = c.tally
	return c
}

func (c *tally) tally(_ context.Context, asks []authz.DescriptorAsk, onlyLook bool, n *authz.Count) {
	n.Domain, n.Outcome, c.took = c.domain, authz.Allowed, map[string]int64{}
	seen := map[string]int64{}
	for i := range asks {
		ask := &asks[i]
		m, name := c.domain.Table.Match(ask.Entries, nil)
		item := authz.Counted{Match: m}
		var limit *plan.EffectiveLimit
		switch {
		case ask.HasOverride:
			limit = ask.Override.Effective(&c.domain.Settings)
			name = append(c.domain.Table.AppendCounter(nil, ask.Entries), ask.Override.Override()...)
		case m != nil && m.Rule.Limit != nil && m.Rule.Limit.Unlimited:
			item.Unlimited = true
		case m != nil && m.Limit != nil:
			limit, item.Named = m.Limit, m.Rule.Limit.Name != ""
		}
		if limit == nil && m == nil && ask.Unreadable {
			item.Over, item.State.Reset = true, -1
			n.Outcome, n.Worst = authz.RateLimited, i
		}
		if limit == nil {
			n.Items = append(n.Items, item)
			continue
		}
		key := string(name)
		item.State = authz.LimitState{Limit: limit, Tenant: key, Leaf: true, Asked: max(ask.Hits, 1), Reset: 1500 * time.Millisecond, Window: limit.Window}
		if ask.Refund {
			c.used[key] = max(0, c.used[key]-ask.Hits)
		} else if item.Over = c.used[key]+seen[key]+max(ask.Hits, 1) > limit.Amount; item.Over {
			n.Outcome, n.Worst, n.RetryAfter, item.State.Refused = authz.RateLimited, i, item.State.Reset, true
		} else {
			seen[key] += ask.Hits
		}
		n.Items = append(n.Items, item)
	}
	if !onlyLook && !n.Refused() {
		for key, hits := range seen {
			c.used[key] += hits
			c.took[key] = hits
		}
	}
	for i := range n.Items {
		if st := &n.Items[i].State; st.Limit != nil {
			st.Left = st.Limit.Amount - c.used[st.Tenant]
		}
	}
}

func (c *tally) GiveBackCount(now time.Time, n *authz.Count) {
	c.counter.GiveBackCount(now, n)
	for key, hits := range c.took {
		c.used[key] -= hits
	}
	c.took = nil
}
