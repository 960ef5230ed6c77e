package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/meteproject/mete/authz"
	"github.com/meteproject/mete/plan"
	"github.com/meteproject/mete/quota"
	"github.com/meteproject/mete/store"
)

func (c *cli) listDomain(ctx context.Context, domain string) error {
	now := c.now()
	r := counterReport{Domain: domain, Counters: []counterView{}}
	what := "cannot list the counters of " + domain
	buckets := false
	err := c.withStore(ctx, what, func(ctx context.Context, client *clientv3.Client) error {
		d, err := loadDomain(ctx, client, what, domain)
		if err != nil {
			return err
		}
		buckets = d.Table.HasBuckets()
		prefix := string(d.Table.AppendName(nil, nil))
		found, err := store.NewAccounts(client).ListUnder(ctx, authz.CounterPrefix(prefix))
		for _, e := range found {
			if strings.HasPrefix(e.Key.Tenant, prefix) || !authz.WholeCounter(e.Key.Tenant) {
				r.add(d, now, e)
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	r.sort()
	if buckets {
		c.say("limits per second and minute are not listed: their buckets live in the replicas")
	}
	return c.writeCounters(r, now, "nothing of "+domain+" has been counted in the running windows")
}

func (c *cli) listTenant(ctx context.Context, tenant, app string) error {
	now := c.now()
	r := counterReport{Tenant: tenant, Counters: []counterView{}}
	err := c.withStore(ctx, "cannot list the quotas of "+tenant, func(ctx context.Context, client *clientv3.Client) error {
		_, limits, err := tenantQuotas(ctx, client, now, tenant, app)
		r.Counters = limits
		return err
	})
	if err != nil {
		return err
	}
	return c.writeCounters(r, now, tenant+" has no quotas")
}

func (c *cli) showCounter(ctx context.Context, domain, text string) error {
	now := c.now()
	r := counterReport{Domain: domain}
	what := "cannot show " + text + " of " + domain
	err := c.withStore(ctx, what, func(ctx context.Context, client *clientv3.Client) error {
		t, err := findCounter(ctx, client, what, now, domain, text)
		if err == nil {
			r.Counters = t.limits
		}
		return err
	})
	if err != nil {
		return err
	}
	return c.writeCounters(r, now, "")
}

// writeCounters prints a report; nothing of it is worth a remark.
func (c *cli) writeCounters(r counterReport, now time.Time, nothing string) error {
	switch {
	case c.output == "name":
		for _, line := range r.lines() {
			if _, err := fmt.Fprintln(c.stdout, printable(line)); err != nil {
				return err
			}
		}
		return nil
	case len(r.Counters) == 0 && c.output == "table":
		c.say("%s", nothing)
		return nil
	}
	return c.writeAs(r, r.table(now))
}

// loadDomain returns what is in force for a rate limit domain.
func loadDomain(ctx context.Context, client *clientv3.Client, what, name string) (*plan.Domain, error) {
	catalog, _, err := store.LoadCatalog(ctx, client)
	if err != nil {
		return nil, err
	}
	d := catalog.Snapshot().Domain(name)
	switch {
	case d == nil:
		return nil, &failure{code: exitNotFound, what: what, why: "no document with that domain is in force", next: "metectl get ratelimits lists the documents; the quotas of a tenant are shown with --tenant NAME"}
	case d.Broken != "":
		return nil, &failure{code: exitInvalid, what: what, why: d.Broken, next: "metectl status lists what is rejected"}
	}
	return d, nil
}

// add adds an account, if it is one of a limit of descriptors and its window is running.
func (r *counterReport) add(d *plan.Domain, now time.Time, e store.Entry) {
	l, ok := plan.ParseAccount(e.Key.Limit)
	if !ok {
		return
	}
	limit := l.Effective(&d.Settings)
	if limit.Kind != plan.Quota || window(limit, now).ID != e.Key.Window {
		return
	}
	if l.Amount < 0 { // no override of Envoy's: the rule knows
		limit.Amount = -1
	}
	text := e.Key.Tenant
	if entries, m, known := d.Table.Counter(e.Key.Tenant); known {
		text = descriptorText(entries)
		if m != nil && m.Account == e.Key.Limit {
			limit = m.Limit
		}
	}
	r.Counters = append(r.Counters, viewCounter(text, e.Key, limit, e.Account, now))
}

// viewCounter is a limit of a counter as it is; of an amount below 0 nobody knows.
func viewCounter(text string, key quota.Key, l *plan.EffectiveLimit, a quota.Account, now time.Time) counterView {
	v := counterView{Descriptor: text, Key: key.Tenant, usageLimit: usageLimit{Name: windowWord(key.Limit), Kind: kindWord(l.Kind), Unit: l.Unit}}
	if l.Amount >= 0 {
		v.Amount = &l.Amount
	}
	if l.Kind != plan.Quota {
		v.pace = pace(l)
		return v
	}
	v.fill(window(l, now), a)
	return v
}

// windowWord is what limits of descriptors are called in output: per_hour, or per_hour=50
// for one that Envoy sends along.
func windowWord(account string) string {
	_, word, _ := strings.Cut(account, ":")
	return word
}

// sort puts counters in the order of their names, and the limits of one by theirs.
func (r *counterReport) sort() {
	slices.SortFunc(r.Counters, func(a, b counterView) int {
		return cmp.Or(cmp.Compare(a.Descriptor, b.Descriptor), cmp.Compare(a.Name, b.Name))
	})
}

// tenantQuotas returns the quotas of a tenant, or of the root that its usage is pooled at, and
// the root of its tree.
func tenantQuotas(ctx context.Context, client *clientv3.Client, now time.Time, tenant, app string) (root string, quotas []counterView, err error) {
	catalog, _, err := store.LoadCatalog(ctx, client)
	if err != nil {
		return "", nil, err
	}
	terms, err := tenantTerms(catalog.Snapshot(), now, tenant, app)
	if err != nil {
		return "", nil, err
	}
	limits, err := usageLimits(ctx, store.NewAccounts(client), now, terms, false)
	quotas = []counterView{}
	for _, l := range limits {
		if l.Window != nil {
			node := terms.Nodes[len(terms.Nodes)-1].Tenant
			quotas = append(quotas, counterView{Descriptor: node, Key: node, usageLimit: l})
		}
	}
	return terms.Root, quotas, err
}
